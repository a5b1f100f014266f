"""A broker with the site's real controller and a real ZooKeeper: topics come, are found, and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.main import Broker
from broker.telemetry.gauge_sources import BrokerState
from runtime.zookeeper.sessions import SessionState
from tests.support.clients.kafka_clients import Record, aiokafka_consume, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.sites.site_broker import SiteBroker

pytestmark = pytest.mark.integration


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[SiteBroker]:
    running = SiteBroker(zookeeper_connect, tmp_path / "log")
    await running.start()
    yield running
    await running.stop()


RECORDS = [Record(value=b"v%d" % number, partition=0) for number in range(200)]


async def test_an_auto_created_topic_takes_records_and_gives_them_back(site: SiteBroker) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "new", RECORDS)
    received = await aiokafka_consume(site.bootstrap, "new", len(RECORDS))
    assert [record.value for record in received] == [record.value for record in RECORDS]


async def test_a_group_resumes_where_it_committed(site: SiteBroker) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[:100])
    first = await aiokafka_consume(site.bootstrap, "t", 100, group="g")
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[100:])
    second = await aiokafka_consume(site.bootstrap, "t", 100, group="g")
    assert [record.offset for record in first + second] == list(range(200))


async def test_a_restarted_broker_goes_on_under_a_later_leader_epoch(site: SiteBroker) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[:50])
    await site.stop()
    await site.start()
    placed = await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[50:60])
    assert [place.offset for place in placed] == list(range(50, 60))


async def test_a_broker_that_lost_its_session_registers_again_and_goes_on(site: SiteBroker) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[:10])
    before = site.membership.broker_epoch
    await site.zookeeper.delete("/brokers/ids/1")
    site.membership._on_session(SessionState.CONNECTED)
    await eventually(lambda: site.membership.broker_epoch > before)
    await eventually(lambda: site.broker.cluster.image.brokers.get(1) is not None)
    placed = await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[10:20])
    assert [place.offset for place in placed] == list(range(10, 20))


async def test_a_deleted_topic_is_gone_from_disk_and_may_come_again(site: SiteBroker, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": site.bootstrap})

    def create(partitions: int, **configs: str) -> None:
        admin.create_topics([NewTopic("t", partitions, 1, config=configs)])["t"].result(120)

    def delete() -> None:
        admin.delete_topics(["t"])["t"].result(120)

    def folders() -> set[str]:
        return {path.name for path in (tmp_path / "log").iterdir() if path.is_dir()}

    await asyncio.to_thread(create, 200, **{"file.delete.delay.ms": "0"})
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "t", RECORDS[:10])
    assert len(folders()) == 200
    await asyncio.to_thread(delete)
    await eventually(lambda: not folders())
    await asyncio.to_thread(create, 1)
    await asyncio.to_thread(delete)
    await asyncio.to_thread(create, 3)
    await eventually(lambda: any(name.endswith("-delete") for name in folders()))
    assert {name for name in folders() if not name.endswith("-delete")} == {"t-0", "t-1", "t-2"}


async def test_the_state_metric_goes_through_kafkas_numbers(
    site: SiteBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def note(broker: Broker, state: BrokerState) -> None:
        broker.__dict__["state"] = state
        if hasattr(broker, "metrics") and broker.metrics.gauges:
            (gauge,) = (found for found in broker.metrics.gauges if found.name.endswith("brokerstate"))
            seen.append(gauge.read())

    monkeypatch.setattr(Broker, "state", property(lambda broker: broker.__dict__["state"], note), raising=False)
    await site.stop()
    assert seen == [6, 7, 0]
    (tmp_path / "log" / ".kafka_cleanshutdown").unlink()
    seen.clear()
    await site.start()
    assert seen == [1, 2, 3]
