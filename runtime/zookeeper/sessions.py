"""Values about a session with ZooKeeper: its key, its state, and the callbacks for changes."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from kazoo.protocol.states import KazooState


class SessionKey(NamedTuple):
    """The data needed to attach to a session."""

    session_id: int
    password: bytes


NoteSession = Callable[[SessionKey], None]
"""Called with a client's session at its start and after each change."""


def note_no_session(_key: SessionKey) -> None:
    """Does nothing; for clients that end their sessions themselves."""


class SessionState(enum.Enum):
    """The known state of the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
SessionListener = Callable[[SessionState], None]
