"""Batches as a faulty client may send them: the checksum fits, and something inside of the batch is
wrong.

`CASES` is the table that Apache Kafka has judged (`tests/golden/records/`), so its order, names and
bytes are stable. Each batch is built from parts that can be wrong alone; random mutations of single
bytes follow, drawn from a fixed seed. Times are relative to `NOW_MS`.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.support.disks.log_batches import compress, varint
from wire.batches.record_batch import HEADER_SIZE, BatchHeader, encode_header, read_header

NOW_MS: Final = 1_900_000_000_000
"""The time of the table: later than the run of Apache Kafka that judged it, which therefore has an
open upper bound for timestamps.
"""
HOUR_MS: Final = 3_600_000
CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MUTATIONS_BY_CODEC: Final = 40
UNBOUNDED: Final = str(2**63 - 1)
OPEN_TIME: Final = {"message.timestamp.after.max.ms": UNBOUNDED}

TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": OPEN_TIME,
    "compacted": {**OPEN_TIME, "cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "bounded": {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)},
    "gzip": {**OPEN_TIME, "compression.type": "gzip"},
    "uncompressed": {**OPEN_TIME, "compression.type": "uncompressed"},
}
"""Topics by the name that cases refer to, with their configs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One batch, or several, for a topic of `TOPICS`. `is_near_now` shifts the batch's times to the
    time of the run.
    """

    name: str
    topic: str
    records: bytes
    is_near_now: bool = False


def record(
    offset_delta: int = 0,
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"value",
    timestamp_delta: int = 0,
    attributes: int = 0,
    key_length: int | None = None,
    value_length: int | None = None,
    header_count: int | None = None,
    headers: bytes = b"",
    length: int | None = None,
    trailer: bytes = b"",
    timestamp_bytes: bytes | None = None,
) -> bytes:
    """One record. The lengths and the count may claim what is not there."""
    body = bytes((attributes,))
    body += (varint(timestamp_delta) if timestamp_bytes is None else timestamp_bytes) + varint(offset_delta)
    for content, claimed in ((key, key_length), (value, value_length)):
        size = -1 if content is None else len(content)
        body += varint(size if claimed is None else claimed) + (content or b"")
    body += varint(0 if header_count is None else header_count) + headers + trailer
    return varint(len(body) if length is None else length) + body


def header_bytes(name: bytes | None, value: bytes | None) -> bytes:
    """A header of a record."""
    return b"".join(varint(-1) if part is None else varint(len(part)) + part for part in (name, value))


def batch(
    body: bytes,
    count: int = 1,
    *,
    codec: int = 0,
    claimed_codec: int | None = None,
    attributes: int = 0,
    record_count: int | None = None,
    last_offset_delta: int | None = None,
    base_timestamp: int = NOW_MS,
    max_timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
) -> bytes:
    """A batch around `count` records, with a checksum that fits whatever else does not."""
    packed = compress(codec, body)
    header = BatchHeader(
        base_offset,
        HEADER_SIZE - 12 + len(packed),
        -1,
        2,
        0,
        attributes | (codec if claimed_codec is None else claimed_codec),
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        base_timestamp if max_timestamp is None else max_timestamp,
        *producer,
        count if record_count is None else record_count,
    )
    return encode_header(header, packed) + packed


def _records(count: int, **fields: object) -> bytes:
    return b"".join(record(delta, **fields) for delta in range(count))  # type: ignore[arg-type]


def _counts() -> Iterator[tuple[str, str, bytes]]:
    three = _records(3)
    for name, fields in {
        "as-claimed": {},
        "record-count-too-small": {"record_count": 2},
        "record-count-too-large": {"record_count": 4},
        "record-count-and-offsets-too-small": {"record_count": 2, "last_offset_delta": 1},
        "record-count-and-offsets-too-large": {"record_count": 4, "last_offset_delta": 3},
        "record-count-of-an-attacker": {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        "last-offset-delta-of-an-attacker": {"last_offset_delta": 2**31 - 1},
        "record-count-0": {"record_count": 0},
        "record-count-0-offset-delta-minus-1": {"record_count": 0, "last_offset_delta": -1},
        "record-count-negative": {"record_count": -1},
        "last-offset-delta-negative": {"last_offset_delta": -5},
        "base-offset-not-0": {"base_offset": 77},
        "base-offset-negative": {"base_offset": -77},
    }.items():
        yield name, "plain", batch(three, 3, **fields)  # type: ignore[arg-type]
        if name.startswith(("as-claimed", "record-count-and", "record-count-of")):
            for codec in ("gzip", "snappy", "lz4", "zstd"):
                yield f"{name}-{codec}", "plain", batch(three, 3, codec=CODECS[codec], **fields)  # type: ignore[arg-type]
    yield "no-records-at-all", "plain", batch(b"", 0, record_count=0, last_offset_delta=0)
    yield "offsets-with-a-hole", "plain", batch(record(0) + record(2), 2)
    yield "offsets-with-a-hole-claimed", "plain", batch(record(0) + record(2), 2, last_offset_delta=2)
    yield "offsets-from-1", "plain", batch(record(1) + record(2), 2)
    yield "offsets-backwards", "plain", batch(record(1) + record(0), 2)
    yield "offsets-equal", "plain", batch(record(0) + record(0), 2)
    yield "offsets-negative", "plain", batch(record(-1) + record(0), 2)
    yield "offsets-with-a-hole-gzip", "plain", batch(record(0) + record(2), 2, codec=1)
    yield "offsets-backwards-lz4", "plain", batch(record(1) + record(0), 2, codec=3)


def _lengths() -> Iterator[tuple[str, str, bytes]]:
    for name, fields in {
        "record-length-too-small": {"length": 5},
        "record-length-too-large": {"length": 500},
        "record-length-huge": {"length": 2**31 - 1},
        "record-length-0": {"length": 0},
        "record-length-negative": {"length": -1},
        "record-length-by-one-too-small": {"length": 11},
        "record-length-by-one-too-large": {"length": 13},
        "bytes-after-the-headers": {"trailer": b"xyz"},
        "key-length-too-large": {"key_length": 400},
        "key-length-into-the-value": {"key_length": 4},
        "key-length-huge": {"key_length": 2**31 - 1},
        "key-length-minus-2": {"key": None, "key_length": -2},
        "key-length-minimum": {"key": None, "key_length": -(2**31)},
        "value-length-too-large": {"value_length": 400},
        "value-length-too-small": {"value_length": 2},
        "value-length-huge": {"value_length": 2**31 - 1},
        "value-length-minus-2": {"value": None, "value_length": -2},
        "header-count-too-large": {"header_count": 3},
        "header-count-huge": {"header_count": 2**31 - 1},
        "header-count-negative": {"header_count": -1},
        "header-without-a-name": {"header_count": 1, "headers": header_bytes(None, b"v")},
        "header-with-an-empty-name": {"header_count": 1, "headers": header_bytes(b"", b"v")},
        "header-without-a-value": {"header_count": 1, "headers": header_bytes(b"h", None)},
        "header-name-no-utf-8": {"header_count": 1, "headers": header_bytes(b"\xff\xfe", b"v")},
        "header-name-length-minus-2": {"header_count": 1, "headers": varint(-2) + varint(1) + b"v"},
        "header-value-length-minus-2": {"header_count": 1, "headers": varint(1) + b"h" + varint(-2)},
        "header-value-too-large": {"header_count": 1, "headers": varint(1) + b"h" + varint(99) + b"v"},
        "headers-twice-the-same": {"header_count": 2, "headers": header_bytes(b"h", b"v") * 2},
        "record-attributes-set": {"attributes": 255},
        "null-key-and-value": {"key": None, "value": None},
        "empty-key-and-value": {"key": b"", "value": b""},
        "timestamp-delta-of-eleven-bytes": {"timestamp_bytes": b"\x80" * 10 + b"\x00"},
        "timestamp-delta-of-ten-bytes": {"timestamp_bytes": b"\xff" * 9 + b"\x01"},
        "timestamp-delta-padded": {"timestamp_bytes": b"\x80\x80\x00"},
    }.items():
        body = record(0, **fields)  # type: ignore[arg-type]
        yield name, "plain", batch(body)
        yield f"{name}-lz4", "plain", batch(body, codec=3)
        yield f"{name}-second-of-three", "plain", batch(record(0) + record(1, **fields) + record(2), 3)  # type: ignore[arg-type]
    yield "bytes-after-the-last-record", "plain", batch(record() + b"\0")
    yield "a-whole-record-after-the-last", "plain", batch(record() + record(1), 1)
    yield "bytes-after-the-last-record-zstd", "plain", batch(record() + b"\0", codec=4)
    yield "varint-of-six-bytes", "plain", batch(b"\x9a\x80\x80\x80\x80\x00" + record()[1:])
    yield "varint-padded-to-five-bytes", "plain", batch(b"\x9a\x80\x80\x80\x00" + record()[1:])


def _codecs() -> Iterator[tuple[str, str, bytes]]:
    plain = _records(2)
    for name, codec in CODECS.items():
        if not codec:
            continue
        yield f"claims-{name}-over-plain-bytes", "plain", batch(plain, 2, claimed_codec=codec)
        yield f"claims-none-over-{name}", "plain", batch(plain, 2, codec=codec, claimed_codec=0)
        whole = batch(plain * 20, 40, codec=codec, record_count=2, last_offset_delta=1)
        packed = whole[HEADER_SIZE:]
        header = read_header(whole)
        for what, content in {
            "truncated": packed[: len(packed) // 2],
            "one-byte-short": packed[:-1],
            "followed-by-bytes": packed + b"\0\1\2",
            "empty": b"",
            "twice": packed + packed,
        }.items():
            changed = header._replace(batch_length=49 + len(content), record_count=40, last_offset_delta=39)
            yield f"{name}-{what}", "plain", encode_header(changed, content) + content
        yield f"{name}-with-lying-count", "plain", whole
    for codec_number in (5, 6, 7):
        yield f"codec-{codec_number}", "plain", batch(plain, 2, claimed_codec=codec_number)
    bomb = record(value=bytes(4 * 1024 * 1024))
    yield "opens-to-4-mib-gzip", "plain", batch(bomb, codec=1)
    yield "opens-to-4-mib-zstd", "plain", batch(bomb, codec=4)


def _batches() -> Iterator[tuple[str, str, bytes]]:
    one = batch(record())
    yield "two-batches", "plain", one + one
    yield "two-batches-lz4", "plain", batch(record(), codec=3) * 2
    yield "half-a-batch-behind", "plain", one + one[:40]
    yield "zeros-behind", "plain", one + bytes(7)
    yield (
        "control-batch",
        "plain",
        batch(record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\7"), attributes=0x30, producer=(5, 0, -1)),
    )
    yield "transactional-without-producer", "plain", batch(record(), attributes=0x10)
    yield "producer-without-sequence", "plain", batch(record(), producer=(5, 0, -1))
    yield "producer-without-epoch", "plain", batch(record(), producer=(5, -1, 0))
    yield "sequence-without-producer", "plain", batch(record(), producer=(-1, -1, 3))
    yield "claims-log-append-time", "plain", batch(record(), attributes=0x08)
    yield "claims-log-append-time-on-its-topic", "append-time", batch(record(), attributes=0x08)
    yield "claims-delete-horizon", "plain", batch(record(), attributes=0x40)
    yield "unknown-attribute", "plain", batch(record(), attributes=0x80)
    wrong = bytearray(one)
    wrong[17] ^= 1
    yield "checksum-does-not-fit", "plain", bytes(wrong)
    yield "length-smaller-than-a-header", "plain", one[:8] + struct.pack(">i", 20) + one[12:]
    yield "length-larger-than-what-follows", "plain", one[:8] + struct.pack(">i", 4000) + one[12:]
    yield "magic-1", "plain", one[:16] + b"\1" + one[17:]
    yield "magic-3", "plain", one[:16] + b"\3" + one[17:]
    yield "nothing", "plain", b""


def _keys() -> Iterator[tuple[str, str, bytes]]:
    keyless = record(1, key=None)
    for codec in ("none", "zstd"):
        number = CODECS[codec]
        yield f"keys-{codec}", "compacted", batch(_records(3), 3, codec=number)
        yield f"one-keyless-{codec}", "compacted", batch(record() + keyless + record(2), 3, codec=number)
        yield f"all-keyless-{codec}", "compacted", batch(_records(3, key=None), 3, codec=number)
        yield f"empty-keys-{codec}", "compacted", batch(_records(2, key=b""), 2, codec=number)
    yield "tombstones", "compacted", batch(_records(2, value=None), 2)
    yield "keyless-and-damaged", "compacted", batch(keyless[:-1] + b"\2", 1)


def _times() -> Iterator[tuple[str, str, bytes]]:
    late = record(1, timestamp_delta=5000)
    for codec in ("none", "lz4"):
        number = CODECS[codec]
        two = record() + late
        yield f"max-timestamp-too-small-{codec}", "plain", batch(two, 2, codec=number)
        yield f"max-timestamp-right-{codec}", "plain", batch(two, 2, codec=number, max_timestamp=NOW_MS + 5000)
        yield f"max-timestamp-too-large-{codec}", "plain", batch(two, 2, codec=number, max_timestamp=NOW_MS + 9000)
        yield f"max-timestamp-minus-1-{codec}", "plain", batch(two, 2, codec=number, max_timestamp=-1)
        yield (
            f"timestamps-before-1970-{codec}",
            "plain",
            batch(record(timestamp_delta=-5), codec=number, base_timestamp=-7, max_timestamp=-12),
        )
        yield f"no-timestamps-{codec}", "plain", batch(_records(2), 2, codec=number, base_timestamp=-1)
        yield (
            f"base-timestamp-not-the-first-{codec}",
            "plain",
            batch(record(timestamp_delta=7), codec=number, max_timestamp=NOW_MS + 7),
        )
        yield f"append-time-any-times-{codec}", "append-time", batch(two, 2, codec=number, max_timestamp=5)


def _near_now() -> Iterator[tuple[str, str, bytes]]:
    for codec in ("none", "zstd"):
        number = CODECS[codec]
        yield (
            f"times-within-{codec}",
            "bounded",
            batch(record() + record(1, timestamp_delta=-HOUR_MS // 2), 2, codec=number),
        )
        yield (
            f"one-too-late-{codec}",
            "bounded",
            batch(record() + record(1, timestamp_delta=2 * HOUR_MS) + record(2), 3, codec=number),
        )
        yield (
            f"one-too-early-{codec}",
            "bounded",
            batch(record() + record(1) + record(2, timestamp_delta=-2 * HOUR_MS), 3, codec=number),
        )
        yield f"all-too-early-{codec}", "bounded", batch(_records(3, timestamp_delta=-2 * HOUR_MS), 3, codec=number)
        yield (
            f"only-the-header-too-late-{codec}",
            "bounded",
            batch(record(), codec=number, max_timestamp=NOW_MS + 2 * HOUR_MS),
        )
        yield f"no-timestamps-where-bounded-{codec}", "bounded", batch(record(), codec=number, base_timestamp=-1)


def _recompressed() -> Iterator[tuple[str, str, bytes]]:
    for topic in ("gzip", "uncompressed"):
        for codec, number in CODECS.items():
            yield f"{codec}-for-{topic}", topic, batch(_records(3), 3, codec=number)
        yield f"offsets-with-a-hole-for-{topic}", topic, batch(record(0) + record(2), 2)
        yield f"max-timestamp-wrong-for-{topic}", topic, batch(record(timestamp_delta=5))
        yield f"producer-kept-for-{topic}", topic, batch(_records(2), 2, producer=(9, 0, 0))


def _mutations() -> Iterator[tuple[str, str, bytes]]:
    body = b"".join(
        record(
            delta,
            key=None if delta % 3 == 0 else b"key-%d" % delta,
            value=b"some value %d" % delta * 3,
            timestamp_delta=delta * 100,
            header_count=delta % 2,
            headers=header_bytes(b"name", b"content") if delta % 2 else b"",
        )
        for delta in range(6)
    )
    chance = random.Random(20261122)
    for codec, number in CODECS.items():
        whole = batch(body, 6, codec=number, max_timestamp=NOW_MS + 500)
        header, packed = read_header(whole), whole[HEADER_SIZE:]
        for index in range(MUTATIONS_BY_CODEC):
            content = bytearray(packed)
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                content[chance.randrange(len(content))] = chance.randrange(256)
            yield f"mutated-{codec}-{index}", "plain", encode_header(header, content) + bytes(content)


def _cases() -> Iterator[Case]:
    for part in (_counts, _lengths, _codecs, _batches, _keys, _times, _recompressed, _mutations):
        for name, topic, records in part():
            yield Case(name=name, topic=topic, records=records)
    for name, topic, records in _near_now():
        yield Case(name=name, topic=topic, records=records, is_near_now=True)


def at_time(records: bytes, now_ms: int) -> bytes:
    """A single batch of the table with its times as if `NOW_MS` were `now_ms`; times of -1 stay."""
    header = read_header(records)
    if header.base_timestamp < 0:
        return records
    shift_ms = now_ms - NOW_MS
    content = records[HEADER_SIZE:]
    moved = header._replace(
        base_timestamp=header.base_timestamp + shift_ms, max_timestamp=header.max_timestamp + shift_ms
    )
    return encode_header(moved, content) + content


CASES: Final[Mapping[str, Case]] = {case.name: case for case in _cases()}
