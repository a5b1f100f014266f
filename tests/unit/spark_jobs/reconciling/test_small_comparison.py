"""The comparison in one process on hand-made rows: it has the same findings as Spark in the same
rows (tests/spark/test_comparison.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from spark_jobs.reconciling.core import small_comparison
from spark_jobs.reconciling.core.judging import Run
from spark_jobs.reconciling.core.ranges import RangeKey
from spark_jobs.reconciling.core.small_comparison import RecordRow, content_of
from tests.support.memory import comparison_cases as cases


def record_rows(topics: Mapping[str, Iterable[cases.RecordCase]]) -> list[RecordRow]:
    return [
        RecordRow(
            one.site,
            topic,
            0,
            one.offset,
            0,
            one.key,
            one.value is None,
            content_of(one.key, one.value, *chain.from_iterable(one.headers), *one[5:]),
            one.producer_id if one.is_transactional else -1,
            one.is_control,
        )
        for topic, rows in topics.items()
        for one in rows
    ]


def test_a_digest_does_not_depend_on_order_and_changes_with_a_batch_that_is_there_twice() -> None:
    sums = small_comparison.range_digests(cases.batch_rows(cases.ORDERS), range_offsets=100)
    digests = {one.topic: one.digest for one in sums}
    assert digests["forward"] == digests["backward"] != digests["twice"]
    assert [(one.records, one.bytes, one.batches) for one in sums if one.topic == "twice"] == [(30, 1500, 3)]


def test_an_offset_held_twice_and_a_sequence_appended_twice_are_defects() -> None:
    assert sorted(small_comparison.defects(cases.batch_rows(cases.DEFECTS))) == cases.DEFECTS_FOUND


def test_a_batch_that_is_there_twice_differs_and_neighbours_that_differ_are_one_run() -> None:
    rows = cases.batch_rows(cases.TWINS_AND_NEIGHBOURS)
    wanted = [RangeKey(topic, 0, 0) for topic in cases.TWINS_AND_NEIGHBOURS]
    found = small_comparison.differing_batches(rows, wanted, range_offsets=1_000, source="a")
    assert found == cases.TWINS_AND_NEIGHBOURS_FOUND
    narrow = small_comparison.differing_batches(rows, [RangeKey("neighbours", 0, 700)], range_offsets=100, source="a")
    assert narrow == [Run("neighbours", 0, "only_source", 700, 709)]


def test_records_differ_in_any_field_and_runs_of_them_are_exact() -> None:
    same = [("t", number, b"k%d" % number, b"v") for number in range(10)]
    rows = [RecordRow(site, *one[:1], 0, one[1], 0, one[2], False, one[3]) for site in "ab" for one in same]
    assert small_comparison.differing_records(rows, source="a") == []
    rows[4] = rows[4]._replace(content=b"w")
    rows[5] = rows[5]._replace(leader_epoch=1)
    assert small_comparison.differing_records(rows, source="a") == [
        Run("t", 0, "only_source", 4, 5),
        Run("t", 0, "only_target", 4, 5),
    ]


def test_the_same_bytes_in_another_part_of_a_record_are_another_record() -> None:
    rows = record_rows(cases.RECORDS)
    assert small_comparison.differing_records(rows, source="a") == cases.RECORDS_FOUND


def test_contents_of_other_parts_are_others() -> None:
    parts = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (None, b"abc"), (b"None", b"abc"), ("abc",), (1, 23), (12, 3)]
    assert len({content_of(*one) for one in parts}) == len(parts)


def test_records_that_a_site_compacted_away_are_explained_and_lost_ones_are_not() -> None:
    """R1, R2."""
    rows = record_rows(cases.COMPACTED)
    runs, explained = small_comparison.compacted_differences(rows, source="a", target="b")
    assert (runs, explained) == (cases.COMPACTED_FOUND, cases.COMPACTED_EXPLAINED)
