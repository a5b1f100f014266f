"""ApiVersions: the APIs of this broker, with their versions.

Behaviour: lists the versions of every handler; Antipode's private messages are listed only for
Antipode's own clients (by software name). Produce is listed from 0 though its versions 0 to 2 are
refused, as in Kafka 4: older clients derive a broker's features from it (KAFKA-18659). Versions: 0
to 4; a newer one is answered in version 0 with UNSUPPORTED_VERSION and the list (KIP-511), see
dispatch.py. From 3 on, a software name or version that KIP-511 does not allow is an
INVALID_REQUEST. Finalized features: transaction.version 2 (KIP-890) and group.version 1 (KIP-848).
They do not change, so their epoch is always 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.handlers.registry import advertised_versions
from broker.metadata.core.features import FEATURES
from broker.metadata.request_context import RequestContext
from broker.network.entities import ResponseBuilder, builder
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME
from wire.protocol.streams.frames import VersionRange

API_KEY = 18
MIN_VERSION = 0
MAX_VERSION = 4

SOFTWARE_NAME_FROM: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")

LOWEST_LEVEL_OF_ZERO_FROM: Final = 4
"""Clients that send version 3 fail on a feature whose lowest level is 0, so their response does not
contain it (KAFKA-17011).
"""


def _entity(version: int, error: ErrorCode, versions: Mapping[int, VersionRange]) -> Any:
    build = builder(API_KEY, version)
    keys = tuple(
        build.part("ApiVersion", api_key=key, min_version=spoken.lowest, max_version=spoken.highest)
        for key, spoken in versions.items()
    )
    return build.response(error_code=error, api_keys=keys, **_features(build))


def _features(build: ResponseBuilder) -> dict[str, Any]:
    """The features that versions from 3 on list."""
    if not build.has("FinalizedFeatureKey"):
        return {}
    return {
        "supported_features": tuple(
            build.part("SupportedFeatureKey", name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
            if build.version >= LOWEST_LEVEL_OF_ZERO_FROM
        ),
        "finalized_features_epoch": 0,
        "finalized_features": tuple(
            build.part("FinalizedFeatureKey", name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ),
    }


def unsupported_version_response(versions: Mapping[int, VersionRange]) -> Any:
    """The answer to a version that is not known here."""
    return _entity(0, ErrorCode.unsupported_version, versions)


async def handle(request: Any, context: RequestContext, _doors: None) -> Any:
    """Answer an ApiVersions request."""
    if context.api_version >= SOFTWARE_NAME_FROM and not all(
        map(_SOFTWARE.fullmatch, (request.client_software_name, request.client_software_version))
    ):
        return builder(API_KEY, context.api_version).response(error_code=ErrorCode.invalid_request, api_keys=())
    has_private = getattr(request, "client_software_name", "") == CLIENT_SOFTWARE_NAME
    return _entity(context.api_version, ErrorCode.none, advertised_versions(has_private=has_private))
