"""The handlers of a broker: one module for each API, found by its `API_KEY`."""

from __future__ import annotations

import importlib
import pkgutil
import types

import broker.handlers
from wire.protocol.frames import VersionRange
from wire.protocol.private import PRIVATE_NAMES
from wire.protocol.schemas import api_name


def request_label(api_key: int) -> str:
    """The name of the API in Kafka's metrics, such as `OffsetCommit`."""
    return api_name(api_key).title().replace("_", "")


def load_handlers() -> dict[int, types.ModuleType]:
    """Every handler module by API key, in the order of the keys."""
    prefix = f"{broker.handlers.__name__}."
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(broker.handlers.__path__, prefix)
        if not found.ispkg and found.name != __name__
    ]
    handlers = {module.API_KEY: module for module in modules if hasattr(module, "API_KEY")}
    return dict(sorted(handlers.items()))


def advertised_versions(*, has_private: bool) -> dict[int, VersionRange]:
    """Versions by API key as an ApiVersions response lists them."""
    return {
        key: _advertised(module) for key, module in load_handlers().items() if has_private or key not in PRIVATE_NAMES
    }


def _advertised(module: types.ModuleType) -> VersionRange:
    """The versions in an ApiVersions response; a handler may name older ones than it takes."""
    return VersionRange(getattr(module, "ADVERTISED_FROM", module.MIN_VERSION), module.MAX_VERSION)
