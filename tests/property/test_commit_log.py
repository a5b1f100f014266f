"""The content of a partition of `__consumer_offsets`, read in pieces, against a twin that replays
the whole log and looks for the newest valid record.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from mirror.groups.core.commit_log import CommitLog
from mirror.link.core.committed_offsets import REMOVED, GroupOffset
from wire.batches.group_records import OffsetKey, OffsetValue, encode_offset_key, encode_offset_value
from wire.batches.record_batch import TRANSACTIONAL_BIT, patch_placement, read_header
from wire.batches.records import Record, encode_batch
from wire.batches.transaction_records import encode_marker
from wire.protocol.ids import TopicPartition

KEYS = [OffsetKey(group, "orders", partition) for group in ("billing", "live") for partition in (0, 1)]


class Commit(NamedTuple):
    key: int
    value: int | None  # None: a tombstone
    producer: int | None


class Marker(NamedTuple):
    producer: int
    is_commit: bool


COMMITS = st.builds(Commit, st.integers(0, 3), st.integers(0, 9), st.none() | st.integers(1, 3))
TOMBSTONES = st.builds(Commit, st.integers(0, 3), st.none(), st.none())
STEPS = st.lists(st.one_of(COMMITS, TOMBSTONES, st.builds(Marker, st.integers(1, 3), st.booleans())), max_size=40)


def log_of(steps: list[Commit | Marker]) -> list[bytes]:
    batches = []
    for offset, step in enumerate(steps):
        if isinstance(step, Marker):
            raw = encode_marker(
                producer_id=step.producer, producer_epoch=0, is_commit=step.is_commit, coordinator_epoch=0, now_ms=0
            )
            raw = bytes(encode_at(raw, offset))
        else:
            value = None if step.value is None else encode_offset_value(OffsetValue(step.value, -1, "", 0))
            raw = encode_batch(
                [Record(encode_offset_key(KEYS[step.key]), value)],
                base_offset=offset,
                producer_id=-1 if step.producer is None else step.producer,
                attributes=0 if step.producer is None else TRANSACTIONAL_BIT,
            )
        batches.append(raw)
    return batches


def encode_at(raw: bytes, offset: int) -> bytes:
    patched = patch_placement(raw, 0, read_header(raw), base_offset=offset, leader_epoch=0)
    return b"".join(bytes(part) for part in patched)[: len(raw)]


def naive(steps: list[Commit | Marker]) -> dict[OffsetKey, int]:
    """For each offset the newest record whose transaction, if it has one, was committed."""
    found = {}
    for at, step in enumerate(steps):
        if isinstance(step, Marker):
            continue
        if step.producer is not None:
            ends = (it for it in steps[at:] if isinstance(it, Marker) and it.producer == step.producer)
            end = next(ends, None)
            if end is None or not end.is_commit:
                continue
        found[KEYS[step.key]] = step.value
    return {key: value for key, value in found.items() if value is not None}


@given(STEPS, st.integers(1, 5))
def test_a_log_read_in_pieces_gives_the_newest_records_that_count(steps: list[Commit | Marker], piece: int) -> None:
    log, known = CommitLog(), dict[OffsetKey, int]()
    batches = log_of(steps)
    for first in range(0, len(batches), piece):
        read = log.read(b"".join(batches[first : first + piece]))
        assert not read.unreadable
        for group, changes in read.changes.items():
            for at, offset in changes.items():
                known.pop(OffsetKey(group, *at), None)
                if offset is not REMOVED:
                    known[OffsetKey(group, *at)] = offset.offset
    assert known == naive(steps)


def test_a_record_that_cannot_be_decoded_hides_no_other_commit() -> None:
    good = Record(encode_offset_key(KEYS[0]), encode_offset_value(OffsetValue(7, 3, "mine", 0)))
    read = CommitLog().read(encode_batch([Record(b"\0\1\0\x20a", b""), good], base_offset=5))
    assert read.unreadable == [5]
    assert read.changes == {"billing": {TopicPartition("orders", 0): GroupOffset(7, 3, "mine")}}
