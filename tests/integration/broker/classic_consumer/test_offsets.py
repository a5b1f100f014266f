"""Offsets of the classic high-level consumer, in ZooKeeper and at the coordinator (rows OF-)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from clients.classic.offset_stores import OffsetsRefused
from runtime.zookeeper.client import ZooKeeper
from tests.support.clients.classic_consumers import Read, Site, member
from wire.client.client_errors import broker_error
from wire.client.raw_client import KafkaClient
from wire.znodes.consumer_znodes import (
    offset_path,
)

pytestmark = pytest.mark.integration


async def test_a_group_moves_its_offsets_from_zookeeper_into_the_broker(site: Site) -> None:
    topic = await site.new_topic(1)
    group = f"g-{topic}"
    stages: list[tuple[Mapping[str, Any], bool, bool]] = [
        ({}, True, False),
        ({"offsets_storage": "kafka"}, True, True),
        ({"offsets_storage": "kafka", "is_dual_commit": False}, False, True),
    ]
    for number, (options, is_in_zookeeper, is_in_broker) in enumerate(stages, 1):
        await site.produce(topic, number * 10 - 10, number * 10, 1)
        async with member(site.connect, group, **options) as consumer:
            read = Read(*await consumer.create_streams({topic: 1}))
            await read.has(10)
        assert read.values == list(range(number * 10 - 10, number * 10))
        async with KafkaClient(site.node.bootstrap) as client:
            reported = await client.committed(group, [(topic, 0)])
        zookeeper = ZooKeeper(site.connect)
        await zookeeper.start()
        written, _ = await zookeeper.get(offset_path(group, topic, 0))
        await zookeeper.stop()
        assert (int(written) == number * 10) is is_in_zookeeper
        assert (reported[topic, 0].offset == number * 10) is is_in_broker


async def test_a_commit_writes_only_offsets_that_moved(site: Site) -> None:
    topic = await site.new_topic(1)
    group = f"g-{topic}"
    await site.produce(topic, 0, 5, 1)
    async with member(site.connect, group, is_auto_commit=False) as consumer:
        (stream,) = await consumer.create_streams({topic: 1})
        records = stream.records()
        taken = await anext(records)
        await consumer.commit()
        store: Any = consumer._reading.store
        assert store.writes == 1
        await consumer.commit()
        assert store.writes == 1
        await records.aclose()
    async with member(site.connect, group) as consumer:
        read = Read(*await consumer.create_streams({topic: 1}))
        await read.has(4)
    assert int(taken[1].value or b"") == 0
    assert read.values == [1, 2, 3, 4]


class RefusingStore:
    """Takes no offsets the first few times."""

    def __init__(self, refusal: Exception, *, refusals: int) -> None:
        self.attempts = 0
        self._refusal, self._refusals = refusal, refusals

    async def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.attempts += 1
        if self.attempts <= self._refusals:
            raise self._refusal

    async def fetch(self, places: Any) -> dict[tuple[str, int], int]:
        return {}


NOT_THERE = broker_error(ErrorCode.coordinator_not_available)

TOO_LARGE = OffsetsRefused("t-0: offset_metadata_too_large", is_retriable=False)

TOO_FEW = OffsetsRefused("t-0: not_enough_replicas", is_retriable=True)


@pytest.mark.parametrize(
    ("refusal", "refusals", "attempts", "is_kept"),
    [
        pytest.param(NOT_THERE, 2, 3, True, id="a coordinator that comes back"),
        pytest.param(NOT_THERE, 99, 6, False, id="one that does not"),
        pytest.param(TOO_FEW, 2, 3, True, id="replicas that come back"),
        pytest.param(TOO_LARGE, 99, 1, False, id="a refusal for good"),
    ],
)
async def test_a_commit_is_retried_after_retriable_errors_a_bounded_number_of_times(
    site: Site, refusal: Exception, refusals: int, attempts: int, is_kept: bool
) -> None:
    topic = await site.new_topic(1)
    await site.produce(topic, 0, 1, 1)
    async with member(site.connect, f"g-{topic}", is_auto_commit=False, commit_backoff_ms=1) as consumer:
        (stream,) = await consumer.create_streams({topic: 1})
        records = stream.records()
        await anext(records)
        store = RefusingStore(refusal, refusals=refusals)
        consumer._reading.store = store
        with contextlib.nullcontext() if is_kept else pytest.raises(type(refusal)):
            await consumer.commit()
        assert store.attempts == attempts
        await records.aclose()
