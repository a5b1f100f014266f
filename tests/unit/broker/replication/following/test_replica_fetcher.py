"""A fetcher continues after every problem: a defect, an unusable answer, a late one, a missing
leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.log.core.leader_epochs import EpochEnd
from broker.log.directories import checkpoints
from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.following.core.follower import OutOfRange
from broker.replication.following.follower_append import resume_in_range
from broker.replication.following.replica_fetcher import ReplicaFetcher
from broker.replication.hosted_partition import HostedPartition
from broker.replication.truncated_records import TruncatedRecords, path_of
from broker.settings.core.topic_configs import LogConfig
from broker.settings.loading import load_broker_settings
from runtime.addresses import HostPort
from runtime.chance import Chance, end_chance, use_chance
from runtime.clock import SystemClock
from runtime.disk import RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, config, fill, open_log
from tests.support.disks.thread_noting_disk import ThreadNotingDisk
from tests.support.eventually import eventually
from tests.support.memory.quiet_replicas import QuietReplicas
from wire.client.client_errors import Unreachable
from wire.client.requests.broker_requests import ListedOffset
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.fetch_codec import FetchResponse, PartitionFetched, TopicFetched

SETTINGS = {
    "node.id": "1",
    "listeners": "CLIENT://:0",
    "log.dirs": "none",
    "zookeeper.connect": "none:1",
    "replica.fetch.backoff.ms": "1",
}
LEADER = 2


def image(leader_epoch: int) -> PartitionImage:
    return PartitionImage(
        index=0, leader=LEADER, leader_epoch=leader_epoch, partition_epoch=0, replicas=(LEADER, 1), isr=(LEADER, 1)
    )


def follower(directory: Path, topic: str) -> HostedPartition:
    log = open_log(directory / topic)
    state = Partition(node_id=1, log_end_offset=0)
    state.change(image(leader_epoch=1), now_ms=0)
    topic_id = topic.encode().ljust(16)
    return HostedPartition(
        topic=topic, topic_id=topic_id, index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )


def answer(hosted: HostedPartition, records: bytes) -> TopicFetched:
    fetched = PartitionFetched(0, high_watermark=1, log_start_offset=0, records=memoryview(records))
    return TopicFetched(hosted.topic, hosted.topic_uuid, [fetched])


@asynccontextmanager
async def following(
    monkeypatch: pytest.MonkeyPatch,
    fetch: Callable[..., Any],
    *followed: HostedPartition,
    cuts: TruncatedRecords | None = None,
) -> AsyncIterator[ReplicaFetcher]:
    """A fetcher of these partitions; `fetch` answers its requests."""

    async def connect(*_: Any) -> Any:
        return SimpleNamespace(is_open=True, close=lambda _: None)

    monkeypatch.setattr("broker.replication.following.source_session.open_connection", connect)
    monkeypatch.setattr("broker.replication.following.source_session.request_fetch", fetch)
    replicas: Any = QuietReplicas(cuts)
    fetcher = ReplicaFetcher(
        LEADER,
        replicas,
        load_broker_settings(SETTINGS),
        SystemClock(),
        find_address=lambda _: HostPort("127.0.0.1", 1),
        broker_epoch=lambda: 1,
        on_lost=lambda _: None,
    )
    try:
        fetcher.follow(followed)
        yield fetcher
    finally:
        await fetcher.stop()


async def no_news() -> FetchResponse:
    await asyncio.sleep(0)
    return FetchResponse((), session_id=1)


async def test_one_partition_that_cannot_be_appended_holds_up_no_other_and_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rotten, sound = follower(tmp_path, "rotten"), follower(tmp_path, "sound")
    good = batch([b"value"], timestamp_ms=NOW_MS, leader_epoch=1)
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    is_healed = False

    async def fetch(_: Any, request: Any) -> FetchResponse:
        wanted = {topic.name: topic.partitions[0].fetch_offset for topic in request.topics}
        if not any(offset == 0 for offset in wanted.values()):
            return await no_news()
        answers = [answer(sound, good)] if wanted.get("sound") == 0 else []
        if wanted.get("rotten") == 0:
            answers.insert(0, answer(rotten, good if is_healed else damaged))
        return FetchResponse(answers, session_id=1)

    async with following(monkeypatch, fetch, rotten, sound) as fetcher:
        await eventually(lambda: sound.log.log_end_offset == 1 and fetcher.failing_count() == 1)
        assert rotten.log.log_end_offset == 0
        is_healed = True
        await eventually(lambda: rotten.log.log_end_offset == 1 and fetcher.failing_count() == 0)
        assert sound.log.log_end_offset == 1


async def test_one_partition_that_cannot_be_cut_where_its_leader_ends_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rotten, sound = follower(tmp_path, "rotten"), follower(tmp_path, "sound")

    def resume(replicas: Any, hosted: HostedPartition, found: OutOfRange, **others: Any) -> None:
        if hosted is rotten:
            raise StorageError("cutting", rotten.log.directory, "a bad disk")
        resume_in_range(replicas, hosted, found, **others)

    async def offsets(_: Any, queries: Any, **__: Any) -> Any:
        return {key: ListedOffset(ErrorCode.none, -1, 7, -1) for key in queries}

    async def fetch(_: Any, request: Any) -> FetchResponse:
        behind = [hosted for hosted in (rotten, sound) if not hosted.log.log_end_offset]
        named = {topic.name for topic in request.topics}
        answers = [
            TopicFetched(hosted.topic, hosted.topic_uuid, [PartitionFetched(0, ErrorCode.offset_out_of_range)])
            for hosted in behind
            if hosted.topic in named
        ]
        return FetchResponse(answers, session_id=1) if answers else await no_news()

    monkeypatch.setattr("broker.replication.following.replica_fetcher.resume_in_range", resume)
    monkeypatch.setattr("broker.replication.following.replica_fetcher.request_offsets", offsets)
    async with following(monkeypatch, fetch, rotten, sound) as fetcher:
        await eventually(lambda: sound.log.log_end_offset == 7 and fetcher.failing_count() == 1)
        assert not fetcher.is_broken
        replicas: Any = fetcher._replicas
        assert replicas.failures


async def test_the_ends_of_a_former_leaders_log_truncate_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosted = follower(tmp_path, "t")
    fill(hosted.log, 20, leader_epoch=1)
    hosted.state.record_append(40)
    has_listed = asyncio.Event()

    async def offsets(_: Any, queries: Any, **__: Any) -> Any:
        # another broker is elected while the former leader looks for its ends
        hosted.state.change(replace(image(leader_epoch=2), leader=3), now_ms=0)
        has_listed.set()
        return {
            key: ListedOffset(ErrorCode.none, -1, 0 if query.timestamp == -2 else 11, -1)
            for key, query in queries.items()
        }

    async def fetch(_: Any, request: Any) -> FetchResponse:
        if not request.topics or has_listed.is_set():
            return await no_news()
        refused = PartitionFetched(0, ErrorCode.offset_out_of_range)
        return FetchResponse([TopicFetched(hosted.topic, hosted.topic_uuid, [refused])], session_id=1)

    monkeypatch.setattr("broker.replication.following.replica_fetcher.request_offsets", offsets)
    async with following(monkeypatch, fetch, hosted) as fetcher:
        await has_listed.wait()
        fetcher.leave(hosted.key)
        await eventually(lambda: fetcher._connection is None)
    assert hosted.log.log_end_offset == 40


async def test_an_answer_that_comes_after_a_change_of_leadership_is_not_appended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosted = follower(tmp_path, "t")
    asked: list[int] = []
    records = {1: b"of the former leader", 2: b"of its successor"}

    async def fetch(_: Any, request: Any) -> FetchResponse:
        if not request.topics:
            return await no_news()
        epoch = request.topics[0].partitions[0].current_leader_epoch
        asked.append(epoch)
        if len(asked) == 1:
            hosted.state.change(image(leader_epoch=2), now_ms=0)
        if hosted.log.log_end_offset:
            return await no_news()
        return FetchResponse([answer(hosted, batch([records[epoch]], timestamp_ms=NOW_MS, leader_epoch=epoch))])

    async with following(monkeypatch, fetch, hosted):
        await eventually(lambda: hosted.log.log_end_offset == 1)
        with hosted.log.read(0, max_bytes=1 << 20) as piece:
            assert records[2] in piece.read_bytes()
        assert asked[:2] == [1, 2]


def diverging(hosted: HostedPartition, end_offset: int) -> FetchResponse:
    fetched = PartitionFetched(0, diverging_epoch=EpochEnd(1, end_offset))
    return FetchResponse([TopicFetched(hosted.topic, hosted.topic_uuid, [fetched])], session_id=1)


def stored_in(path: Path, disk: ThreadNotingDisk) -> tuple[LogStore, HostedPartition]:
    """A follower of 40 records in several segments, all of it flushed and in the checkpoint."""
    logs = LogStore([str(path)], disk, now_ms=lambda: NOW_MS)
    logs.open(node_id=1, cluster_id="c")
    logs.load(lambda _: LogConfig())
    hosted = follower(path / "unused", "t")
    hosted.log = logs.open_or_create("t", 0, topic_id=b"t".ljust(16), config=config(segment_bytes=500))
    fill(hosted.log, 20, leader_epoch=1)
    hosted.log.flush_now()
    logs.directories[0].checkpoint_now()
    hosted.state.record_append(40)
    return logs, hosted


async def test_a_follower_is_truncated_without_holding_the_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = ThreadNotingDisk()
    logs, hosted = stored_in(tmp_path, disk)
    disk.on_loop.clear()

    async def fetch(_: Any, request: Any) -> FetchResponse:
        is_asked = any(topic.partitions[0].fetch_offset == 40 for topic in request.topics)
        return diverging(hosted, 11) if is_asked else await no_news()

    cuts = TruncatedRecords(disk, bytes_max=1 << 20)
    async with following(monkeypatch, fetch, hosted, cuts=cuts):
        await eventually(lambda: hosted.log.log_end_offset == 10 and not hosted.log.removals.needs_settling)
    assert disk.on_loop == []
    recovery_points = f"{tmp_path}/{checkpoints.RECOVERY_POINTS}"
    first_renamed = next(n for n, done in enumerate(disk.in_threads) if done[1].startswith(f"{tmp_path}/t-0/"))
    assert ("rename", f"{recovery_points}.tmp") in disk.in_threads[:first_renamed]
    assert ("fdatasync", path_of(hosted.log)) in disk.in_threads[:first_renamed]
    assert (cuts.total.records, cuts.total.kept_bytes) == (30, cuts.total.bytes)
    assert checkpoints.read_offsets(RealDisk(), recovery_points)[TopicPartition("t", 0)] <= 10
    logs.abandon()


async def test_a_follower_that_becomes_leader_while_its_recovery_point_goes_back_keeps_its_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = ThreadNotingDisk()
    logs, hosted = stored_in(tmp_path, disk)

    async def fetch(_: Any, request: Any) -> FetchResponse:
        return diverging(hosted, 11) if request.topics else await no_news()

    disk.gate.clear()
    written = ("fdatasync", f"{tmp_path}/{checkpoints.RECOVERY_POINTS}.tmp")
    async with following(monkeypatch, fetch, hosted) as fetcher:
        await eventually(lambda: written in disk.in_threads)
        hosted.state.change(replace(image(leader_epoch=2), leader=1), now_ms=0)
        disk.gate.set()
        await fetcher.stop()
    assert (hosted.state.is_leader, hosted.log.log_end_offset) == (True, 40)
    logs.abandon()


async def test_a_leader_that_is_away_is_asked_again_after_a_pause_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosted = follower(tmp_path, "t")
    attempts = 0
    pauses: list[float] = []

    class Longest(Random):
        def uniform(self, _: float, share_max: float) -> float:
            pauses.append(share_max)
            return share_max

    async def fetch(_: Any, request: Any) -> FetchResponse:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise Unreachable("it does not answer", node="node 2")
        if not request.topics or hosted.log.log_end_offset:
            return await no_news()
        return FetchResponse([answer(hosted, batch([b"back"], timestamp_ms=NOW_MS, leader_epoch=1))], session_id=1)

    former = use_chance(Chance(jitter=Longest(), ids=Random()))
    try:
        async with following(monkeypatch, fetch, hosted) as fetcher:
            await eventually(lambda: hosted.log.log_end_offset == 1)
            assert len(pauses) == 3
            assert fetcher.failing_count() == 0
    finally:
        end_chance(former)


async def test_a_defect_is_shown_and_following_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []
    plan = ReplicaFetcher._changes

    def changes(fetcher: ReplicaFetcher) -> Any:
        rounds.append(fetcher.is_broken)
        if len(rounds) < 4:
            raise RuntimeError("a bug")
        return plan(fetcher)

    monkeypatch.setattr(ReplicaFetcher, "_changes", changes)
    replicas: Any = None  # no partition is followed, so no fetch is sent
    fetcher = ReplicaFetcher(
        2,
        replicas,
        load_broker_settings(SETTINGS),
        SystemClock(),
        find_address=lambda _: None,
        broker_epoch=lambda: 1,
        on_lost=lambda _: None,
    )
    try:
        await eventually(lambda: len(rounds) == 4 and not fetcher.is_broken)
        assert rounds == [False, True, True, True]
    finally:
        await fetcher.stop()
