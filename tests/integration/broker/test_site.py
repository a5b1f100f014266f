"""A broker with the site's real controller and a real ZooKeeper: topics come, are found, and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.config import load_broker_settings
from broker.main import Broker
from broker.membership import Membership
from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from runtime.clock import SystemClock
from runtime.configuration import load_settings
from runtime.grpc_server import GrpcServer
from runtime.metrics import new_registry
from runtime.zookeeper import ZooKeeper
from tests.support.eventually import eventually
from tests.support.kafka_clients import Record, aiokafka_consume, librdkafka_produce

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]


class Site:
    """ZooKeeper, controller and broker of one site in this process."""

    def __init__(self, connect: str, directory: Path) -> None:
        self._properties = {
            "node.id": "1",
            "listeners": "CLIENT://127.0.0.1:0",
            "log.dirs": str(directory),
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "2000",
            "antipode.site.name": "a",
            "antipode.site.number": "0",
            "offsets.topic.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
        }

    async def start(self) -> None:
        settings = load_broker_settings(self._properties)
        self.zookeeper = ZooKeeper(settings.zookeeper_connect, session_timeout_ms=settings.zookeeper_session_timeout_ms)
        await self.zookeeper.start()
        self.server = GrpcServer("127.0.0.1", 0)
        registry = new_registry()
        self.membership = Membership(settings, self.zookeeper, SystemClock())
        self.broker = Broker(settings, self.server, self.membership)
        self.candidate = ControllerCandidate(
            load_settings(ControllerSettings, self._properties), grpc_server=self.server, registry=registry
        )
        port = await self.server.start()
        await self.candidate.start(grpc_address=f"127.0.0.1:{port}")
        await self.broker.start(grpc_port=port)
        await asyncio.wait_for(self.broker.ready.wait(), 20)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.ports['CLIENT']}"

    async def stop(self) -> None:
        await self.broker.stop()
        await self.candidate.stop()
        await self.server.stop()
        await self.zookeeper.stop()


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[Site]:
    running = Site(zookeeper_connect, tmp_path / "log")
    await running.start()
    yield running
    await running.stop()


RECORDS = [Record(value=b"v%d" % number, partition=0) for number in range(200)]


async def test_an_auto_created_topic_takes_records_and_gives_them_back(site: Site) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "new", RECORDS)
    received = await aiokafka_consume(site.bootstrap, "new", len(RECORDS))
    assert [record.value for record in received] == [record.value for record in RECORDS]


async def test_a_group_resumes_where_it_committed(site: Site) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[:100])
    first = await aiokafka_consume(site.bootstrap, "t", 100, group="g")
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[100:])
    second = await aiokafka_consume(site.bootstrap, "t", 100, group="g")
    assert [record.offset for record in first + second] == list(range(200))


async def test_a_restarted_broker_goes_on_under_a_later_leader_epoch(site: Site) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[:50])
    await site.stop()
    await site.start()
    placed = await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[50:60])
    assert [place.offset for place in placed] == list(range(50, 60))


async def test_a_broker_that_lost_its_session_registers_again_and_goes_on(site: Site) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[:10])
    before = site.membership.broker_epoch
    await site.zookeeper.delete("/brokers/ids/1")
    await site.membership._register_again()
    assert site.membership.broker_epoch > before
    await eventually(lambda: site.broker._cluster.image.brokers.get(1) is not None)
    placed = await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[10:20])
    assert [place.offset for place in placed] == list(range(10, 20))


async def test_a_deleted_topic_is_gone_from_disk_and_may_come_again(site: Site, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": site.bootstrap})

    def delete_and_create() -> None:
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(15)
        admin.delete_topics(["t"])["t"].result(15)
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result(15)

    await asyncio.to_thread(delete_and_create)
    names = {path.name for path in (tmp_path / "log").iterdir()}
    assert {"t-0", "t-1", "t-2"} <= names
    assert any(name.endswith("-delete") for name in names)
