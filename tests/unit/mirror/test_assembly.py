"""The whole mirror over sites in memory: workers that die, ports that fail, links that turn."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mirror.admin.service import describe
from mirror.flow.core.flow_state import FlowState
from runtime import supervision
from runtime.process import OperationalFailure
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)


async def test_the_target_becomes_equal_and_the_queue_empty() -> None:
    world = world_with()
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        await eventually(lambda: mirror.queue.used_bytes == 0)
        assert describe(mirror).state == "MIRRORING"


def every(count: int, error: Exception) -> Callable[[], None]:
    calls = iter(range(1, 1_000_000))

    def maybe() -> None:
        if next(calls) % count == 0:
            raise error

    return maybe


async def test_a_fetcher_that_dies_repeatedly_is_restarted() -> None:
    world = world_with(batches=30)
    world.before_fetch = every(4, RuntimeError("bug in a fetcher"))
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        assert mirror.restarts["fetcher"] > 0
    assert world.is_prefix()


async def test_a_producer_whose_request_breaks_off_sends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each death loses the requests in flight, and reports of quiet partitions too. Their number is
    random, so no retry may wait long.
    """
    monkeypatch.setattr(supervision, "RESTART_MAX_MS", supervision.RESTART_INITIAL_MS)
    world = world_with(batches=30)

    def broken() -> ErrorCode | None:
        fail()
        return None

    fail = every(3, RuntimeError("bug in a producer"))
    world.before_append = broken
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        await eventually(lambda: mirror.queue.used_bytes == 0)
        assert mirror.restarts["producer"] > 0


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.offset_out_of_range,
        ErrorCode.corrupt_message,
    ],
)
async def test_temporary_refusals_lose_no_record(error: ErrorCode) -> None:
    world = world_with(batches=12)
    calls = iter(range(1_000_000))
    world.before_append = lambda: error if next(calls) in (1, 2, 5) else None
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})
        await eventually(lambda: mirror.queue.used_bytes == 0)


async def test_a_topic_deleted_at_the_source_is_a_reset_and_one_deleted_at_both_sites_is_forgotten() -> None:
    world = world_with(partitions=1)
    world.source.add("kept", 1, number=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.source.delete("orders")
        await eventually(lambda: mirror.board.row(FIRST).facts.state is FlowState.RESET)
        assert "the source has deleted topic orders; the target keeps its copy" in mirror.board.row(FIRST).facts.reason
        await eventually(lambda: describe(mirror).state == "RESET")
        world.target.delete("orders")
        await eventually(lambda: FIRST not in list(mirror.board))
        await eventually(lambda: describe(mirror).state == "MIRRORING")
        world.source.add("orders", 1, number=3)
        world.source.produce("orders", 0, 5)
        await eventually(lambda: FIRST in list(mirror.board))
        await eventually(world.is_equal)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})


async def test_lasting_corruption_is_a_fault_that_names_the_offset() -> None:
    world = world_with(partitions=1)
    world.before_append = lambda: ErrorCode.corrupt_message
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
        assert "the batches are sound here" in mirror.board.row(FIRST).facts.reason
        await eventually(lambda: mirror.queue.used_bytes == 0)


async def test_abort_on_send_failure_ends_the_daemon() -> None:
    world = world_with(partitions=1)
    world.before_append = lambda: ErrorCode.corrupt_message
    async with mirroring(world, **{"abort.on.send.failure": "true"}) as mirror:
        failure = await mirror.failed
        assert isinstance(failure, OperationalFailure)
        assert "orders-0 is FAULTED" in str(failure)


async def test_sites_that_come_and_go() -> None:
    world = world_with()
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        for site, state in ((world.source, FlowState.SOURCE_UNAVAILABLE), (world.target, FlowState.PREPARING)):
            site.is_up = False
            world.source.produce("orders", 1, 5)
            await eventually(lambda state=state: state in states(mirror))
            site.is_up = True
            await eventually(lambda: world.is_equal() and states(mirror) == {FlowState.MIRRORING})


