"""`WaitingRecords` that hold the newest records in memory and the others in a temporary SQLite
database, so that two ends that differ everywhere need disk and not memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from spark_jobs.reconciling.core.waiting_records import MemoryRecords, WaitingRecord

MEMORY_RECORDS_MAX: Final = 100_000
MARKS_MAX: Final = 10_000
CACHE_KIB: Final = 16 * 1024


class SpilledRecords:
    """Records of one end. The database has no name: its file is deleted when it is closed, or when
    the process ends.
    """

    def __init__(self, memory_records_max: int = MEMORY_RECORDS_MAX) -> None:
        self._memory_records_max = memory_records_max
        self._newest = MemoryRecords()
        self._database: sqlite3.Connection | None = None
        self._stored_count = 0
        self._marks: list[tuple[bytes, bytes | None, int]] = []

    def __len__(self) -> int:
        return self._stored_count + len(self._newest)

    def put(self, record: WaitingRecord) -> None:
        """Add a record behind all others."""
        self._newest.put(record)
        if len(self._newest) > self._memory_records_max:
            self._spill()

    def take(self, content: bytes, timestamp_ms: int) -> WaitingRecord | None:
        """Remove the first record with this content and time; the stored ones are older."""
        if self._database is not None and self._stored_count:
            found = self._database.execute(
                "select number, first_offset, content, timestamp_ms, record_key, producer_id, place from waiting "
                "where content = ? and timestamp_ms = ? order by number limit 1",
                (content, timestamp_ms),
            ).fetchone()
            if found is not None:
                self._database.execute("delete from waiting where number = ?", found[:1])
                self._stored_count -= 1
                return WaitingRecord(*found[1:])
        return self._newest.take(content, timestamp_ms)

    def mark(self, content: bytes, key: bytes | None, offset: int) -> None:
        """Mark records by content, and by key those at lower offsets."""
        self._newest.mark(content, key, offset)
        if self._stored_count:
            self._marks.append((content, key, offset))
            if len(self._marks) >= MARKS_MAX:
                self._store_marks()

    def drain(self) -> Iterator[tuple[WaitingRecord, bool, bool]]:
        """Remove all records: the stored ones by offset, then the newest ones by offset."""
        if self._database is not None:
            self._store_marks()
            with closing(self._database) as database:
                self._database, self._stored_count = None, 0
                rows = database.execute(
                    "select first_offset, content, timestamp_ms, record_key, producer_id, place, is_known, "
                    "is_superseded from waiting order by first_offset"
                )
                for *fields, is_known, is_superseded in rows:
                    yield WaitingRecord(*fields), bool(is_known), bool(is_superseded)
        yield from self._newest.drain()

    def _spill(self) -> None:
        if self._database is None:
            self._database = _new_database()
        self._stored_count += len(self._newest)
        self._database.executemany(
            "insert into waiting (first_offset, content, timestamp_ms, record_key, producer_id, place) "
            "values (?, ?, ?, ?, ?, ?)",
            (one for one, _, _ in self._newest.drain()),
        )
        self._newest = MemoryRecords()

    def _store_marks(self) -> None:
        marks, self._marks = self._marks, []
        assert self._database is not None
        self._database.executemany(
            "update waiting set is_known = 1 where content = ?", ((content,) for content, _, _ in marks)
        )
        self._database.executemany(
            "update waiting set is_superseded = 1 where record_key = ? and first_offset < ?",
            ((key, offset) for _, key, offset in marks if key is not None),
        )


_TABLE: Final = """
create table waiting (
    number integer primary key, first_offset integer, content blob, timestamp_ms integer, record_key blob,
    producer_id integer, place integer, is_known integer default 0, is_superseded integer default 0
)
"""


def _new_database() -> sqlite3.Connection:
    # An empty name makes a temporary database, which SQLite keeps in its cache while it fits there.
    database = sqlite3.connect("", isolation_level=None)
    for statement in (
        f"pragma cache_size = -{CACHE_KIB}",
        "pragma journal_mode = off",
        "pragma synchronous = off",
        _TABLE,
        "create index by_content on waiting (content, timestamp_ms)",
        "create index by_key on waiting (record_key) where record_key is not null",
        "begin",
    ):
        database.execute(statement)
    return database
