"""Streams of the classic high-level consumer: settings, filters, bounded queues, timeouts."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from clients.classic.classic_settings import ZooKeeperConsumerOptions
from clients.classic.streams import ConsumerTimeout
from clients.classic.zookeeper_consumer import StreamsExist, ZooKeeperConsumer
from clients.reader.core.positions import ResetPolicy
from clients.reader.reader_options import ReaderOptions
from runtime.zookeeper.client import ZooKeeper
from tests.support.clients.classic_consumers import Read, Site, member, owners
from tests.support.eventually import eventually
from tests.support.processes.processes import Processes
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.site_node import SiteNode
from wire.znodes.consumer_znodes import (
    WHITE_LIST,
    decode_registration,
    id_path,
)

pytestmark = pytest.mark.integration


async def test_two_settings_suffice_to_read_a_whole_topic(site: Site) -> None:
    topic = await site.new_topic(3)
    await site.produce(topic, 0, 90, 3)
    zookeeper = ZooKeeper(site.connect)
    await zookeeper.start()
    reader = ReaderOptions(policy=ResetPolicy.EARLIEST)
    async with ZooKeeperConsumer(zookeeper, ZooKeeperConsumerOptions(group_id="g-all", reader=reader)) as consumer:
        streams = await consumer.create_streams({topic: 4})
        read = Read(*streams)
        await read.has(90)
        assert sorted(read.values) == list(range(90))
        path = id_path("g-all", consumer.consumer_id)
        data, stat = await zookeeper.get(path)
        registration = decode_registration(path, data)
        assert (registration.subscription, registration.pattern) == ({topic: 4}, "static")
        assert stat.ephemeral_owner == zookeeper.session_id
        claimed = await owners(site.connect, "g-all", topic)
        assert claimed == {index: f"{consumer.consumer_id}-{index}" for index in range(3)}
        with pytest.raises(StreamsExist):
            await consumer.create_streams({topic: 1})


async def test_a_filter_shares_its_streams_and_finds_topics_created_later(site: Site) -> None:
    prefix = f"w{uuid.uuid4().hex[:6]}"
    one = await site.new_topic(2, prefix)
    async with member(site.connect, prefix, auto_commit_interval_ms=100) as consumer:
        streams = await consumer.create_streams({f"{prefix}-.*": 2}, pattern=WHITE_LIST)
        assert len(streams) == 2
        read = Read(*streams)
        other = await site.new_topic(2, prefix)
        await site.produce(one, 0, 10, 2)
        await site.produce(other, 10, 20, 2)
        await read.has(20)
        assert sorted(read.values) == list(range(20))
        assert {topic for topic, _ in consumer.owned} == {one, other}


async def test_an_unread_stream_stops_its_fetcher_and_a_stream_without_records_times_out(site: Site) -> None:
    topic = await site.new_topic(1)
    reader = ReaderOptions(policy=ResetPolicy.EARLIEST, max_wait_ms=50, partition_bytes=200)
    for first in range(0, 40, 10):
        await site.produce(topic, first, first + 10, 1)
    options: dict[str, Any] = {"queued_chunks_max": 2, "reader": reader}
    async with member(site.connect, f"g-{topic}", **options) as consumer:
        (stream,) = await consumer.create_streams({topic: 1})
        await eventually(lambda: stream.queued_chunks == 2)
        records = stream.records()
        found = [int((await anext(records))[1].value or b"") for _ in range(40)]
        assert found == list(range(40))
        await records.aclose()
    async with member(site.connect, f"g-{topic}", consumer_timeout_ms=300, **options) as consumer:
        (stream,) = await consumer.create_streams({topic: 1})
        with pytest.raises(ConsumerTimeout):
            await anext(stream.records())
        await site.produce(topic, 40, 41, 1)
        await eventually(lambda: stream.queued_chunks == 1)
        assert int((await anext(stream.records()))[1].value or b"") == 40


async def test_a_consumer_that_starts_before_any_broker_reads_when_one_has_started(
    zookeeper_server: ZooKeeperProcess, processes: Processes, tmp_path: Path
) -> None:
    connect = zookeeper_server.new_chroot("consumers")
    async with member(connect, "early") as consumer:
        (stream,) = await consumer.create_streams({"t.*": 1}, pattern=WHITE_LIST)
        node = SiteNode(processes, tmp_path, connect, 1001)
        await asyncio.to_thread(node.wait_ready)
        late = Site(node, connect)
        topic = await late.new_topic(1)
        await late.produce(topic, 0, 5, 1)
        read = Read(stream)
        await read.has(5)
        node.process.kill()
        await asyncio.to_thread(node.restart)
        await late.produce(topic, 5, 10, 1)
        await read.has(10)
        assert read.values == list(range(10))
