"""Records of a range as Parquet files. Promised: a few files are open at a time, however many days
the records have, and a restore reads each record once in the order of the log.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.archiving import range_files
from spark_jobs.archiving.core.archive_plan import Piece
from spark_jobs.archiving.local_directory import LocalDirectory
from spark_jobs.archiving.range_files import DAYS_OPEN_MAX, RecordWriter, rows_in
from spark_jobs.archiving.record_restore import records_in
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.logs.core.splits import Split
from wire.batches.record_batch import iterate_headers
from wire.batches.records import Record, encode_batch

DAY_MS = 86_400_000
DAYS = 3 * DAYS_OPEN_MAX
RECORDS = 500
PIECE = Piece("id", Split(site="", topic="t", partition=0, first_offset=0, until_offset=RECORDS, is_first=True), False)


class CountingDirectory(LocalDirectory):
    """Notes how many files are open at a time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written: list[Any] = []
        self.open_max = 0

    def open_writer(self, path: str) -> Any:
        self.written.append(super().open_writer(path))
        self.open_max = max(self.open_max, sum(not file.closed for file in self.written))
        return self.written[-1]


@pytest.fixture
def directory(tmp_path: Path) -> CountingDirectory:
    return CountingDirectory(tmp_path)


def writer_of_many_days(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> RecordWriter:
    """A writer of a range in which each batch has records of another day."""
    monkeypatch.setattr(range_files, "ROWS_BUFFERED", 1)
    writer, chance = RecordWriter(store, PIECE), random.Random(1)
    for offset in range(RECORDS):
        record = Record(key=None, value=b"%d" % offset, timestamp_ms=chance.randrange(DAYS) * DAY_MS)
        data = memoryview(encode_batch([record], base_offset=offset))
        ((_, header),) = iterate_headers(data)
        writer.add(header, data)
    return writer


def test_records_of_many_days_have_few_open_files_and_are_read_once_in_order(
    directory: CountingDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArchiveStore(directory, "here")
    files = writer_of_many_days(store, monkeypatch).finish("0-0-500")
    paths = [file.path for file in files]
    assert directory.open_max <= DAYS_OPEN_MAX < DAYS
    assert len(set(paths)) == len(paths) > DAYS
    assert sorted(directory.sizes("")) == sorted(paths)
    assert rows_in(store, paths) == RECORDS
    assert [(one.offset, one.value) for one in records_in(store, paths)] == [(n, b"%d" % n) for n in range(RECORDS)]


def test_a_discarded_range_leaves_no_file(directory: CountingDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    writer_of_many_days(ArchiveStore(directory, "here"), monkeypatch).discard()
    assert directory.sizes("") == {}
