"""Builds kio response entities of any version: a handler passes all fields that it knows, and the
version uses those it has.

kio has one class for each version of a message and of each of its nested parts. Handlers that serve
many versions would otherwise repeat themselves; here the fields that a version lacks are left out.
For cold messages; the hot ones are encoded by hand.
"""

from __future__ import annotations

import sys
import uuid
from dataclasses import fields
from datetime import timedelta
from functools import cache
from typing import Any

from kio.static.primitive import i32Timedelta

from wire.protocol import schemas

NO_THROTTLE = i32Timedelta.parse(timedelta())


def throttle_time(throttle_time_ms: float) -> i32Timedelta:
    """The throttle time of a response."""
    return i32Timedelta.parse(timedelta(milliseconds=round(throttle_time_ms)))


def allowed_ms(timeout: timedelta) -> int:
    """The time that a client allows for an administrative request, in ms; at least 1, because 0
    would mean no limit.
    """
    return max(1, timeout // timedelta(milliseconds=1))


class ResponseBuilder:
    """The classes of one response version."""

    def __init__(self, api_key: int, version: int) -> None:
        self.version = version
        self._main = schemas.response_type(api_key, version)
        self._module = sys.modules[self._main.__module__]
        self._names: dict[type[Any], frozenset[str]] = {}

    def part(self, entity_name: str, /, **values: Any) -> Any:
        """A nested part by kio's class name."""
        return self._build(getattr(self._module, entity_name), values)

    def response(self, **values: Any) -> Any:
        """The response itself; throttle time is filled in."""
        return self._build(self._main, {"throttle_time": NO_THROTTLE, **values})

    def has(self, name: str) -> bool:
        """True when this version has the nested part."""
        return hasattr(self._module, name)

    def _build(self, entity_type: type[Any], values: dict[str, Any]) -> Any:
        names = self._names.get(entity_type)
        if names is None:
            names = self._names[entity_type] = frozenset(field.name for field in fields(entity_type))
        return entity_type(**{name: value for name, value in values.items() if name in names})


@cache
def builder(api_key: int, version: int) -> ResponseBuilder:
    """The builder of one response version."""
    return ResponseBuilder(api_key, version)


def topic_uuid(topic_id: bytes) -> uuid.UUID | None:
    """kio's form of a topic id; None is zero on the wire."""
    return uuid.UUID(bytes=topic_id) if any(topic_id) else None


def topic_id_bytes(topic_id: uuid.UUID | None) -> bytes:
    """Sixteen bytes of kio's form."""
    return bytes(16) if topic_id is None else topic_id.bytes
