"""No waiting for past events: leaders that move while the mirror ends, tokens and queue space that
are returned, topics that return.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry

from mirror.flow.core.assignment import NORMAL_RANK
from mirror.flow.core.flow_events import Start
from mirror.flow.core.flow_state import FlowState, Step
from mirror.flow.fetchers import Fetcher
from mirror.flow.throttle import Throttle
from mirror.link.ports import Leader, Unreachable
from mirror.main import MirrorDaemon
from mirror.settings.config import load_config
from mirror.translate.core.transaction_cycle import CycleLimits
from mirror.translate.metrics import TransactionMetrics
from mirror.translate.notes.core.claims import Claim, ClaimName
from mirror.translate.notes.offset_store import OffsetStore
from mirror.translate.transactions import Transactions
from mirror.translate.translations import Translations
from runtime.addresses import HostPort
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.unit.mirror.flow.test_queue import entry
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)


async def test_a_waiting_flow_gets_its_turn_when_an_earlier_fetch_brought_less_than_expected() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, bytes_per_second=1_000)
    assert throttle.wait_for_turn(NORMAL_RANK, 1_000_000)
    waiting = asyncio.create_task(throttle.turn(NORMAL_RANK, 500))
    await asyncio.sleep(0)
    throttle.spend(-1_000_000)
    await asyncio.wait([waiting], timeout=5)
    assert waiting.done()


async def test_an_unused_turn_is_returned() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, bytes_per_second=1_000)
    assert throttle.wait_for_turn(NORMAL_RANK, 2_000)
    waiting = asyncio.create_task(throttle.turn(NORMAL_RANK, 1_000_000))
    await asyncio.sleep(0)
    clock.advance(1_500)
    throttle._grant()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert throttle.wait_for_turn(NORMAL_RANK, 1)


async def test_a_mirror_that_ends_fetches_nothing_from_leaders_that_move() -> None:
    world = world_with(partitions=1, batches=1)
    async with mirroring(world) as mirror:
        await eventually(lambda: world.is_equal() and mirror.queue.used_bytes == 0)
        world.before_append = lambda: ErrorCode.kafka_storage_error
        world.source.produce("orders", 0, 3)
        end = world.source.logs[FIRST].end
        await eventually(lambda: mirror.queue.used_bytes > 0)
        stopping = asyncio.create_task(mirror.stop(drain_timeout_ms=20_000))
        await eventually(lambda: not any(name.startswith("fetcher") for name in mirror._supervisor._tasks))
        world.source.leader = Leader(1002, 1)
        world.source.produce("orders", 0, 3)
        await eventually(lambda: mirror.board.row(FIRST).source == world.source.leader)
        world.before_append = lambda: None
        assert (await stopping).is_complete
        assert world.target.logs[FIRST].end == end
        assert [fetcher.key.node_id for fetcher in mirror.fetchers] == [1001]


async def test_queued_batches_arrive_although_the_targets_leader_moves_while_the_mirror_ends() -> None:
    world = world_with(partitions=1, batches=1)
    async with mirroring(world) as mirror:
        await eventually(lambda: world.is_equal() and mirror.queue.used_bytes == 0)
        world.before_append = lambda: ErrorCode.kafka_storage_error
        world.source.produce("orders", 0, 3)
        await eventually(lambda: mirror.queue.used_bytes > 0)
        stopping = asyncio.create_task(mirror.stop(drain_timeout_ms=5_000))
        await eventually(lambda: not mirror._supervisor._tasks.keys() & {"groups", "stalls"})
        world.target.leader, world.before_append = Leader(2002, 1), lambda: None
        assert (await stopping).is_complete
    assert world.is_equal()


@pytest.mark.parametrize("side", ["source", "target"])
async def test_flows_whose_attempts_are_far_apart_continue_under_another_leader(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    monkeypatch.setattr("mirror.flow.effect_acts.RETRIES_A_SECOND_MAX", 0.001)
    world = world_with(partitions=1, batches=1)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        site = world.source if side == "source" else world.target
        site.is_up = False
        world.source.produce("orders", 0, 3)
        mirror.board.submit(FIRST, Start())
        await eventually(lambda: mirror.board.row(FIRST).facts.step is Step.WAITING)
        site.leader, site.is_up = Leader(site.leader.node_id + 1, site.leader.epoch + 1), True
        await eventually(world.is_equal)


async def test_a_topic_that_comes_back_is_read_although_leaders_moved_while_it_was_away() -> None:
    world = world_with(partitions=1, batches=1)
    world.source.add("kept", 1, number=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        for site in (world.source, world.target):
            site.delete("orders")
        await eventually(lambda: FIRST not in list(mirror.board))
        mirror.fetchers.reassign()
        world.source.add("orders", 1, number=1)
        world.source.produce("orders", 0, 5)
        await eventually(lambda: world.is_equal() and states(mirror) == {FlowState.MIRRORING})


async def test_batches_that_a_fetcher_could_not_queue_are_in_hand_when_it_ends() -> None:
    """Their partition may have another fetcher by then, so its flow must restart."""
    world = world_with(partitions=1, batches=1)
    async with mirroring(world) as mirror:
        await eventually(lambda: world.is_equal() and mirror.queue.used_bytes == 0)
        full = mirror.queue.capacity_bytes
        await mirror.queue.put([(1, entry(full))])
        # out of the lane, which releases what belongs to no partition of the board
        assert mirror.queue.take(1) is not None
        world.source.produce("orders", 0, 1)
        row = mirror.board.row(FIRST)
        fetcher = cast("Fetcher", await eventually(lambda: row.queueing))
        fetcher.assign(frozenset())
        await mirror._supervisor.stop("fetcher")
        assert FIRST in fetcher.let_go()
        mirror.queue.release(full)


async def test_batches_of_a_producer_that_is_replaced_are_freed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flow may start again while the connections of the producer are closed."""
    world = world_with(partitions=1, batches=1)
    async with mirroring(world, **{"num.producers": "1"}) as mirror:
        await eventually(lambda: world.is_equal() and mirror.queue.used_bytes == 0)
        world.before_append = lambda: ErrorCode.kafka_storage_error
        world.source.produce("orders", 0, 3)
        (producer,) = mirror.producers
        await eventually(lambda: producer.batches)
        close, is_closing, may_close = producer.close, asyncio.Event(), asyncio.Event()

        async def held() -> None:
            is_closing.set()
            await may_close.wait()
            await close()

        monkeypatch.setattr(producer, "close", held)
        mirror.producers.replace(FIRST, "a test")
        await eventually(is_closing.is_set)
        mirror.board.submit(FIRST, Start())
        world.before_append = lambda: None
        may_close.set()
        await eventually(world.is_equal)
        await eventually(lambda: mirror.queue.used_bytes == 0)


