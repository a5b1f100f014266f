"""Orders the responses of a connection that starts a request before the earlier ones are answered.

A handler that no longer needs its request buffer may reserve a position for its response, so that
the next request of the same API can start. Requests of other APIs wait until no place is open. A
response is sent when all earlier ones are sent, and responses of one turn of the loop are sent
together (`connections.py`).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from broker.network.channels import Part
from wire.protocol.byte_reader import Buffer

SLOTS_MAX: Final = 64
"""Requests of one connection under way at once."""
SLOTS_BYTES_MAX: Final = 64 * 1024
"""Maximum total size of their frames, unless a single one is larger: the parsed requests take many
times that.
"""
_HEAD: Final = struct.Struct(">ih")
"""The first fields of a frame: its size and its API key."""


class Sent(Protocol):
    """The request of a response: it decides at the last moment whether the response may be sent,
    and learns when it was sent (`broker/network/exchange.py`).
    """

    def may_be_sent(self) -> bool:
        """False if the response must not leave any more: then the connection closes instead."""
        ...

    def sent(self, began_ms: float, ended_ms: float) -> None:
        """The kernel accepted the response between these times, or the connection has closed; a
        start before the response means that it was sent at once.
        """
        ...


class Place:
    """The position of a response among those of its connection."""

    __slots__ = ("_on_answer", "frame_bytes", "is_answered", "on_close", "on_sent", "parts", "throttle_time_ms")

    def __init__(
        self, on_answer: Callable[[Place], None], frame_bytes: int, on_close: Callable[[], None] | None
    ) -> None:
        self._on_answer = on_answer
        self.frame_bytes = frame_bytes
        self.on_close = on_close
        self.is_answered = False
        self.parts: Sequence[Part] | None = None
        self.throttle_time_ms = 0.0
        self.on_sent: Sent | None = None

    def answer(
        self, parts: Sequence[Part] | None, *, throttle_time_ms: float = 0.0, on_sent: Sent | None = None
    ) -> None:
        """Like `Connection.answer`."""
        self.parts, self.throttle_time_ms, self.on_sent = parts, throttle_time_ms, on_sent
        self.is_answered = True
        self._on_answer(self)


class ResponseSlots:
    """The places of one connection. `on_answer` is called when one of them is answered."""

    __slots__ = ("_api_key", "_frame_bytes", "_on_answer", "_places")

    def __init__(self, on_answer: Callable[[Place], None]) -> None:
        self._on_answer = on_answer
        self._places: deque[Place] = deque()
        self._frame_bytes = 0
        self._api_key = -1

    def __len__(self) -> int:
        return len(self._places)

    def take(self, api_key: int, frame_bytes: int, on_close: Callable[[], None] | None = None) -> Place:
        """Reserve the last position for the response to a request of this API and size; 0 if none
        can be reserved.

        `on_close` is called when the connection closes before the answer is there.
        """
        self._api_key = api_key
        self._frame_bytes += frame_bytes
        place = Place(self._on_answer, frame_bytes, on_close)
        self._places.append(place)
        return place

    def take_behind(self) -> Place:
        """The same for a request of the API that the others are of."""
        return self.take(self._api_key, 0)

    def must_wait(self, held: bytes) -> bool:
        """True if a frame that begins with `held` cannot be handled before a reserved response is
        there.
        """
        return bool(self._places) and len(held) >= _HEAD.size and not self.may_follow(held, 0)

    def may_follow(self, data: Buffer, position: int) -> bool:
        """True if the frame at `position` may be handled now: it has the API of the reserved
        positions and fits within their limits.
        """
        if not self._places:
            return True
        if len(self._places) >= SLOTS_MAX or len(data) - position < _HEAD.size:
            return False
        size, api_key = _HEAD.unpack_from(data, position)
        has_room = not self._frame_bytes or self._frame_bytes + size <= SLOTS_BYTES_MAX
        return bool(has_room and api_key == self._api_key)

    def answered(self) -> Iterator[Place]:
        """Remove and yield the responses that can be sent, in order."""
        while self._places and self._places[0].is_answered:
            self._frame_bytes -= self._places[0].frame_bytes
            yield self._places.popleft()

    def give_up(self) -> Iterator[Place]:
        """Responses that were answered and not sent: the connection has closed. The other slots are
        notified.
        """
        given_up = tuple(self._places)
        self._places.clear()
        for place in given_up:
            if place.is_answered:
                yield place
            elif place.on_close is not None:
                place.on_close()
