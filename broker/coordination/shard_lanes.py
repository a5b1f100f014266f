"""Lanes of a coordinator's commands: which of them may run beside each other."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

CommandT = TypeVar("CommandT")


class Access(enum.Enum):
    """The way in which a command shares its lane with commands whose decisions are still being
    written.
    """

    ALONE = "alone"
    """The command waits for them, and later commands wait for it."""
    SIDE_BY_SIDE = "side by side"
    """Its like need not know of it."""
    BUILT_UPON = "built upon"
    """Applied when it is decided, so that its like can be decided at once; answered when it, and
    what it was built upon, is in the log.

    Sound because an append whose outcome is not known ends the shard with all that was applied.
    """


@dataclass(slots=True)
class Lane(Generic[CommandT]):
    """The commands of one lane: what is being written, and what waits for that."""

    write_count: int = 0
    access: Access = Access.ALONE
    waiting: deque[tuple[CommandT, int, int]] = field(default_factory=deque)
    """Each with its token and its number."""

    def may_run(self, access: Access) -> bool:
        return not self.write_count or (access is self.access and access is not Access.ALONE)
