"""AlterClientQuotas: forwarded to the active controller, which stores quotas and sends them to
every broker.

Behaviour: each entity has its own result; the answer is sent when the live brokers have received
the change. The quotas belong to this site: they are not forwarded to the other site. Versions: 0
and 1. Not done: host names as ip entities.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.client_quotas import entity_message, quota_entity

API_KEY = 49
MIN_VERSION = 0
MAX_VERSION = 1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    controller: ControllerClient


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an AlterClientQuotas request."""
    build = builder(API_KEY, context.api_version)
    wanted = pb.AlterClientQuotasRequest(
        changes=[_change(entry) for entry in request.entries], is_validate_only=request.validate_only
    )
    try:
        reply = await doors.controller.alter_client_quotas(wanted)
        outcomes = [(ErrorCode(result.error_code), result.error_message or None) for result in reply.results]
    except ControllerUnavailable as error:
        outcomes = [(error.code, str(error))] * len(request.entries)
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


def _change(entry: Any) -> pb.QuotaChange:
    entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
    return pb.QuotaChange(
        entity=entity_message(entity),
        set={op.key: op.value for op in entry.ops if not op.remove},
        remove=[op.key for op in entry.ops if op.remove],
    )
