"""The client's half of an incremental fetch session (KIP-227): only what changed is asked, only
what changed is answered.

A thousand quiet partitions cost nothing in a request that carries one busy one. Epoch 0 opens a
session, every request counts up, and an error of the session starts it again with everything. Pure.
Used by the mirror's fetchers and by a broker's followers; each has its own type of key and of
position (the changing part of a partition's request).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

NO_SESSION = 0
FIRST_EPOCH = 0
_EPOCH_MAX = (1 << 31) - 1

KeyT = TypeVar("KeyT", bound=Hashable)
PositionT = TypeVar("PositionT")


class SessionRequest(Struct, Generic[KeyT, PositionT], frozen=True):
    """The session's state for the next request: which partitions it names and which it removes."""

    session_id: int
    session_epoch: int
    named: Mapping[KeyT, PositionT]
    forgotten: frozenset[KeyT]


class FetchSession(Generic[KeyT, PositionT]):
    """One session with one broker; requests one at a time."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: dict[KeyT, PositionT] = {}

    def next_request(self, wanted: Mapping[KeyT, PositionT]) -> SessionRequest[KeyT, PositionT]:
        """The request that makes the broker read `wanted`."""
        if self._id == NO_SESSION:
            named: Mapping[KeyT, PositionT] = dict(wanted)
            forgotten: frozenset[KeyT] = frozenset()
        else:
            named = {key: position for key, position in wanted.items() if self._known.get(key) != position}
            forgotten = frozenset(key for key in self._known if key not in wanted)
        self._known = dict(wanted)
        return SessionRequest(self._id, self._epoch, named, forgotten)

    def next_update(self, changed: Mapping[KeyT, PositionT | None]) -> SessionRequest[KeyT, PositionT]:
        """The request after these changes of what `next_request` was last given; None removes a
        partition. Only in a session that is not new.
        """
        named = {
            key: position
            for key, position in changed.items()
            if position is not None and self._known.get(key) != position
        }
        forgotten = frozenset(key for key, position in changed.items() if position is None and key in self._known)
        self._known.update(named)
        for key in forgotten:
            del self._known[key]
        return SessionRequest(self._id, self._epoch, named, forgotten)

    @property
    def is_new(self) -> bool:
        """True when the next request has to name everything."""
        return self._id == NO_SESSION

    def next_changes(
        self, named: Mapping[KeyT, PositionT], forgotten: frozenset[KeyT]
    ) -> SessionRequest[KeyT, PositionT]:
        """The request of a caller that tracks its changes since the last request; if the session is
        new, `named` has to be everything.
        """
        return SessionRequest(self._id, self._epoch, named, frozenset() if self.is_new else forgotten)

    def answered(self, session_id: int) -> None:
        """A good answer came; its session id is 0 when the broker keeps no session."""
        if session_id == NO_SESSION:
            self.reset()
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def reset(self) -> None:
        """The session is lost: the next request opens another."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known = {}
