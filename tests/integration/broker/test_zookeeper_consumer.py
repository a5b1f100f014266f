"""The classic high-level consumer on a real ZooKeeper and a real broker (rows HC-, RB-, FT-, OF-).

Promised: in a stable group every partition has one owner, and its node names the owner. A rebalance
that is interrupted after any step is completed by the next attempt. A killed member is replaced
when its session expires. With auto commit, a transfer of a partition between two live members
repeats and loses no record.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from clients.classic.classic_settings import ZooKeeperConsumerOptions
from clients.classic.core.classic_group import UnequalSubscriptions
from clients.classic.offset_stores import OffsetsRefused
from clients.classic.streams import ConsumerTimeout
from clients.classic.zookeeper_consumer import STEPS, RebalanceFailed, StreamsExist, ZooKeeperConsumer
from clients.reader.core.positions import ResetPolicy
from clients.reader.reader_options import ReaderOptions
from runtime.zookeeper.client import ZooKeeper
from tests.support.clients.classic_consumers import WITHIN_MS, Read, Site, member, owners
from tests.support.eventually import eventually
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy
from tests.support.processes.zookeeper import ZooKeeperProcess, expire_session
from tests.support.sites.site_node import SiteNode
from wire.client.client_errors import broker_error
from wire.client.raw_client import KafkaClient
from wire.znodes.consumer_znodes import (
    WHITE_LIST,
    ConsumerRegistration,
    decode_registration,
    encode_registration,
    id_path,
    ids_path,
    offset_path,
    owner_path,
    owners_path,
)

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[3]
SHORT = {"session_timeout_ms": 4000}


@pytest.fixture(scope="module")
def site(
    session_processes: Processes, zookeeper_server: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """One for the module."""
    connect = zookeeper_server.new_chroot("consumers")
    node = SiteNode(session_processes, tmp_path_factory.mktemp("classic"), connect, 1001)
    node.wait_ready()
    yield Site(node, connect)
    node.process.kill()


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


@pytest.mark.parametrize("step", STEPS)
async def test_a_rebalance_interrupted_after_any_step_is_made_up_for(site: Site, step: str) -> None:
    topic = await site.new_topic(2)
    await site.produce(topic, 0, 40, 2)
    group = f"g-{topic}"
    interrupted = []

    async def interrupt_once(name: str) -> None:
        if name == step and interrupted == ["armed"]:
            interrupted.append(name)
            raise RuntimeError(f"interrupted after {name}")

    async with member(site.connect, group, interrupt_once) as consumer:
        read = Read(*await consumer.create_streams({topic: 1}))
        await read.has(10)
        interrupted.append("armed")
        attempts = consumer.attempts
        await consumer.rebalance()
        assert consumer.attempts == attempts + 2
        assert set(await owners(site.connect, group, topic)) == {0, 1}
        await site.produce(topic, 40, 60, 2)
        await read.has(60)
        assert sorted(read.values) == list(range(60))


async def test_members_come_and_go_and_every_partition_has_one_owner(site: Site) -> None:
    topic = await site.new_topic(3)
    group = f"g-{topic}"
    consumers: list[ZooKeeperConsumer] = []
    overlaps: list[str] = []

    async def look(name: str) -> None:
        reading = Counter(place for each in consumers for place in each.reading)
        overlaps.extend(f"{place} at {name}" for place, count in reading.items() if count > 1)

    def shares() -> list[int]:
        return sorted((len(each.owned) for each in consumers), reverse=True)

    async with contextlib.AsyncExitStack() as stack:
        for expected in ([3], [2, 1], [1, 1, 1], [1, 1, 1, 0]):
            consumer = await stack.enter_async_context(member(site.connect, group, look))
            consumers.append(consumer)
            await consumer.create_streams({topic: 1})
            await eventually(lambda expected=expected: shares() == expected, WITHIN_MS)

            async def is_named() -> bool:  # each owner is noted after it has taken over
                owned = {index: thread for each in consumers for (_, index), thread in each.owned.items()}
                return await owners(site.connect, group, topic) == owned

            await eventually(is_named, WITHIN_MS)
        async with KafkaClient(site.node.bootstrap) as client:
            await client.grow_topic(topic, 4)
        await eventually(lambda: shares() == [1, 1, 1, 1], WITHIN_MS)
    assert overlaps == []


async def test_a_joining_member_causes_no_duplicate_and_no_loss(site: Site) -> None:
    topic = await site.new_topic(4)
    group = f"g-{topic}"
    await site.produce(topic, 0, 400, 4)
    async with member(site.connect, group, queued_chunks_max=1) as one:
        first = Read(*await one.create_streams({topic: 1}))
        await first.has(50)
        async with member(site.connect, group) as other:
            second = Read(*await other.create_streams({topic: 1}))
            await site.produce(topic, 400, 800, 4)
            await eventually(lambda: len(first.values) + len(second.values) >= 800, WITHIN_MS)
            assert sorted(first.values + second.values) == list(range(800))
            assert second.values


async def test_a_killed_member_is_replaced_when_its_session_is_over(site: Site) -> None:
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    await site.produce(topic, 0, 10, 2)
    arguments = ["--zookeeper", site.connect, "--group", group, "--from-beginning", "--session-timeout-ms", "4000"]
    line = [sys.executable, "-m", "cli.main", "consume", topic, *arguments]
    process = await asyncio.create_subprocess_exec(
        *line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=REPOSITORY
    )
    assert process.stdout is not None
    for _ in range(10):
        await process.stdout.readline()
    async with member(site.connect, group) as survivor:
        read = Read(*await survivor.create_streams({topic: 1}))
        await eventually(lambda: len(survivor.owned) == 1, WITHIN_MS)
        process.kill()
        await process.wait()
        await eventually(lambda: len(survivor.owned) == 2, WITHIN_MS)
        await site.produce(topic, 10, 20, 2)
        await eventually(lambda: set(read.values) >= set(range(10, 20)), WITHIN_MS)


async def test_an_expired_session_is_begun_anew(site: Site) -> None:
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    await site.produce(topic, 0, 10, 2)
    async with member(site.connect, group) as consumer:
        read = Read(*await consumer.create_streams({topic: 1}))
        await read.has(10)
        await consumer.commit()
        before = consumer.rebalances
        await expire_session(consumer._zookeeper, site.connect)
        await eventually(lambda: consumer.rebalances > before, WITHIN_MS)
        await eventually(lambda: len(consumer.owned) == 2, WITHIN_MS)
        await site.produce(topic, 10, 20, 2)
        await read.has(20)
        assert sorted(read.values) == list(range(20))


async def test_a_member_that_does_not_hear_zookeeper_stops_before_its_session_is_over(
    site: Site, toxiproxy: Toxiproxy
) -> None:
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    address, _, path = site.connect.partition("/")
    proxy = toxiproxy.create("zookeeper", address)
    async with member(f"{proxy.address}/{path}", group, **SHORT) as cut_off, member(site.connect, group) as other:
        read = Read(*await cut_off.create_streams({topic: 1}))
        await other.create_streams({topic: 1})
        await eventually(lambda: (len(cut_off.owned), len(other.owned)) == (1, 1), WITHIN_MS)
        with proxy.cut_off():
            await eventually(lambda: len(other.owned) == 2, WITHIN_MS)
            assert cut_off.reading == []
        await eventually(lambda: (len(cut_off.owned), len(other.owned)) == (1, 1), WITHIN_MS)
        others_read = Read(*other.streams)
        await site.produce(topic, 0, 10, 2)
        await eventually(lambda: sorted(read.values + others_read.values) == list(range(10)), WITHIN_MS)


async def test_no_other_member_reads_a_partition_that_a_member_in_a_black_hole_still_reads(
    site: Site, toxiproxy: Toxiproxy
) -> None:
    """RB-06: the member gets no notice of its disconnection; no connection ends."""
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    address, _, path = site.connect.partition("/")
    proxy = toxiproxy.create("black-hole", address)
    async with member(f"{proxy.address}/{path}", group, **SHORT) as cut_off, member(site.connect, group) as other:
        await cut_off.create_streams({topic: 1})
        await other.create_streams({topic: 1})
        await eventually(lambda: (len(cut_off.reading), len(other.reading)) == (1, 1), WITHIN_MS)
        both = []

        def other_reads_all() -> bool:
            if len(other.reading) == 2:
                both.extend(cut_off.reading)
            return len(other.reading) == 2

        toxics = [proxy.add("timeout", stream=stream, timeout=0) for stream in ("upstream", "downstream")]
        try:
            await eventually(other_reads_all, WITHIN_MS)
        finally:
            for toxic in toxics:
                proxy.remove(toxic)
        assert both == []
        await eventually(lambda: (len(cut_off.reading), len(other.reading)) == (1, 1), WITHIN_MS)


async def test_a_member_that_cannot_rebalance_leaves_its_partitions_to_the_others(site: Site) -> None:
    """RB-08."""
    topic = await site.new_topic(2)
    await site.produce(topic, 0, 10, 2)
    group = f"g-{topic}"
    failing = False

    async def fail(name: str) -> None:
        if failing and name == "fetch offsets":
            raise RuntimeError("the application does not want to")

    async with (
        member(site.connect, group, fail, rebalance_attempts_max=2) as broken,
        member(site.connect, group) as other,
    ):
        read = Read(*await broken.create_streams({topic: 1}))
        await read.has(10)
        failing = True
        others_read = Read(*await other.create_streams({topic: 1}))
        await eventually(lambda: len(other.reading) == 2, WITHIN_MS)
        assert isinstance(broken.failure, RebalanceFailed)
        await site.produce(topic, 10, 20, 2)
        await others_read.has(10)
        assert sorted(others_read.values) == list(range(10, 20))


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
async def test_members_that_cannot_take_part_are_refused_and_the_others_go_on(site: Site, strategy: str) -> None:
    topic, second = await site.new_topic(2), await site.new_topic(1)
    group = f"g-{topic}"
    bad_filter = ConsumerRegistration(subscription={"(": 1}, pattern=WHITE_LIST)
    async with member(site.connect, group, strategy=strategy) as sound, member(site.connect, group) as bad:
        read = Read(*await sound.create_streams({topic: 1}))
        with pytest.raises(ValueError, match="not a regular expression"):
            await bad.create_streams({"(": 1}, pattern=WHITE_LIST)
        rebalances = sound.rebalances
        for name, registration in (("a-regex", encode_registration(bad_filter)), ("a-scribble", b"nonsense")):
            await bad._zookeeper.create(id_path(group, name), registration, is_ephemeral=True)
        await eventually(lambda: sound.rebalances > rebalances, WITHIN_MS)
        if strategy == "roundrobin":
            async with member(site.connect, group, strategy=strategy) as greedy:
                with pytest.raises(UnequalSubscriptions, match="who was first"):
                    await greedy.create_streams({topic: 1, second: 1})
        await site.produce(topic, 0, 10, 2)
        await read.has(10)
        # somebody went a moment ago: it may be in the middle of a rebalance
        await eventually(lambda: len(sound.reading) == 2, WITHIN_MS)
        assert sound.failure is None


async def test_a_partition_that_another_member_keeps_fails_the_rebalance_and_leaves_nothing_behind(site: Site) -> None:
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    squatter = ZooKeeper(site.connect)
    await squatter.start()
    await squatter.ensure_path(owners_path(group, topic))
    await squatter.create(owner_path(group, topic, 1), b"squatter-0", is_ephemeral=True)
    try:
        async with member(site.connect, group, rebalance_attempts_max=4) as consumer:
            with pytest.raises(RebalanceFailed, match=r"4 attempts: .*-1 is still owned"):
                await consumer.create_streams({topic: 1})
            assert consumer.attempts == 4
            assert await owners(site.connect, group, topic) == {1: "squatter-0"}
    finally:
        await squatter.stop()


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


async def test_offsets_that_did_not_move_are_not_written_and_those_taken_but_not_worked_on_are(site: Site) -> None:
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
async def test_a_commit_is_tried_again_while_that_may_help_and_so_many_times(
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


class Hooks:
    """Notes what it is told, and fails once when asked to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[tuple[str, int]]]] = []
        self.is_failing = False

    async def before_releasing(self, places: Mapping[tuple[str, int], str]) -> None:
        self.calls.append(("before releasing", sorted(places)))
        if self.is_failing:
            self.is_failing = False
            raise RuntimeError("the application is not done")

    async def before_starting(self, consumer: str, owners: Mapping[tuple[str, int], str]) -> None:
        self.calls.append(("before starting", sorted(owners)))


