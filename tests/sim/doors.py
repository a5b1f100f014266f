"""The doors of one simulated process (`runtime/doors.py`): clock and chance, gRPC channels and
ZooKeeper clients.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from runtime.doors import ProcessDoors
from tests.sim.virtual_loop import Process
from tests.sim.world import VirtualClock, World
from tests.sim.zookeeper_door import SimZooKeeper


def process_doors(world: World, process: Process, clock: VirtualClock, chance: Random) -> ProcessDoors:
    """Doors to the simulated world alone."""
    open_zookeeper: Any = partial(_open_zookeeper, world, process)
    return ProcessDoors(clock=clock, chance=chance, dial=world.dial, open_zookeeper=open_zookeeper)


def _open_zookeeper(world: World, process: Process, connect: str, **options: Any) -> SimZooKeeper:
    return SimZooKeeper(world, process, connect=connect, **options)
