"""Requests with acks=all that wait for followers: each partition gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from kio.schema.errors import ErrorCode

from broker.handlers.records.waiting_produce import WaitingProduce
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.core.wake_ups import Change, DelayedOperation
from broker.replication.hosted_partition import HostedPartition
from broker.replication.purgatory import Purgatory
from runtime.clock import SystemClock
from wire.protocol.messages.produce_codec import (
    API_KEY,
    PartitionProduced,
    TopicProduced,
    parse_produce_response,
)
from wire.protocol.streams.frames import RequestHeader

VERSION = 9
OFFSET = 5
"""The high watermark that every partition of the request waits for."""


@dataclass
class Fate:
    """A partition as a waiting request sees it."""

    high_watermark: int = 0
    is_leader: bool = True
    led_since_epoch: int = 1
    has_enough_in_sync: bool = True


class Asked:
    """A client's request, and its answer."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[list[tuple[int, int]]] = asyncio.get_running_loop().create_future()
        self.connection = SimpleNamespace(listener="CLIENT")
        self.header = RequestHeader(API_KEY, VERSION, 1, None, 0)

    def reserve_slot(self, on_close: Callable[[], None]) -> None:
        self.on_close = on_close

    def throttle_time_ms(self, _bandwidth_ms: float) -> int:
        return 0

    def resume(self, answering: Callable[[], None]) -> None:
        answering()

    def count_errors(self, codes: Iterable[int]) -> None:
        self.errors = [code for code in codes if code]

    def reply_body(self, parts: list[bytes], *, body_size: int) -> None:
        response = parse_produce_response(b"".join(parts), 0, VERSION)
        (topic,) = response.topics
        self.answered.set_result([(found.error_code, found.base_offset) for found in topic.partitions])


async def waiting(fates: list[Fate], *, timeout_ms: float) -> tuple[Purgatory, Asked]:
    """A request that has appended to a partition for each fate."""
    purgatory, asked = Purgatory(SystemClock()), Asked()
    doors = SimpleNamespace(
        replicas=SimpleNamespace(purgatory=purgatory),
        cluster=Cluster(ClusterImage(node_id=1, site="a")),
        quotas=SimpleNamespace(produce=SimpleNamespace(is_in_use=False)),
    )
    missing = {
        ("t", index): (cast("HostedPartition", SimpleNamespace(state=fate)), OFFSET) for index, fate in enumerate(fates)
    }
    placed = [PartitionProduced(index, base_offset=OFFSET - 1) for index in range(len(fates))]
    request: Any = WaitingProduce(
        cast("Any", doors), cast("Any", asked), [TopicProduced("t", None, placed)], dict(missing)
    )
    request.begin(timeout_ms)
    return purgatory, asked


async def test_each_partition_is_answered_for_itself() -> None:
    copied, shrunk, moved, moved_and_back, slow = fates = [Fate() for _ in range(5)]
    purgatory, asked = await waiting(fates, timeout_ms=200)
    copied.high_watermark = OFFSET
    shrunk.high_watermark, shrunk.has_enough_in_sync = OFFSET, False
    moved.is_leader = False
    moved_and_back.led_since_epoch, moved_and_back.high_watermark = 3, OFFSET
    slow.high_watermark = OFFSET - 1
    for index in range(len(fates)):
        purgatory.changed(("t", index), Change.HIGH_WATERMARK)
    assert await asyncio.wait_for(asked.answered, 30) == [
        (ErrorCode.none, OFFSET - 1),
        (ErrorCode.not_enough_replicas_after_append, -1),
        (ErrorCode.not_leader_or_follower, -1),
        (ErrorCode.not_leader_or_follower, -1),
        (ErrorCode.request_timed_out, -1),
    ]
    purgatory.close()


async def test_a_request_whose_client_is_gone_waits_no_longer() -> None:
    purgatory, asked = await waiting([Fate(), Fate()], timeout_ms=3_600_000)
    assert purgatory.count(DelayedOperation.PRODUCE) == 1
    asked.on_close()
    assert purgatory.count(DelayedOperation.PRODUCE) == 0
    purgatory.close()


async def test_a_request_is_answered_with_its_last_partition() -> None:
    fates = [Fate(), Fate()]
    purgatory, asked = await waiting(fates, timeout_ms=3_600_000)
    for index, fate in enumerate(fates):
        assert not asked.answered.done()
        fate.high_watermark = OFFSET
        purgatory.changed(("t", index), Change.HIGH_WATERMARK)
        await asyncio.sleep(0)
    assert await asyncio.wait_for(asked.answered, 30) == [(ErrorCode.none, OFFSET - 1)] * 2
    purgatory.close()
