"""The waves of a run. Promised: whichever wave a run is killed in, the archive has no gap, and the
next run continues behind the finished waves; no offset twice, none missing.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.archiving.core.archive_plan import (
    BYTES_PER_OFFSET_GUESSED,
    ArchivePlan,
    Piece,
    Settlement,
    Stored,
    plan,
)
from spark_jobs.archiving.core.archive_waves import RANGE_COST_BYTES, waves
from spark_jobs.archiving.core.manifest import (
    BATCHES,
    ArchivedRange,
    ArchivedTopic,
    Hole,
    LogId,
    Manifest,
    archived_ends,
    by_log,
    chain_problems,
)
from spark_jobs.logs.core.splits import LogEnds, Split

MIB = 1024 * 1024
TOPIC = ArchivedTopic(name="orders", topic_id="id", partition_count=2, configs={})


def piece(partition: int, first: int, until: int, size_bytes: int) -> Piece:
    split = Split(
        site="", topic="orders", partition=partition, first_offset=first, until_offset=until, is_first=first == 0
    )
    return Piece("id", split, False, size_bytes)


def hole(partition: int) -> Hole:
    return Hole(topic="orders", topic_id="id", partition=partition, first_offset=0, end_offset=1)


def test_a_wave_has_at_most_its_bytes_or_one_range_in_the_order_of_the_plan() -> None:
    pieces = [piece(0, 0, 1, 60 * MIB), piece(0, 1, 2, 40 * MIB), piece(1, 0, 1, MIB), piece(1, 1, 2, 300 * MIB)]
    found = waves(ArchivePlan(pieces=pieces), bytes_max=100 * MIB)
    assert [list(wave.pieces) for wave in found] == [pieces[:2], pieces[2:3], pieces[3:]]
    assert waves(ArchivePlan(), bytes_max=1) == [((), ())]


def test_small_ranges_fill_a_wave_too() -> None:
    small = ArchivePlan(pieces=[piece(0, number, number + 1, 1) for number in range(10)])
    assert [len(wave.pieces) for wave in waves(small, bytes_max=4 * RANGE_COST_BYTES)] == [4, 4, 2]


def test_a_hole_comes_with_the_first_range_behind_it_or_first() -> None:
    planned = ArchivePlan(pieces=[piece(0, 1, 2, MIB), piece(1, 1, 2, MIB)], holes=[hole(1), hole(7)])
    assert [wave.holes for wave in waves(planned, bytes_max=1)] == [(hole(7),), (hole(1),)]


def test_the_size_of_a_range_is_its_share_of_the_log_or_a_guess() -> None:
    ends = {("orders", 0): LogEnds(start_offset=0, end_offset=100), ("orders", 1): LogEnds(end_offset=10)}
    found = plan([TOPIC], ends, {LogId("id", 0): 75}, lost={}, log_bytes={("orders", 0): 1_000}, cores=1)
    assert [one.bytes for one in found.pieces] == [250, 10 * BYTES_PER_OFFSET_GUESSED]


def test_ranges_join_over_waves_and_nothing_behind_damage_is_read() -> None:
    settlement = Settlement()
    first, second = piece(0, 0, 10, MIB), piece(0, 10, 20, MIB)
    assert [one.end_offset for one in settlement.settled([(first, Stored(0, 12, 1, 12))]).ranges] == [12]
    found = settlement.settled([(second, Stored(12, 15, 1, 3, damaged_at=15))])
    assert ([(one.first_offset, one.end_offset) for one in found.ranges], found.holes) == ([(12, 15)], [])
    assert settlement.unharmed([piece(0, 20, 30, MIB), piece(1, 0, 10, MIB)]) == [piece(1, 0, 10, MIB)]


def test_offsets_that_no_batch_has_between_two_waves_are_a_hole_of_the_second_one() -> None:
    settlement = Settlement()
    assert settlement.settled([(piece(0, 0, 10, MIB), Stored())]).holes == []
    found = settlement.settled([(piece(0, 10, 20, MIB), Stored(13, 20, 1, 7))])
    assert [(one.first_offset, one.end_offset) for one in found.holes] == [(0, 13)]


@given(
    logs=st.lists(st.lists(st.integers(1, 3_000), min_size=1, max_size=60), min_size=1, max_size=3),
    offset_bytes=st.sampled_from([1, 10_000, 200_000]),
    wave_bytes=st.integers(1, 2_000 * MIB),
    kills=st.lists(st.integers(0, 6), max_size=6),
)
def test_over_killed_runs_every_offset_is_archived_once(
    logs: list[list[int]], offset_bytes: int, wave_bytes: int, kills: list[int]
) -> None:
    """`logs` are the lengths of each log's batches, `kills` the finished waves of killed runs."""
    topic = ArchivedTopic(name="orders", topic_id="id", partition_count=len(logs), configs={})
    starts = [[sum(lengths[:number]) for number in range(len(lengths) + 1)] for lengths in logs]
    ends = {("orders", number): LogEnds(end_offset=offsets[-1]) for number, offsets in enumerate(starts)}
    sizes = {key: held.end_offset * offset_bytes for key, held in ends.items()}
    manifests: list[Manifest] = []
    for finished in [*kills, None]:
        before = archived_ends(manifests)
        planned = plan([topic], ends, before, lost={}, log_bytes=sizes, cores=2)
        settlement = Settlement()
        for wave in waves(planned, bytes_max=wave_bytes)[:finished]:
            results = [(one, read(one, starts[one.split.partition])) for one in settlement.unharmed(wave.pieces)]
            found = settlement.settled(results)
            assert not found.holes
            assert not found.problems
            manifests.append(manifest(len(manifests) + 1, topic, found.ranges))
            assert chain_problems(manifests) == []
        assert all(end >= before.get(log, 0) for log, end in archived_ends(manifests).items())
    for number, offsets in enumerate(starts):
        ranges = by_log(manifests)[LogId("id", number)]
        assert (ranges[0].first_offset, ranges[-1].end_offset) == (0, offsets[-1])
        assert all(one.end_offset == after.first_offset for one, after in pairwise(ranges))
        assert sum(one.batches for one in ranges) == len(logs[number])


def read(one: Piece, starts: list[int]) -> Stored:
    """What a worker stores of a piece: the batches that begin in it."""
    split = one.split
    found = [
        number for number, start in enumerate(starts[:-1]) if start >= split.first_offset and start < split.until_offset
    ]
    if not found:
        return Stored()
    first, end = starts[found[0]], starts[found[-1] + 1]
    return Stored(first, end, len(found), end - first)


def manifest(number: int, topic: ArchivedTopic, ranges: list[ArchivedRange]) -> Manifest:
    return Manifest(
        number=number,
        format=BATCHES,
        started_at_ms=1,
        cluster_id="c",
        topics=(topic,),
        ranges=tuple(ranges),
        holes=(),
    )
