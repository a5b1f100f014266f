"""The doors of a process to the outside world, as its composer passes them to a controller
candidate, a site agent and a mirror; a broker's doors (`broker/assembly/doors.py`) are these and
more.

Deadlines inside one process need no door: they use the time of the running event loop. Code that
all programs share draws its random numbers from `runtime/chance.py`.
"""

from __future__ import annotations

import random
from typing import Protocol

from msgspec import Struct, field

from runtime.clock import Clock, SystemClock
from runtime.grpc_server import Dial, open_channel
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.sessions import NoteSession


class OpenZooKeeper(Protocol):
    """Makes a client (`ZooKeeper`, or a simulated one), which its user starts."""

    def __call__(self, connect: str, *, session_timeout_ms: int = ..., note_session: NoteSession = ...) -> ZooKeeper:
        """A client of the ensemble that the connect string names."""
        ...


class ProcessDoors(Struct, frozen=True, kw_only=True):
    """The outside world of one process; tests and the simulation pass their own doors."""

    clock: Clock = field(default_factory=SystemClock)
    chance: random.Random = field(default_factory=random.Random)
    """The random numbers for ids that only have to differ, and for distributing work over time; not
    for secrets.
    """
    dial: Dial = open_channel
    """Opens the gRPC channel to an address."""
    open_zookeeper: OpenZooKeeper = ZooKeeper
    """Makes the client of a ZooKeeper ensemble, which its user starts."""
