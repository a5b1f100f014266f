"""AlterClientQuotas: forwarded to the active controller, which stores quotas and sends them to
every broker.

Behaviour: each entity has its own result; the answer is sent when the live brokers have received
the change. A standby hands the request on to the active site (`broker/site/followed_site.py`), and
answers POLICY_VIOLATION for each entity if that site does not answer. Versions: 0 and 1. Not done:
host names as ip entities.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import ActiveSite
from broker.site.followed_site import Rules, ask_followed_site
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.client_quotas import entity_message, quota_entity

API_KEY = 49
MIN_VERSION = 0
MAX_VERSION = 1

Outcome = tuple[ErrorCode, str | None]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    controller: ControllerClient


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an AlterClientQuotas request."""
    build = builder(API_KEY, context.api_version)
    followed = await ask_followed_site(doors.active_site, doors.cluster.image, context, request, Rules.QUOTAS)
    if followed.answer is not None:
        return followed.answer
    if followed.refusal:
        outcomes: list[Outcome] = [(ErrorCode.policy_violation, followed.refusal)] * len(request.entries)
    else:
        outcomes = await _alter(doors, request)
    return build.response(
        entries=tuple(
            build.part(
                "EntryData",
                error_code=code,
                error_message=message,
                entity=tuple(
                    build.part("EntityData", entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ),
            )
            for entry, (code, message) in zip(request.entries, outcomes, strict=True)
        )
    )


async def _alter(doors: Doors, request: Any) -> list[Outcome]:
    wanted = pb.AlterClientQuotasRequest(
        changes=[_change(entry) for entry in request.entries], is_validate_only=request.validate_only
    )
    try:
        reply = await doors.controller.alter_client_quotas(wanted)
    except ControllerUnavailable as error:
        return [(error.code, str(error))] * len(request.entries)
    return [(ErrorCode(result.error_code), result.error_message or None) for result in reply.results]


def _change(entry: Any) -> pb.QuotaChange:
    entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
    return pb.QuotaChange(
        entity=entity_message(entity),
        set={op.key: op.value for op in entry.ops if not op.remove},
        remove=[op.key for op in entry.ops if op.remove],
    )
