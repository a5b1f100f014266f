"""A broker's registration in a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient

from broker.settings.config import BrokerSettings
from broker.settings.loading import load_broker_settings
from broker.site.membership import Membership
from runtime.clock import SystemClock
from runtime.process import OperationalFailure
from runtime.zookeeper.client import ZooKeeper, until_answered
from runtime.zookeeper.sessions import SessionState
from tests.support.eventually import eventually
from tests.support.processes.zookeeper import ZooKeeperProcess
from wire.znodes.broker_znodes import BrokerEndpoint, BrokerRegistration, decode_broker
from wire.znodes.cluster_znodes import ControllerRegistration, encode_controller

pytestmark = pytest.mark.integration

SESSION_MS = 10_000
"""Longer than this machine stands still: no session ends that a test does not end."""

REGISTRATION = BrokerRegistration(
    node_id=7, endpoints=(BrokerEndpoint(listener="CLIENT", host="h", port=9),), grpc_address="h:10"
)


def settings(connect: str, session_timeout_ms: int = SESSION_MS) -> BrokerSettings:
    return load_broker_settings(
        {
            "node.id": "7",
            "listeners": "CLIENT://127.0.0.1:0",
            "log.dirs": "unused",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
        }
    )


@pytest.fixture
async def zookeeper(zookeeper_connect: str) -> AsyncIterator[ZooKeeper]:
    client = ZooKeeper(zookeeper_connect, session_timeout_ms=SESSION_MS)
    await client.start()
    yield client
    await client.stop()


def membership(connect: str, zookeeper: ZooKeeper, session_timeout_ms: int = SESSION_MS) -> Membership:
    return Membership(settings(connect, session_timeout_ms), zookeeper, SystemClock())


async def test_a_broker_registers_and_leaves(zookeeper_connect: str, zookeeper: ZooKeeper) -> None:
    member = membership(zookeeper_connect, zookeeper)
    await member.register(REGISTRATION)
    data, stat = await zookeeper.get("/brokers/ids/7")
    assert decode_broker(7, data).grpc_address == "h:10"
    assert member.broker_epoch == stat.czxid > 0
    await member.unregister()
    assert await zookeeper.exists("/brokers/ids/7") is None


async def test_a_node_id_of_a_live_broker_is_refused(zookeeper_connect: str, zookeeper: ZooKeeper) -> None:
    await membership(zookeeper_connect, zookeeper).register(REGISTRATION)
    other = ZooKeeper(zookeeper_connect, session_timeout_ms=SESSION_MS)
    await other.start()
    try:
        with pytest.raises(OperationalFailure, match=r"node\.id=7 is taken"):
            await membership(zookeeper_connect, other, session_timeout_ms=500).register(REGISTRATION)
    finally:
        await other.stop()


async def test_a_node_id_that_a_dead_session_left_is_waited_for(zookeeper_connect: str, zookeeper: ZooKeeper) -> None:
    dead = ZooKeeper(zookeeper_connect, session_timeout_ms=SESSION_MS)
    await dead.start()
    await membership(zookeeper_connect, dead).register(REGISTRATION)
    registering = membership(zookeeper_connect, zookeeper).register(REGISTRATION)
    waiting = asyncio.create_task(registering)
    await eventually(lambda: zookeeper._client._data_watchers)
    assert not waiting.done()
    await dead.stop()
    await waiting


async def test_the_first_broker_makes_the_cluster_id_and_others_agree(
    zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    member = membership(zookeeper_connect, zookeeper)
    made = await member.cluster_id(known=None)
    assert await member.cluster_id(known=None) == made
    assert await member.cluster_id(known=made) == made
    with pytest.raises(OperationalFailure, match="belongs to cluster other"):
        await member.cluster_id(known="other")


async def test_an_expired_session_registers_again_with_a_new_broker_epoch(
    zookeeper_connect: str, zookeeper: ZooKeeper
) -> None:
    member = membership(zookeeper_connect, zookeeper)
    await member.register(REGISTRATION)
    first = member.broker_epoch
    # A second connection to the same session that closes it ends the session for both.
    kazoo = zookeeper._client
    double = KazooClient(zookeeper_connect, client_id=kazoo.client_id, timeout=2)
    double.start(timeout=30)
    double.stop()
    double.close()
    await eventually(lambda: member.broker_epoch > first)
    stat = await zookeeper.exists("/brokers/ids/7")
    assert stat is not None
    assert stat.czxid == member.broker_epoch
    assert (member.session_changes[SessionState.LOST], member.session_changes[SessionState.CONNECTED]) == (1, 1)


async def test_the_active_controllers_address_is_looked_up(zookeeper_connect: str, zookeeper: ZooKeeper) -> None:
    member = membership(zookeeper_connect, zookeeper)
    assert await member.controller_address() == ""
    registered = ControllerRegistration(controller_id=7, timestamp_ms=1, grpc_address="h:11")
    await zookeeper.create("/controller", encode_controller(registered), is_ephemeral=True)
    assert await member.controller_address() == "h:11"


class Interrupted(ZooKeeper):
    """A connection whose server is killed with one request unanswered, and started again at
    once.
    """

    def __init__(self, server: ZooKeeperProcess, connect: str, step: int) -> None:
        super().__init__(connect, session_timeout_ms=2000)
        self._server = server
        self._step = step
        self._is_paused = False
        self.requests = 0

    def before_request(self) -> None:
        self.requests += 1
        if self.requests == self._step:
            self._is_paused = True
            self._server.process.pause()

    async def _finish(self, pending: Any) -> Any:
        if self._is_paused:
            self._is_paused = False
            await asyncio.to_thread(self._server.kill)
            await asyncio.to_thread(self._server.restart)
        self.before_request()
        return await super()._finish(pending)


@pytest.mark.long
async def test_a_broker_comes_up_though_zookeeper_is_killed_at_any_step_of_its_start(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    step = 0
    while True:
        step += 1
        connect = own_zookeeper.new_chroot("start")
        zookeeper = Interrupted(own_zookeeper, connect, step)
        await zookeeper.start()
        zookeeper.before_request()
        member = membership(connect, zookeeper)
        try:
            known = await member.cluster_id(known=None)
            assert await member.cluster_id(known=known) == known
            await member.configs.follow(lambda *_: None)
            await member.register(REGISTRATION)
            requests = zookeeper.requests
            await eventually(partial(until_answered, member.is_registered))
        finally:
            await member.unregister()
            await zookeeper.stop()
        if requests <= step:
            break
    assert step > 8
