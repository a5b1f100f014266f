"""A site agent's host stops all its parts, also when one of them fails to stop."""

from __future__ import annotations

import asyncio

import pytest

from deploy.ports import LOOPBACK
from dr.agent.failover_watch import FailoverWatch
from dr.agent.host import SiteAgentHost
from runtime.grpc_server import GrpcServer
from runtime.zookeeper.client import ZooKeeper
from wire.znodes import layout as znodes

pytestmark = pytest.mark.integration


async def test_a_part_that_fails_to_stop_leaves_no_other_part_running(
    zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper = ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    await zookeeper.ensure_path(znodes.BROKER_IDS)
    await zookeeper.stop()
    server = GrpcServer(LOOPBACK, 0)
    host = SiteAgentHost(site_name="a", zookeeper_connect=zookeeper_connect, grpc_server=server)
    port = await server.start()
    before = asyncio.all_tasks()
    await host.start(f"{LOOPBACK}:{port}")
    own = {task for task in asyncio.all_tasks() - before if not task.done()}
    names = {task.get_name() for task in own}
    assert {"peer watch", "failover watch"} <= names, names

    stop = FailoverWatch.stop

    async def failing(watch: FailoverWatch) -> None:
        await stop(watch)
        raise RuntimeError("the watch does not stop")

    monkeypatch.setattr(FailoverWatch, "stop", failing)
    with pytest.raises(RuntimeError, match="the watch does not stop"):
        await host.stop()
    assert not [task.get_name() for task in own if not task.done()]
    await host.stop()
    await server.stop(0)