async def test_lag_is_never_zero_while_the_source_is_silent() -> None:
    world = world_with(partitions=1)
    async with mirroring(world) as mirror:
        await eventually(lambda: world.is_equal() and mirror.board.lag(FIRST).records == 0)
        world.source.is_up = False
        await eventually(lambda: mirror.board.lag(FIRST).records == -1)
        before = await eventually(lambda: mirror.board.lag(FIRST).ms)
        await eventually(lambda: mirror.board.lag(FIRST).ms > before > 0)
        samples = {
            sample.name: sample.value
            for family in mirror.metrics.collect()
            for sample in family.samples
            if sample.labels.get("partition") == "0"
        }
        assert math.isnan(samples["antipode_mirror_lag_records"])
        assert samples["antipode_mirror_lag_seconds"] > 0


async def test_topics_with_other_ids_are_on_the_board_with_their_reason() -> None:
    world = world_with(partitions=2)
    world.target.add("orders", 2, number=9)
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.RESET})
        assert str(world.target.ids["orders"]) in mirror.board.row(FIRST).facts.reason
        world.target.ids["orders"] = world.source.ids["orders"]
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING} and world.is_equal())


async def test_a_turned_link_stops_the_mirror_and_a_link_turned_back_lets_it_go_on() -> None:
    world = world_with(partitions=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.record.active_site, world.record.epoch = "b", 2
        await eventually(lambda: states(mirror) == {FlowState.PROMOTED})
        world.source.produce("orders", 0, 5)
        world.record.active_site, world.record.epoch = "a", 3
        await eventually(lambda: world.is_equal() and states(mirror) == {FlowState.MIRRORING})


async def test_a_stop_with_a_dead_target_reports_undelivered_batches() -> None:
    world = world_with()
    async with mirroring(world) as mirror:
        await eventually(lambda: world.is_equal() and mirror.queue.used_bytes == 0)
        world.target.is_up = False
        world.source.produce("orders", 0, 5)
        await eventually(lambda: mirror.queue.used_bytes > 0)
        result = await mirror.stop(drain_timeout_ms=50)
        assert not result.is_complete
        assert result.left_bytes > 0


@pytest.mark.parametrize("is_seen_gone", [True, False], ids=["seen without it", "made again at once"])
async def test_a_link_that_was_deleted_and_made_again_at_a_lower_epoch_is_mirrored_again(
    is_seen_gone: bool,
) -> None:
    """MM-25."""
    world = world_with(partitions=1)
    world.record.epoch, world.record.updated_at_ms = 5, 1_000
    made_again = LinkRecord()
    made_again.CopyFrom(world.record)
    made_again.epoch, made_again.updated_at_ms = 1, 1_000 if is_seen_gone else 2_000
    stale = LinkRecord()
    stale.CopyFrom(world.record)
    stale.epoch, stale.active_site, stale.updated_at_ms = 4, "b", 500
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.record, before = stale, world.reads
        await eventually(lambda: world.reads > before + 2)
        assert (mirror.link().epoch, states(mirror)) == (5, {FlowState.MIRRORING})
        if is_seen_gone:
            world.is_link_there = False
            await eventually(lambda: states(mirror) == {FlowState.PAUSED})
        world.record, world.is_link_there = made_again, True
        await eventually(lambda: mirror.link().epoch == 1)
        world.source.produce("orders", 0, 3)
        await eventually(lambda: world.is_equal() and states(mirror) == {FlowState.MIRRORING})


@pytest.mark.parametrize("error", [ValueError("a malformed answer"), asyncio.CancelledError()])
@pytest.mark.parametrize("asked", ["target", "source"])
async def test_a_request_to_a_site_is_repeated_after_a_broken_connection(
    asked: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with()
    site = world.target if asked == "target" else world.source
    log_ends, failures = site.log_ends, iter([error])

    async def moody(leaders: Any) -> Any:
        for failure in failures:
            raise failure
        return await log_ends(leaders)

    monkeypatch.setattr(site, "log_ends", moody)
    async with mirroring(world):
        await eventually(world.is_equal)


async def test_a_producer_whose_request_is_cancelled_sends_again() -> None:
    world = world_with()
    cancellations = iter([asyncio.CancelledError()])

    def cancelled() -> ErrorCode | None:
        for cancellation in cancellations:
            raise cancellation
        return None

    world.before_append = cancelled
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        await eventually(lambda: mirror.queue.used_bytes == 0)
