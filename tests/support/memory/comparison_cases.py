"""Hand-made batches and records, and the runs that a comparison must find in them: Spark and the
comparison in one process answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from spark_jobs.reconciling.core.judging import Run
from spark_jobs.reconciling.core.small_comparison import BatchRow

Batch = Mapping[str, object]
RecordCase = tuple[str, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""Site, offset, key, value, headers."""

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
    "same": (("a", 0, None, b"v", ()), ("b", 0, None, b"v", ())),
    "key or value": (("a", 0, b"x", None, ()), ("b", 0, None, b"x", ())),
    "null or empty": (("a", 0, b"k", None, ()), ("b", 0, b"k", b"", ())),
    "value or header": (("a", 0, b"k", b"x", ()), ("b", 0, b"k", None, (("x", None),))),
    "one header or two": (
        ("a", 0, b"k", b"v", (("h", b"x"),)),
        ("b", 0, b"k", b"v", (("h", None), ("x", None))),
    ),
}
"""Records in which the same bytes are another part of the record at each site."""
RECORDS_FOUND: Final = [
    Run(topic, 0, kind, 0, 0) for topic in sorted(RECORDS.keys() - {"same"}) for kind in ("only_source", "only_target")
]

COMPACTED: Final[Mapping[str, Iterable[RecordCase]]] = {
    "compacted": (
        ("a", 0, b"k", b"old", ()),  # b compacted it: it has a newer one
        ("a", 1, b"gone", None, ()),  # a tombstone that expired at b
        ("a", 2, b"lost", b"value", ()),  # b has nothing of this key
        ("a", 3, b"k", b"new", ()),
        ("b", 3, b"k", b"new", ()),
    ),
    # The source compacted the key away, then its tombstone; a standby does neither.
    "deleted": (
        ("b", 0, b"k", b"old", ()),
        ("b", 1, b"k", None, ()),
        ("b", 2, b"x", b"1", ()),
        ("a", 2, b"x", b"1", ()),
    ),
    # A tombstone that a site lost while the key lives there.
    "undeleted": (("a", 0, b"k", b"old", ()), ("a", 1, b"k", None, ()), ("b", 0, b"k", b"old", ())),
    # The tombstone expired before the mirror copied it: the target has the old value.
    "revived": (("b", 0, b"k", b"old", ()), ("b", 5, b"k", b"above its tombstone", ()), ("b", 1, b"k", None, ())),
}
COMPACTED_FOUND: Final = [
    Run("compacted", 0, "only_source", 2, 2),
    Run("revived", 0, "only_target", 5, 5),
    Run("undeleted", 0, "only_source", 1, 1),
]
COMPACTED_EXPLAINED: Final = [
    Run("compacted", 0, "only_source", 0, 1, records=2),
    Run("deleted", 0, "only_target", 0, 1, records=2),
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
