"""Hand-made batches and records, and the runs that a comparison must find in them: Spark and the
comparison in one process answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from spark_jobs.reconciling.core.judging import Run
from spark_jobs.reconciling.core.small_comparison import BatchRow

Batch = Mapping[str, object]


class RecordCase(NamedTuple):
    """A record of a log; the last four fields are those of its batch."""

    site: str
    offset: int
    key: bytes | None
    value: bytes | None = b"v"
    headers: Sequence[tuple[str, bytes | None]] = ()
    is_control: bool = False
    is_log_append_time: bool = False
    is_transactional: bool = False
    producer_id: int = -1


_PRODUCED: Final = {"site": "a", "producer_id": 4, "base_sequence": 0, "crc": 7}
_TWIN: Final = {"base_offset": 0, "crc": 7}
_FIRST: Final = {"site": "a", "base_offset": 0, "crc": 7}
_SECOND: Final = {"site": "a", "base_offset": 10, "crc": 9}

ORDERS: Final[Mapping[str, Iterable[Batch]]] = {
    "forward": (_FIRST, _SECOND),
    "backward": (_SECOND, _FIRST),
    "twice": (_FIRST, _SECOND, _SECOND),
}

DEFECTS: Final[Mapping[str, Iterable[Batch]]] = {
    "t": (
        {**_PRODUCED, "base_offset": 0},
        {**_PRODUCED, "base_offset": 10},
        {"site": "a", "base_offset": 15, "last_offset": 24},
        {"site": "b", "base_offset": 0, "is_crc_valid": False},
        {"site": "b", "base_offset": 10, "producer_id": 4, "base_sequence": 0, "attributes": 32},
        {"site": "b", "base_offset": 20, "producer_id": 4, "base_sequence": 0, "attributes": 32},
    )
}
DEFECTS_FOUND: Final = [
    Run("t", 0, "corrupt", 0, 9, site="b"),
    Run("t", 0, "overlapping", 15, 19, site="a"),
    Run("t", 0, "repeated", 10, 19, site="a"),
]

TWINS_AND_NEIGHBOURS: Final[Mapping[str, Iterable[Batch]]] = {
    "twins": ({"site": "a", **_TWIN}, {"site": "b", **_TWIN}, {"site": "b", **_TWIN}),
    "neighbours": tuple({"site": "a", "base_offset": offset} for offset in (*range(0, 500, 10), 700)),
}
TWINS_AND_NEIGHBOURS_FOUND: Final = [
    Run("neighbours", 0, "only_source", 0, 499),
    Run("neighbours", 0, "only_source", 700, 709),
    Run("twins", 0, "only_target", 0, 9),
]

RECORDS: Final[Mapping[str, Iterable[RecordCase]]] = {
    "same": (RecordCase("a", 0, None, b"v", ()), RecordCase("b", 0, None, b"v", ())),
    "key or value": (RecordCase("a", 0, b"x", None, ()), RecordCase("b", 0, None, b"x", ())),
    "null or empty": (RecordCase("a", 0, b"k", None, ()), RecordCase("b", 0, b"k", b"", ())),
    "value or header": (RecordCase("a", 0, b"k", b"x", ()), RecordCase("b", 0, b"k", None, (("x", None),))),
    "one header or two": (
        RecordCase("a", 0, b"k", b"v", (("h", b"x"),)),
        RecordCase("b", 0, b"k", b"v", (("h", None), ("x", None))),
    ),
    "who sets the time": (RecordCase("a", 0, b"k"), RecordCase("b", 0, b"k", is_log_append_time=True)),
    "a transaction's": (
        RecordCase("a", 0, b"k", is_transactional=True, producer_id=4),
        RecordCase("b", 0, b"k", producer_id=4),
    ),
    "producer": (RecordCase("a", 0, b"k", producer_id=4), RecordCase("b", 0, b"k", producer_id=5)),
}
"""Records that differ in one thing alone; in some the same bytes are another part of the record at
each site.
"""
RECORDS_FOUND: Final = [
    Run(topic, 0, kind, 0, 0) for topic in sorted(RECORDS.keys() - {"same"}) for kind in ("only_source", "only_target")
]

_COMMIT, _ABORT = b"\0\0\0\1", b"\0\0\0\0"


def _sent(site: str, offset: int, key: bytes, producer_id: int = 4) -> RecordCase:
    return RecordCase(site, offset, key, is_transactional=True, producer_id=producer_id)


def _ended(site: str, offset: int, kind: bytes, producer_id: int = 4) -> RecordCase:
    return RecordCase(site, offset, kind, is_control=True, is_transactional=True, producer_id=producer_id)


COMPACTED: Final[Mapping[str, Iterable[RecordCase]]] = {
    "compacted": (
        RecordCase("a", 0, b"k", b"old", ()),  # b compacted it: it has a newer one
        RecordCase("a", 1, b"gone", None, ()),  # a tombstone that expired at b
        RecordCase("a", 2, b"lost", b"value", ()),  # b has nothing of this key
        RecordCase("a", 3, b"k", b"new", ()),
        RecordCase("b", 3, b"k", b"new", ()),
    ),
    # The source compacted the key away, then its tombstone; a standby does neither.
    "deleted": (
        RecordCase("b", 0, b"k", b"old", ()),
        RecordCase("b", 1, b"k", None, ()),
        RecordCase("b", 2, b"x", b"1", ()),
        RecordCase("a", 2, b"x", b"1", ()),
    ),
    # A tombstone that a site lost while the key lives there.
    "undeleted": (
        RecordCase("a", 0, b"k", b"old", ()),
        RecordCase("a", 1, b"k", None, ()),
        RecordCase("b", 0, b"k", b"old", ()),
    ),
    # The tombstone expired before the mirror copied it: the target has the old value.
    "revived": (
        RecordCase("b", 0, b"k", b"old", ()),
        RecordCase("b", 5, b"k", b"above its tombstone", ()),
        RecordCase("b", 1, b"k", None, ()),
    ),
    # b has the record of the transaction and not its marker; a later one does not explain that.
    "marker lost": (
        *(one for site in "ab" for one in (_sent(site, 0, b"k"), _sent(site, 2, b"l"), _ended(site, 3, _COMMIT))),
        _ended("a", 1, _COMMIT),
    ),
    # b compacted the record of a transaction away, then its marker.
    "marker compacted": (
        _sent("a", 0, b"k"),
        _ended("a", 1, _COMMIT),
        *(one for site in "ab" for one in (_sent(site, 2, b"k", 5), _ended(site, 3, _COMMIT, 5))),
    ),
    # Nothing lies behind the marker at b, and compaction does not reach the end of a log.
    "marker at the end": (RecordCase("a", 0, b"k"), RecordCase("b", 0, b"k"), _ended("a", 1, _COMMIT)),
    # Both sites have a record there: compaction removes records and changes none.
    "replaced": (
        RecordCase("a", 0, b"k", b"1", ()),
        RecordCase("b", 0, b"k", b"2", ()),
        *(RecordCase(site, 1, b"k", b"new", ()) for site in "ab"),
    ),
    # Compaction removes records of aborted transactions, and they replace none.
    "aborted": (
        _sent("a", 1, b"only aborted"),
        *(one for site in "ab" for one in (_sent(site, 2, b"k"), _ended(site, 3, _ABORT))),
        RecordCase("a", 0, b"k"),
    ),
}
COMPACTED_FOUND: Final = [
    Run("aborted", 0, "only_source", 0, 0),
    Run("compacted", 0, "only_source", 2, 2),
    Run("marker at the end", 0, "only_source", 1, 1),
    Run("marker lost", 0, "only_source", 1, 1),
    Run("replaced", 0, "only_source", 0, 0),
    Run("replaced", 0, "only_target", 0, 0),
    Run("revived", 0, "only_target", 5, 5),
    Run("undeleted", 0, "only_source", 1, 1),
]
COMPACTED_EXPLAINED: Final = [
    Run("aborted", 0, "only_source", 1, 1, records=1),
    Run("compacted", 0, "only_source", 0, 1, records=2),
    Run("deleted", 0, "only_target", 0, 1, records=2),
    Run("marker compacted", 0, "only_source", 0, 1, records=2),
    Run("revived", 0, "only_target", 0, 1, records=2),
]


def batch_rows(cases: Mapping[str, Iterable[Batch]]) -> list[BatchRow]:
    """The batches by topic, of ten records each unless a case says otherwise."""
    rows = []
    for topic, batches in cases.items():
        for batch in batches:
            base = int(str(batch["base_offset"]))
            fields: dict[str, object] = dict.fromkeys(BatchRow._fields, 0)
            fields |= {"topic": topic, "last_offset": base + 9, "record_count": 10, "size_bytes": 500}
            fields |= {"is_crc_valid": True, "producer_id": -1, "base_sequence": -1}
            rows.append(BatchRow(**{**fields, **batch}))  # type: ignore[arg-type]
    return rows
