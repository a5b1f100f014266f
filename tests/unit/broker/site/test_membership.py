"""A registration whose session ends in the very moment in which it is made."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError

from broker.site.membership import Membership
from runtime.zookeeper.sessions import SessionState
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.znodes.broker_znodes import BrokerRegistration

REGISTRATION = BrokerRegistration(node_id=1, endpoints=(), grpc_address="b1:1")


class ShortSession:
    """ZooKeeper, whose first session ends after it has reported the registration as present."""

    def __init__(self) -> None:
        self.session_id = 1
        self.owner = 0
        self.listeners: list[Callable[[SessionState], None]] = []

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Registers a listener for every change of the session."""
        self.listeners.append(listener)

    async def ensure_path(self, path: str) -> None:
        """The path exists already."""

    async def create(self, path: str, value: bytes, *, is_ephemeral: bool) -> None:
        """Creates a znode that ends with the session."""
        if self.owner:
            raise NodeExistsError
        self.owner = self.session_id

    async def exists(self, path: str, *, watch: Any = None) -> Any:
        """The transaction and the session that made the znode."""
        found = SimpleNamespace(czxid=self.owner, ephemeral_owner=self.owner)
        if self.session_id == 1:
            self.session_id, self.owner = 2, 0
            for state in (SessionState.LOST, SessionState.CONNECTED):
                for listener in tuple(self.listeners):
                    listener(state)
        return found


@pytest.fixture
def settings() -> Any:
    return SimpleNamespace(node_id=1, zookeeper_session_timeout_ms=6000)


async def test_a_session_that_ends_while_the_broker_registers_is_noticed(settings: Any) -> None:
    zookeeper: Any = ShortSession()
    membership = Membership(settings, zookeeper, ManualClock())
    await membership.register(REGISTRATION)
    try:
        await eventually(lambda: zookeeper.owner == 2 and membership.broker_epoch == 2)
    finally:
        await membership._loops.stop()