async def test_hooks_come_before_releasing_and_before_starting_and_may_fail_an_attempt(site: Site) -> None:
    topic = await site.new_topic(2)
    await site.produce(topic, 0, 10, 2)
    both = [(topic, 0), (topic, 1)]
    hooks = Hooks()
    async with member(site.connect, f"g-{topic}", listener=hooks) as consumer:
        (stream,) = await consumer.create_streams({topic: 1})
        assert hooks.calls == [("before releasing", []), ("before starting", both)]
        hooks.calls.clear()
        hooks.is_failing = True
        await consumer.rebalance()
        assert hooks.calls == [("before releasing", both)] * 2 + [("before starting", both)]
        found = 0
        async for chunk in stream.chunks():
            found += chunk.record_count
            if found == 10:
                break
        assert sum(consumer.positions().values()) == 10


async def test_a_filter_shares_its_streams_and_finds_topics_that_come_later(site: Site) -> None:
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


async def test_a_stream_that_is_not_read_stops_its_fetcher_and_times_out_when_nothing_comes(site: Site) -> None:
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


async def test_a_consumer_that_was_there_before_any_broker_begins_when_one_comes(
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


async def test_twenty_joins_cost_far_fewer_rebalances(site: Site) -> None:
    """All but the first come while the rebalance for that one is under way, however quick it is."""
    topic = await site.new_topic(1)
    group = f"g-{topic}"
    may_go_on, held = asyncio.Event(), []
    may_go_on.set()

    async def hold(name: str) -> None:
        if name == "read group" and not may_go_on.is_set():
            held.append(name)
            await may_go_on.wait()

    async with member(site.connect, group, hold) as consumer:
        await consumer.create_streams({topic: 1})
        before = consumer.rebalances
        may_go_on.clear()
        others = ZooKeeper(site.connect)
        await others.start()
        payload, _ = await others.get(id_path(group, consumer.consumer_id))
        for number in range(20):
            await others.create(f"{ids_path(group)}/zz-{number}", payload, is_ephemeral=True)
            await eventually(lambda: held, WITHIN_MS)
        may_go_on.set()
        await eventually(lambda: consumer.rebalances >= before + 2, WITHIN_MS)
        await others.stop()
        await eventually(lambda: list(consumer.owned) == [(topic, 0)], WITHIN_MS)
        assert consumer.rebalances < 20
