"""DescribeClientQuotas: the quotas of users, client ids and addresses that a filter chooses.

Behaviour: answered from this broker's image, so a change is visible as soon as the controller has
sent it to this broker. A standby shows the active site's, and its own if that site does not answer
(`broker/site/followed_site.py`). Versions: 0 and 1.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.quotas.core.quota_filter import BadFilter, FilterPart, Match, UnknownEntityType, check_filter, is_chosen
from broker.site.active_site import ActiveSite
from broker.site.followed_site import Rules, ask_followed_site

API_KEY = 48
MIN_VERSION = 0
MAX_VERSION = 1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeClientQuotas request."""
    build = builder(API_KEY, context.api_version)
    try:
        parts = [FilterPart(part.entity_type, Match(part.match_type), part.match) for part in request.components]
        check_filter(parts)
    except UnknownEntityType as error:
        return build.response(error_code=ErrorCode.unsupported_version, error_message=str(error), entries=None)
    except BadFilter as error:
        return build.response(error_code=ErrorCode.invalid_request, error_message=str(error), entries=None)
    except ValueError:
        return build.response(error_code=ErrorCode.invalid_request, error_message="Unexpected match type", entries=None)
    followed = await ask_followed_site(doors.active_site, doors.cluster.image, context, request, Rules.QUOTAS)
    if followed.answer is not None:
        return followed.answer
    entries = tuple(
        build.part(
            "EntryData",
            entity=tuple(build.part("EntityData", entity_type=kind, entity_name=name) for kind, name in entity),
            values=tuple(build.part("ValueData", key=key, value=value) for key, value in sorted(values.items())),
        )
        for entity, values in doors.cluster.image.quotas.items()
        if is_chosen(entity, parts, is_strict=request.strict)
    )
    return build.response(error_code=ErrorCode.none, error_message=None, entries=entries)
