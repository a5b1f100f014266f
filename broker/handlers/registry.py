"""The handlers of a broker: one module for each API, found by its `API_KEY`.

A module names the parts of the broker that it uses in a frozen dataclass `Doors`; `bind_handlers`
gives each handler those and no others, once, when the broker is composed. Most handlers decode with
kio and are coroutines: `handle(request, context, doors) -> response`, a kio entity or its bytes. If
such a module has `may_be_sent(response, doors)`, the broker asks it each time before it sends bytes
of the response, and closes the connection on False.
The hot ones (Produce, Fetch, OffsetCommit, Metadata ...) read the frame themselves:
`handle_frame(frame, exchange, doors)` replies through the exchange, at once or later, and must not
keep the frame.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import types
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

import broker.handlers
from broker.metadata.request_context import RequestContext
from broker.network.connection_owner import Frame
from broker.network.exchange import Exchange
from wire.protocol.messages.private import PRIVATE_NAMES
from wire.protocol.schemas import api_name
from wire.protocol.streams.frames import VersionRange


class EntityHandler(Struct, frozen=True):
    """The handler of an API that takes and returns kio entities, with the parts of the broker that
    it uses.
    """

    versions: VersionRange
    doors: Any
    handle: Callable[[Any, RequestContext, Any], Coroutine[Any, Any, Any]]
    may_be_sent: Callable[[Any, Any], bool] | None = None


class FrameHandler(Struct, frozen=True):
    """The handler of an API that reads the frame itself, with the parts of the broker that it
    uses.
    """

    versions: VersionRange
    doors: Any
    handle_frame: Callable[[Frame, Exchange, Any], None]


Handler = EntityHandler | FrameHandler


def bind_handlers(parts: object) -> dict[int, Handler]:
    """Every handler by API key, each with the attributes of `parts` that its `Doors` names."""
    return {key: _bound(module, parts) for key, module in load_handlers().items()}


def _bound(module: types.ModuleType, parts: object) -> Handler:
    versions = VersionRange(module.MIN_VERSION, module.MAX_VERSION)
    kind = getattr(module, "Doors", None)
    doors = None if kind is None else kind(**{name: getattr(parts, name) for name in kind.__struct_fields__})
    if hasattr(module, "handle_frame"):
        return FrameHandler(versions, doors, module.handle_frame)
    return EntityHandler(versions, doors, module.handle, getattr(module, "may_be_sent", None))


def request_label(api_key: int) -> str:
    """The name of the API in Kafka's metrics, such as `OffsetCommit`."""
    return api_name(api_key).title().replace("_", "")


@functools.cache
def load_handlers() -> dict[int, types.ModuleType]:
    """Every handler module by API key, in the order of the keys; the same dict for every caller."""
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
    """The versions in an ApiVersions response; a handler may list older versions than it
    accepts.
    """
    return VersionRange(getattr(module, "ADVERTISED_FROM", module.MIN_VERSION), module.MAX_VERSION)
