"""A consumer in a group: assignments, listeners that fail, heartbeats, commits by polls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from clients.consumer.consumer import Consumer
from clients.consumer.consumer_options import ConsumerOptions
from clients.consumer.core.group_protocol import Subscription, decode_assignment, encode_subscription
from clients.consumer.membership import Membership
from clients.reader.core.positions import ResetPolicy
from clients.reader.reader_options import ReaderOptions
from tests.support.clients.consumer_reads import FROM_0, P0, consuming, read, read_on
from tests.support.clients.scripted_cluster import FETCH, ScriptedCluster
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_membership import Joined
from wire.client.requests.group_requests import CommittedOffset, Committer
from wire.protocol.byte_reader import Malformed
from wire.protocol.ids import PartitionKey


class SilentClient:
    """A client whose brokers never answer."""

    cluster = None

    def learn(self, _: Any) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Does nothing."""

    def __getattr__(self, name: str) -> Any:
        async def never(*_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

        return never


class FailingListener:
    """An application whose database is away when partitions are taken from it."""

    async def revoked(self, places: frozenset[PartitionKey]) -> None:
        raise RuntimeError(f"{len(places)} partitions cannot be given back")

    async def assigned(self, places: frozenset[PartitionKey]) -> None:
        """Does nothing."""

    async def lost(self, places: frozenset[PartitionKey]) -> None:
        """Does nothing."""


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_member_whose_application_fails_to_give_back_reads_no_more_and_joins_again(
    *, is_cancelled: bool
) -> None:
    """NC-05."""
    options = ConsumerOptions(group_id="g", is_auto_commit=False, close_timeout_ms=10)
    consumer = Consumer(SilentClient, options)  # type: ignore[arg-type]
    listener = FailingListener()
    consumer.subscribe(["t"], listener)
    consumer._generations.membership = object()  # type: ignore[assignment]
    consumer.reader.readings.begin(P0, FROM_0)
    consumer._generations.needs_join = True
    if is_cancelled:
        listener.revoked = SilentClient().revoked  # type: ignore[method-assign]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await consumer.poll(60_000)
    else:
        with pytest.raises(RuntimeError, match="1 partitions cannot be given back"):
            await consumer.poll(0)
    assert consumer.assignment == frozenset()
    assert consumer._generations.joining is not None
    assert not consumer._generations.joining.done()
    await _end(consumer)


async def _end(consumer: Consumer) -> None:
    await consumer._loops.stop()
    assert consumer._generations.joining is not None
    consumer._generations.joining.cancel()
    await asyncio.wait([consumer._generations.joining])


class ScriptedMember:
    """A group whose only member is the consumer; `moods` are the errors of its joins and
    heartbeats.
    """

    def __init__(self, **moods: list[BaseException]) -> None:
        self.moods = moods
        self.options = SimpleNamespace(group_id="g")
        self.joins = 0
        self.parts: Mapping[str, bytes] = {}

    async def join(self, _: object, assign: Any) -> Membership:
        self.joins += 1
        for mood in self._next("join"):
            raise mood
        members = {"m-1": encode_subscription(Subscription(topics=("t",))), "odd": b"\x00"}
        joined = Joined(1, "m-1", "m-1", members, "range")
        self.parts = await assign(joined)
        return Membership(joined=joined, assignment=self.parts["m-1"], asked_at_ms=0)

    async def stay(self, *_: object) -> None:
        for mood in self._next("stay"):
            raise mood
        await asyncio.Event().wait()

    def _next(self, where: str) -> list[BaseException]:
        return [self.moods[where].pop()] if self.moods.get(where) else []

    async def leave(self) -> None:
        """Ends without a request to a coordinator."""


@asynccontextmanager
async def grouped(
    cluster: ScriptedCluster, member: ScriptedMember, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Consumer]:
    async def committed(*_: object) -> dict[PartitionKey, Any]:
        return {}

    policy = ResetPolicy.EARLIEST
    async with consuming(cluster, policy, group_id="g", assignors=("range",), retry_backoff_ms=5) as consumer:
        monkeypatch.setattr(consumer._generations, "_member", member)
        monkeypatch.setattr(consumer._group_client, "committed", committed)
        yield consumer


async def test_a_member_whose_subscription_is_malformed_gets_nothing_and_the_others_their_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = ScriptedMember()
    async with ScriptedCluster() as cluster, grouped(cluster, member, monkeypatch) as consumer:
        cluster.fill(0, 3)
        consumer.subscribe(["t"])
        assert await read(consumer, 3) == [0, 1, 2]
        assert not decode_assignment(member.parts["odd"])


async def test_a_failed_join_is_reported_and_the_next_polls_join_again(monkeypatch: pytest.MonkeyPatch) -> None:
    member = ScriptedMember(join=[Malformed("an assignment that no client can decode")])
    async with ScriptedCluster() as cluster, grouped(cluster, member, monkeypatch) as consumer:
        cluster.fill(0, 3)
        consumer.subscribe(["t"])
        with pytest.raises(Malformed):
            await consumer.poll(10_000)
        assert await read(consumer, 3) == [0, 1, 2]


async def test_a_member_whose_heartbeats_break_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    member = ScriptedMember(stay=[KeyError("a defect")])
    async with ScriptedCluster() as cluster, grouped(cluster, member, monkeypatch) as consumer:
        consumer.subscribe(["t"])
        reading = asyncio.create_task(read_on(consumer, []))
        await eventually(lambda: member.joins == 2)
        reading.cancel()
        await asyncio.wait([reading])


async def test_offsets_are_committed_by_polls_alone_and_by_the_first_one_after_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NC-06."""
    commits: list[int] = []

    async def commit(
        _: str, offsets: Mapping[PartitionKey, CommittedOffset], __: Committer
    ) -> dict[PartitionKey, ErrorCode]:
        commits.append(offsets[P0].offset)
        return {P0: ErrorCode.none}

    clock = ManualClock()
    reader = ReaderOptions(policy=ResetPolicy.FAIL, max_wait_ms=20, leader_backoff_ms=5)
    options = ConsumerOptions(group_id="g", auto_commit_interval_ms=5000, reader=reader)
    async with ScriptedCluster() as cluster:
        cluster.fill(0, 3)
        async with Consumer(lambda: KafkaClient(cluster.bootstrap), options, clock) as consumer:
            monkeypatch.setattr(consumer._group_client, "commit", commit)
            consumer.assign({P0: FROM_0})
            assert await read(consumer, 3) == [0, 1, 2]
            clock.advance(4999)
            await consumer.poll(0)
            assert not consumer.pending_commits
            clock.advance(60_000)
            fetches = cluster.count(FETCH)
            await eventually(lambda: cluster.count(FETCH) > fetches + 3)
            assert not commits
            await consumer.poll(0)
            await eventually(lambda: commits == [3])
            await consumer.poll(0)
            assert commits == [3]
            assert not consumer.pending_commits
