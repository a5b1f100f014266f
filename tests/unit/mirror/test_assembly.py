"""The whole mirror over sites in memory: workers that die, ports that fail, links that turn."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from mirror.admin.service import describe
from mirror.flow.core.flow_events import Start
from mirror.flow.core.flow_state import FlowState
from mirror.link.core.committed_offsets import GroupOffset
from runtime import supervision
from runtime.process import OperationalFailure
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
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


async def test_a_fetcher_that_dies_again_and_again_is_started_again() -> None:
    world = world_with(batches=30)
    world.before_fetch = every(4, RuntimeError("bug in a fetcher"))
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        assert mirror.restarts["fetcher"] > 0
    assert world.is_prefix()


async def test_a_producer_whose_request_breaks_off_sends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each death costs what is under way, and reports of quiet partitions die too: how many it
    takes is chance, so none may rest long.
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
async def test_refusals_that_pass_cost_nothing_but_time(error: ErrorCode) -> None:
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


async def test_corruption_that_stays_is_a_fault_that_says_where() -> None:
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


async def test_a_gap_halts_and_says_what_is_missing() -> None:
    """M9."""
    world = world_with(partitions=1)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.source.is_up = False
        await eventually(lambda: states(mirror) == {FlowState.SOURCE_UNAVAILABLE})
        expire(world)
        world.source.is_up = True
        await eventually(lambda: states(mirror) == {FlowState.GAP})
        assert (
            "the source's log starts at 72, the mirror ends at 60: 12 offsets" in mirror.board.row(FIRST).facts.reason
        )
        await eventually(lambda: mirror.board.lag(FIRST).records == 18)
        assert world.target.logs[FIRST].end == 60


async def test_a_gap_may_be_skipped_and_recorded() -> None:
    world = world_with(partitions=1)
    async with mirroring(world, **{"antipode.gap.policy": "skip-and-record"}) as mirror:
        await eventually(world.is_equal)
        world.source.is_up = False
        await eventually(lambda: states(mirror) == {FlowState.SOURCE_UNAVAILABLE})
        expire(world)
        world.source.is_up = True
        await eventually(world.is_equal)
        assert mirror.board.row(FIRST).facts.skipped_records == 12


def expire(world: MemoryWorld) -> None:
    """The source goes on, and forgets all but its last two batches."""
    world.source.produce("orders", 0, 6)
    log = world.source.logs[FIRST]
    log.batches = log.batches[-2:]
    log.start = 72


async def test_batches_whose_source_has_expired_do_not_push_aside_those_before_them_that_are_sent_again() -> None:
    """They are all that is left of them: the target refuses the first ones for a moment, and not
    those behind.
    """
    world = world_with(partitions=1, batches=9)
    everything = world.source.logs[FIRST].data
    outcomes = iter((ErrorCode.request_timed_out, None))
    are_all_fetched = False

    def not_before_all_are_fetched() -> ErrorCode | None:
        return next(outcomes, None) if are_all_fetched else ErrorCode.request_timed_out

    world.before_append = not_before_all_are_fetched
    async with mirroring(world) as mirror:
        await eventually(lambda: mirror.queue.used_bytes == len(everything))
        log = world.source.logs[FIRST]
        log.start, log.batches = log.end, []
        world.source.produce("orders", 0)
        await eventually(lambda: mirror.board.row(FIRST).facts.source_log_start_offset == log.start)
        are_all_fetched = True
        await eventually(lambda: mirror.queue.used_bytes == 0)
    assert world.target.logs[FIRST].data == everything + world.source.logs[FIRST].data


async def test_a_source_whose_head_expired_before_the_mirror_began_is_followed_from_its_start() -> None:
    """M7: the target starts where the source starts, also when nothing is left to copy."""
    world = MemoryWorld()
    world.source.add("orders", 2)
    for key, log in world.source.logs.items():
        log.start = 500
        if key.partition:
            world.source.produce("orders", 1, 2)
    async with mirroring(world):
        await eventually(lambda: world.is_equal() and {log.start for log in world.target.logs.values()} == {500})


async def test_a_source_whose_log_starts_inside_a_batch_is_mirrored_from_that_batch_on() -> None:
    """Records may be deleted up to any offset; the batch that they were in stays whole."""
    world = world_with(partitions=1, batches=4)
    source = world.source.logs[FIRST]
    source.start, source.batches = 4, source.batches[1:]
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        assert world.target.logs[FIRST].start == 3
        world.source.produce("orders", 0, 2)
        await eventually(world.is_equal)
        assert states(mirror) == {FlowState.MIRRORING}


async def test_a_history_that_differs_is_a_fault_and_nothing_is_written() -> None:
    world = world_with(partitions=1)
    world.target.add("orders", 1)
    world.target.produce("orders", 0, 3, epoch=0)
    world.target.produce("orders", 0, 1, epoch=4)
    before = world.target.logs[FIRST].data
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
        assert "histories diverge" in mirror.board.row(FIRST).facts.reason
    assert world.target.logs[FIRST].data == before


async def test_a_history_that_differs_under_one_leader_epoch_is_a_fault_and_nothing_is_written() -> None:
    world = world_with(partitions=1, batches=4)
    world.target.add("orders", 1)
    target = world.target.logs[FIRST]
    target.batches = [batch([b"other"] * 3, base_offset=offset) for offset in (0, 3)]
    before = target.data
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
        assert "histories diverge" in mirror.board.row(FIRST).facts.reason
        with capture_logs() as logged:
            generation = mirror.board.row(FIRST).facts.generation
            mirror.board.submit(FIRST, Start("the operator looks again"))
            await eventually(lambda: mirror.board.row(FIRST).facts.generation > generation + 1)
        assert {line["state"] for line in logged if "state" in line} == {"FAULTED"}, (
            "the partition is not shown as mirrored before the target has compared its last batch"
        )
        assert target.data == before
        target.batches = world.source.logs[FIRST].batches[:2]
        mirror.board.submit(FIRST, Start("the copy is restored"))
        await eventually(world.is_equal)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})


async def test_a_source_that_was_restored_while_the_mirror_ran_is_a_fault() -> None:
    """The source comes back with other records at the same offsets under the same leader epoch."""
    world = world_with(partitions=1, batches=4)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        before = world.target.logs[FIRST].data
        world.source.is_up = False
        await eventually(lambda: states(mirror) == {FlowState.SOURCE_UNAVAILABLE})
        source = world.source.logs[FIRST]
        source.batches = source.batches[:3] + [batch([b"other"] * 3, base_offset=offset) for offset in (9, 12)]
        world.source.is_up = True
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
    assert world.target.logs[FIRST].data == before


async def test_a_batch_that_is_compared_again_is_not_counted_again() -> None:
    world = world_with(partitions=1, batches=4)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        mirror.board.submit(FIRST, Start("again"))
        world.source.produce("orders", 0, 1)
        await eventually(world.is_equal)
        await eventually(lambda: mirror.board.row(FIRST).facts.progress.mirrored_records >= 15)
        progress = mirror.board.row(FIRST).facts.progress
        assert (progress.mirrored_records, progress.mirrored_bytes) == (15, len(world.source.logs[FIRST].data))


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


async def test_groups_are_carried_clamped_and_left_alone_while_active_at_the_target() -> None:
    """M3, M4."""
    world = world_with(partitions=2)
    second = TopicPartition("orders", 1)
    world.source.group_offsets["billing"] = {FIRST: GroupOffset(0), second: GroupOffset(999, 3, "mine")}
    world.source.group_offsets["live"] = {FIRST: GroupOffset(6)}
    world.target.group_offsets["live"] = {FIRST: GroupOffset(3)}
    world.target.group_states["live"] = "Stable"
    async with mirroring(world):
        wanted = {FIRST: GroupOffset(0), second: GroupOffset(60, -1, "mine")}
        await eventually(lambda: world.target.group_offsets.get("billing") == wanted)
        world.target.group_states["live"] = "Empty"
        await eventually(lambda: world.target.group_offsets["live"] == {FIRST: GroupOffset(6)})


async def test_however_many_groups_there_are_a_round_is_one_question() -> None:
    world = world_with()
    groups = {f"group-{number}": {FIRST: GroupOffset(number % 7)} for number in range(300)}
    world.source.group_offsets.update(groups)
    async with mirroring(world) as mirror:
        await eventually(lambda: world.target.group_offsets == groups)
        await mirror.stop(drain_timeout_ms=1000)
        rounds = world.source.offset_requests
    assert rounds < len(groups)


async def test_a_group_of_which_the_target_does_not_tell_waits_and_does_not_go_back() -> None:
    """M4."""
    world = world_with()
    world.source.group_offsets |= {"billing": {FIRST: GroupOffset(3)}, "other": {FIRST: GroupOffset(1)}}
    world.target.group_offsets["billing"] = {FIRST: GroupOffset(6)}
    world.target.moving_groups.add("billing")
    async with mirroring(world):
        await eventually(lambda: world.target.group_offsets.get("other") == {FIRST: GroupOffset(1)})
        world.target.moving_groups.clear()
        asked = world.target.offset_requests
        await eventually(lambda: world.target.offset_requests > asked)
        world.source.group_offsets["billing"] = {FIRST: GroupOffset(7)}
        await eventually(lambda: world.target.group_offsets["billing"] == {FIRST: GroupOffset(7)})
    assert [offset for group, _, offset in world.target.commits if group == "billing"] == [7]


async def test_while_the_source_is_fenced_the_target_gets_exactly_what_the_groups_have() -> None:
    """F-f: also an offset that went back while no mirror looked, and one that the target has
    lost.
    """
    world = world_with()
    world.source.group_offsets |= {"rewound": {FIRST: GroupOffset(2)}, "lost": {FIRST: GroupOffset(5)}}
    world.target.group_offsets["rewound"] = {FIRST: GroupOffset(6)}
    async with mirroring(world):
        await eventually(lambda: world.target.group_offsets.get("lost") == {FIRST: GroupOffset(5)})
        assert world.target.group_offsets["rewound"] == {FIRST: GroupOffset(6)}
        del world.target.group_offsets["lost"]
        world.record.is_routed, world.record.phase = True, LinkPhase.FENCED
        await eventually(lambda: world.target.group_offsets == world.source.group_offsets)


async def test_the_target_hears_as_of_when_all_groups_are_carried() -> None:
    world = world_with()
    world.source.group_offsets["billing"] = {FIRST: GroupOffset(3)}
    world.target.moving_groups.add("billing")
    async with mirroring(world):
        await eventually(lambda: world.target.offset_requests > 2)
        assert world.target.synced_at_ms == -1
        world.target.moving_groups.clear()
        await eventually(lambda: world.target.synced_at_ms > 0)
        assert world.target.group_offsets == world.source.group_offsets


async def test_a_stop_with_a_dead_target_says_what_is_left() -> None:
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
async def test_a_question_to_a_site_that_breaks_is_asked_again(
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


async def test_a_producer_whose_request_somebody_cancels_sends_again() -> None:
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
