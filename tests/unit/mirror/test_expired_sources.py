"""The whole mirror over sites in memory: sources whose records expired, or that start inside a
batch.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from mirror.flow.core.flow_state import FlowState
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)


async def test_a_gap_halts_the_partition_and_names_the_missing_offsets() -> None:
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
    """The source continues, and expires all but its last two batches."""
    world.source.produce("orders", 0, 6)
    log = world.source.logs[FIRST]
    log.batches = log.batches[-2:]
    log.start = 72


async def test_expired_batches_do_not_displace_earlier_batches_that_are_sent_again() -> None:
    """The mirror has the only copy of the earlier batches. The target refuses those for a moment,
    and takes the later ones.
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


async def test_a_source_is_mirrored_from_its_present_log_start() -> None:
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