async def test_a_writer_in_a_transaction_gets_an_error_when_its_end_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    client = KafkaClient((HostPort("127.0.0.1", 1),), ConnectionOptions(client_id="test"))
    store = OffsetStore(client, "a-b", replication_factor=1)
    transactions = Transactions(
        client,
        store,
        link="a-b",
        is_shared=False,
        origin="a",
        limits=CycleLimits(interval_ms=0, hold_max_ms=0, bytes_max=1),
        clock=clock,
        metrics=TransactionMetrics(CollectorRegistry(), link="a-b"),
        timeout_ms=1_000,
        request_timeout_ms=1_000,
    )
    transactions.book = Translations(client, store, clock=clock, transactions=transactions)

    async def opened() -> None:
        transactions._claim = Claim(name=ClaimName("id", 1, 0), mirror="m", slots=None)
        transactions._cycle.open()

    async def cancelled(*_: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(transactions, "_open", opened)
    monkeypatch.setattr(transactions._coordinator, "add", cancelled)
    writing = asyncio.create_task(transactions.write([[(b"key", b"value")]]))
    await asyncio.wait([writing], timeout=5)
    assert writing.done()
    assert isinstance(writing.exception(), Unreachable)
    await transactions.close()
    await client.close()


async def test_a_daemon_whose_opening_is_cancelled_reports_that_it_cannot_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    daemon = MirrorDaemon(load_config({"link.name": "a-b", "site.agents": "127.0.0.1:1"}))
    monkeypatch.setattr(daemon, "_find_ends", cancelled)
    await daemon.start()
    await asyncio.wait([daemon.failed], timeout=5)
    assert daemon.failed.done()
    await daemon.stop()
