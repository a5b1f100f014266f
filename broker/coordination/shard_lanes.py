"""Lanes of a coordinator's commands: they decide which commands may run concurrently."""

from __future__ import annotations

import enum
from collections import deque
from typing import Generic, TypeVar

from msgspec import Struct, field

CommandT = TypeVar("CommandT")


class Access(enum.Enum):
    """The way in which a command shares its lane with commands whose records are still being
    written.
    """

    ALONE = "alone"
    """The command waits for them, and later commands wait for it."""
    SIDE_BY_SIDE = "side by side"
    """Other commands of this kind may run at the same time without knowing of it."""
    BUILT_UPON = "built upon"
    """The decision is applied at once, so that later commands of this kind can be decided on it;
    the answer is sent when it, and the decisions before it, are in the log.

    This is safe because an append with an unknown outcome ends the shard with all applied
    decisions.
    """


class Lane(Struct, Generic[CommandT]):
    """The commands of one lane: those in an append, and those that wait for it."""

    write_count: int = 0
    access: Access = Access.ALONE
    waiting: deque[tuple[CommandT, int, int]] = field(default_factory=deque)
    """Each waiting command with its token and its number."""

    def may_run(self, access: Access) -> bool:
        return not self.write_count or (access is self.access and access is not Access.ALONE)
