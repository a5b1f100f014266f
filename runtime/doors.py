"""The doors of a process to the outside world, as its composer passes them to a controller
candidate, a site agent and a mirror; a broker's doors (`broker/assembly/doors.py`) are these and
more.

Deadlines inside one process need no door: they use the time of the running event loop. Code that
all programs share draws its random numbers from `runtime/chance.py`.
"""

from __future__ import annotations

import random

from msgspec import Struct, field

from runtime.clock import Clock, SystemClock
from runtime.grpc_server import Dial, open_channel
from runtime.zookeeper.client import OpenZooKeeper, ZooKeeper


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
