"""Batches that digests found different are opened: the records that differ are named, and nothing
outside of the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from spark_jobs.logs.core.splits import Split
from spark_jobs.logs.log_reader import StoredBatch
from spark_jobs.reconciling import process_rows
from spark_jobs.reconciling.opened_ranges import DifferingRange, OpenedRanges, open_ranges
from spark_jobs.reconciling.request import Request
from tests.support.disks.log_batches import batch
from wire.batches.record_batch import read_header

Logs = dict[str, Sequence[tuple[bytes, bool]]]


def opened(
    monkeypatch: pytest.MonkeyPatch, logs: Logs, *ranges: tuple[int, int], offsets_max: int = 100
) -> OpenedRanges:
    """The result for ranges of partition 0, of batches with whether their checksum fits."""

    def read_splits(
        bootstrap: str, splits: Sequence[Split], *, answer_bytes: int
    ) -> Iterator[tuple[Split, StoredBatch]]:
        for split in splits:
            for data, is_crc_valid in logs[bootstrap]:
                header = read_header(data)
                if header.last_offset >= split.first_offset and header.base_offset < split.until_offset:
                    yield split, StoredBatch(header, is_crc_valid, header.base_offset, memoryview(data))

    monkeypatch.setattr(process_rows, "read_splits", read_splits)
    request = Request(
        source_site="a",
        target_site="b",
        source_bootstrap="a:1",
        target_bootstrap="b:1",
        process_offsets_max=offsets_max,
    )
    return open_ranges(request, [DifferingRange("t", 0, *one) for one in ranges])


def named(found: OpenedRanges) -> list[tuple[str, int, int, str]]:
    return [(one.kind.value, one.first_offset, one.last_offset, one.site) for one in found.findings]


def test_the_records_that_differ_are_named_and_none_outside_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    logs: Logs = {
        "a:1": [(batch((b"0", b"1", b"2", b"3")), True)],
        "b:1": [(batch((b"0", b"1")), True), (batch((b"2", b"x"), base_offset=2), True)],
    }
    assert named(opened(monkeypatch, logs, (2, 3))) == [("diverged", 3, 3, "")]


def test_equal_records_in_other_batches_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    logs: Logs = {
        "a:1": [(batch((b"0", b"1")), True)],
        "b:1": [(batch((b"0",)), True), (batch((b"1",), base_offset=1), True)],
    }
    found = opened(monkeypatch, logs, (0, 0), (1, 1))
    assert named(found) == []
    assert [(one.kind.value, one.first_offset, one.last_offset) for one in found.explanations] == [("rebatched", 0, 1)]


def test_a_checksum_that_does_not_fit_is_damage_although_the_records_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    logs: Logs = {"a:1": [(batch((b"0", b"1")), True)], "b:1": [(batch((b"0", b"1")), False)]}
    found = opened(monkeypatch, logs, (0, 1))
    assert named(found) == [("corrupt", 0, 1, "b")]
    assert found.explanations == ()


def test_ranges_beyond_the_bound_are_listed_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    logs: Logs = {
        "a:1": [(batch((b"0", b"1")), True), (batch((b"2", b"3"), base_offset=2), True)],
        "b:1": [(batch((b"0", b"1")), True), (batch((b"2", b"x"), base_offset=2), True)],
    }
    found = opened(monkeypatch, logs, (0, 0), (2, 3), offsets_max=2)
    assert (named(found), found.not_opened) == ([], (DifferingRange("t", 0, 2, 3),))
