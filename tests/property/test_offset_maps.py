"""The offset map against a naive twin: every record written down, one by one."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mirror.translate.core.offset_map import CHUNK_RUNS, OffsetMap, Run

Steps = list[tuple[int, int, int]]

# Gap at the source, gap at the target, records: one step of mirroring.
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), max_size=60)


def built(steps: Steps) -> tuple[OffsetMap, list[tuple[int, int]], int, int]:
    """The map, its twin (pairs of offsets), and both ends."""
    offset_map, pairs = OffsetMap(), []
    source = target = 0
    for source_gap, target_gap, count in steps:
        source, target = source + source_gap, target + target_gap
        offset_map.append(source, target, count)
        pairs += [(source + index, target + index) for index in range(count)]
        source, target = source + count, target + count
    return offset_map, pairs, source, target


@given(STEPS)
def test_translation_is_exact_both_ways(steps: Steps) -> None:
    offset_map, pairs, source_end, target_end = built(steps)
    for offset in range(source_end + 3):
        expected = next((target for source, target in pairs if source >= offset), target_end)
        assert offset_map.downstream(offset, end=target_end) == expected
    for offset in range(target_end + 3):
        expected = next((source for source, target in pairs if target >= offset), source_end)
        assert offset_map.upstream(offset, end=source_end) == expected


@given(STEPS)
def test_there_and_back_never_passes_a_record(steps: Steps) -> None:
    offset_map, pairs, source_end, target_end = built(steps)
    for source, target in pairs:
        assert offset_map.upstream(offset_map.downstream(source, end=target_end), end=source_end) == source
        assert offset_map.downstream(offset_map.upstream(target, end=source_end), end=target_end) == target


@given(STEPS)
def test_runs_are_as_few_as_can_be(steps: Steps) -> None:
    offset_map, pairs, _, _ = built(steps)
    breaks = sum(
        (later[0] - earlier[0], later[1] - earlier[1]) != (1, 1) for earlier, later in itertools.pairwise(pairs)
    )
    assert len(offset_map) == (breaks + 1 if pairs else 0)


@given(STEPS, st.data())
def test_records_that_the_target_lost_are_not_in_the_map(steps: Steps, data: st.DataObject) -> None:
    offset_map, pairs, _, target_end = built(steps)
    cut = data.draw(st.integers(0, target_end))
    offset_map.target_truncated_at(cut)
    kept = [pair for pair in pairs if pair[1] < cut]
    found = [
        (run.source_offset + index, run.target_offset + index)
        for run in offset_map
        for index in range(run.record_count)
    ]
    assert found == kept


@given(st.integers(0, 5 * CHUNK_RUNS), st.integers(0, 12 * CHUNK_RUNS))
def test_a_trimmed_map_translates_what_both_logs_still_have(runs: int, start: int) -> None:
    offset_map = OffsetMap()
    for number in range(runs):
        offset_map.append(2 * number, 3 * number, 1)
    whole = list(offset_map)
    before = offset_map.last_chunk
    gone = offset_map.trim(source_start=start, target_start=start)
    assert offset_map.last_chunk == before
    kept = list(offset_map)
    assert kept == whole[len(whole) - len(kept) :]
    assert all(run.source_end <= start for run in whole[: len(whole) - len(kept)])
    chunks = [(number, offset_map.chunk(number)) for number in range(gone.stop, before + 1)]
    assert list(OffsetMap.from_chunks(chunks)) == kept


@given(st.integers(1, 4 * CHUNK_RUNS))
def test_stored_chunks_make_the_same_map_and_it_goes_on(runs: int) -> None:
    offset_map = OffsetMap()
    for number in range(runs):
        offset_map.append(2 * number, number, 1)
    chunks = [(number, offset_map.chunk(number)) for number in range(offset_map.last_chunk + 1)]
    again = OffsetMap.from_chunks(list(reversed(chunks)))
    assert list(again) == list(offset_map)
    again.append(2 * runs, runs, 7)
    assert again.last == Run(2 * runs, runs, 7)
    assert again.last_chunk == runs // CHUNK_RUNS
