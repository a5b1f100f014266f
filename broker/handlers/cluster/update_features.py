"""UpdateFeatures: levels of features (KIP-584), which are fixed here
(`broker/metadata/core/features.py`).

Behaviour: an update to the current level succeeds and changes nothing, as in Kafka. Any other is
refused with INVALID_UPDATE_VERSION for the whole request, as Kafka does when one feature of several
cannot be updated; Kafka would allow an explicit downgrade. Version 0 has no upgrade type: as in
Kafka, its permission to downgrade is ignored. Versions: 0 to 2.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.metadata.core.features import UpgradeType, update_problem
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 57
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(request: Any, context: RequestContext, _doors: None) -> Any:
    """Answer an UpdateFeatures request."""
    build = builder(API_KEY, context.api_version)
    updates = request.feature_updates
    problems = [
        problem
        for update in updates
        if (problem := update_problem(update.feature, update.max_version_level, _upgrade_type(update)))
    ]
    if problems:
        return build.response(
            error_code=ErrorCode.invalid_update_version,
            error_message=f"nothing was updated: {problems[0]}",
            results=(),
        )
    results: tuple[Any, ...] = ()
    if build.has("UpdatableFeatureResult"):
        results = tuple(
            build.part("UpdatableFeatureResult", feature=update.feature, error_code=ErrorCode.none, error_message=None)
            for update in updates
        )
    return build.response(error_code=ErrorCode.none, error_message=None, results=results)


def _upgrade_type(update: Any) -> int:
    return int(getattr(update, "upgrade_type", UpgradeType.UPGRADE))
