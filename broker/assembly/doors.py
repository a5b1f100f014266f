"""The doors of a broker to the outside world: those of its process, and disk, logs and sockets.
A broker reaches ZooKeeper through the membership, and this process's gRPC server is its composer's.
Connections that a broker opens itself are made by the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from msgspec import field

from broker.log.directories.log_store import LogStore
from broker.network.sockets import RealSockets, Sockets
from broker.settings.config_store import BrokerConfigStore
from runtime.disk import Disk, RealDisk
from runtime.doors import ProcessDoors
from runtime.zookeeper.sessions import SessionState
from wire.znodes.broker_znodes import BrokerRegistration


class Doors(ProcessDoors, frozen=True, kw_only=True):
    """The outside world of one broker; tests and the simulation pass their own doors."""

    disk: Disk = field(default_factory=RealDisk)
    make_logs: Callable[..., LogStore] = LogStore
    """Makes the logs over the disk, with the arguments of `LogStore`."""
    sockets: Sockets = field(default_factory=RealSockets)


class SiteMembership(Protocol):
    """The site's ZooKeeper, as a broker uses it (`broker/site/membership.py`; tests use one without
    ZooKeeper).
    """

    broker_epoch: int
    session_changes: Counter[SessionState]

    @property
    def configs(self) -> BrokerConfigStore:
        """Broker configs that are altered while brokers run."""
        ...

    async def cluster_id(self, *, known: str | None) -> str:
        """The site's cluster id."""
        ...

    async def register(self, registration: BrokerRegistration) -> None:
        """Register, now and after every lost session."""
        ...

    async def is_registered(self) -> bool:
        """True if the newest registration exists now."""
        ...

    async def controller_address(self) -> str:
        """gRPC address of the active controller, empty when none is known."""
        ...

    async def unregister(self) -> None:
        """Leave."""
        ...
