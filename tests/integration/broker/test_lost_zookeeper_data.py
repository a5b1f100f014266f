"""ZooKeeper's data is lost, or another ZooKeeper is named: brokers keep the logs that they have."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.sessions import SessionState
from tests.support.clients.kafka_clients import Record, aiokafka_consume, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.site_broker import SiteBroker
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import encode_cluster_id
from wire.znodes.topic_znodes import decode_topic, encode_topic

pytestmark = pytest.mark.integration

RECORDS = [Record(value=b"v%d" % number, partition=0) for number in range(50)]


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[SiteBroker]:
    running = SiteBroker(
        zookeeper_connect, tmp_path / "log", antipode_cluster_id="given", log_segment_delete_delay_ms="0"
    )
    await running.start()
    await asyncio.to_thread(librdkafka_produce, running.bootstrap, "t", RECORDS)
    yield running
    await running.stop()


def aside(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "log").iterdir() if path.name.startswith("t-0.")]


async def test_a_start_at_an_empty_zookeeper_sets_the_logs_aside(
    site: SiteBroker, zookeeper_server: ZooKeeperProcess, tmp_path: Path
) -> None:
    wanted, empty = site._properties["zookeeper.connect"], zookeeper_server.new_chroot("empty")
    await site.stop()
    size = sum(path.stat().st_size for path in (tmp_path / "log" / "t-0").iterdir())
    site._properties["zookeeper.connect"] = empty
    await site.start()
    await eventually(lambda: not (tmp_path / "log" / "t-0").exists())
    await site.broker.storage.logs.remove_due()
    (folder,) = aside(tmp_path)
    assert folder.name.endswith("-stray")
    assert sum(path.stat().st_size for path in folder.iterdir()) == size
    # the documented way back: the former data, and the former names
    await site.stop()
    shutil.move(folder, tmp_path / "log" / "t-0")
    site._properties["zookeeper.connect"] = wanted
    await site.start()
    received = await aiokafka_consume(site.bootstrap, "t", len(RECORDS))
    assert [record.value for record in received] == [record.value for record in RECORDS]


async def test_a_running_controller_does_nothing_in_a_zookeeper_that_is_emptied_or_of_another_cluster(
    site: SiteBroker, tmp_path: Path
) -> None:
    for name in await site.zookeeper.children("/"):
        await site.zookeeper.delete(f"/{name}", recursive=True)
    site.membership._on_session(SessionState.CONNECTED)
    await eventually(lambda: site.candidate.active is None)
    await site.zookeeper.create(znodes.CLUSTER_ID, encode_cluster_id("other"), make_path=True)
    received = await aiokafka_consume(site.bootstrap, "t", len(RECORDS))
    assert [record.value for record in received] == [record.value for record in RECORDS]
    assert await site.zookeeper.get_or_none(znodes.CONTROLLER) is None
    assert (tmp_path / "log" / "t-0").exists()
    # with its own id it acts again; the topic is lost in ZooKeeper, but not on the disk
    await site.zookeeper.set(znodes.CLUSTER_ID, encode_cluster_id("given"))
    await eventually(lambda: not (tmp_path / "log" / "t-0").exists())
    assert [folder.name.endswith("-stray") for folder in aside(tmp_path)] == [True]


async def test_a_zookeeper_with_older_data_makes_no_broker_delete_a_log_that_came_later(
    site: SiteBroker, zookeeper_connect: str, tmp_path: Path
) -> None:
    """The older data assigns the partition to another broker: a reassignment came later. It names
    the removal from this broker, which registered after that. The removal of the other partition
    came while the broker was away.
    """
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "moved", RECORDS)
    registered = site.membership.broker_epoch
    await site.stop()
    zookeeper = ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    _, brokers = await zookeeper.children_and_stat(znodes.BROKER_IDS)
    assert brokers.children_zxid > registered
    for topic, removed_at in (("t", registered - 1), ("moved", brokers.children_zxid)):
        path = znodes.topic_path(topic)
        stored = decode_topic(topic, (await zookeeper.get(path))[0])
        moved = replace(stored, partitions={0: (7,)}, removed_while_away={0: {1: removed_at}})
        await zookeeper.set(path, encode_topic(moved))
        await zookeeper.delete(znodes.partition_state_path(topic, 0))
    await zookeeper.stop()
    await site.start()
    await eventually(lambda: not (tmp_path / "log" / "t-0").exists())
    await eventually(lambda: not (tmp_path / "log" / "moved-0").exists())
    await site.broker.storage.logs.remove_due()
    assert [folder.name.endswith("-stray") for folder in aside(tmp_path)] == [True]
    assert not list((tmp_path / "log").glob("moved-0.*-stray"))


async def test_a_start_deletes_only_logs_of_topics_that_were_deleted(
    site: SiteBroker, zookeeper_connect: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "deleted", RECORDS)
    await site.stop()
    zookeeper = ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    await zookeeper.delete(znodes.topic_path("t"), recursive=True)  # as a backup from before the topic
    await zookeeper.create(znodes.delete_topic_path("deleted"))
    await zookeeper.stop()
    await site.start()
    await eventually(lambda: any(path.name.endswith("-stray") for path in aside(tmp_path)))
    await eventually(lambda: not (tmp_path / "log" / "deleted-0").exists())

    async def is_only_the_unknown_one_left() -> bool:
        # a folder is due some moments after it got its other name
        await site.broker.storage.logs.remove_due()
        return [path.name[:4] for path in (tmp_path / "log").iterdir() if path.is_dir()] == ["t-0."]

    await eventually(is_only_the_unknown_one_left)
