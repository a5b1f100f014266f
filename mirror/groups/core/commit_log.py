"""Reads the groups' commits from one partition of `__consumer_offsets`, batch by batch.

Reads the log as a group coordinator loads it, and returns only valid offsets:

  a. A plain record is valid immediately; a record without a value removes its offset.
  b. Offsets of a transaction are valid when its commit marker comes, and never if it is aborted.
  c. Of two commits for the same partition, the one that was appended later is valid, although the
     marker of the earlier one may come later (KIP-98): a commit that supersedes a pending offset
     drops it.

The log must be read from its last stable offset on, or from an earlier one: then the part that is
read has the beginning of every transaction whose marker is read.
"""

from __future__ import annotations

from typing import NamedTuple

from mirror.link.core.committed_offsets import REMOVED, GroupOffset
from wire.batches.group_records import OffsetKey, decode_key, decode_offset_value
from wire.batches.record_batch import BatchHeader, Buffer, iterate_headers
from wire.batches.records import Record, decode_batch
from wire.protocol.byte_reader import Malformed
from wire.protocol.ids import TopicPartition

_COMMIT_MARKER = 1


class CommitsRead(NamedTuple):
    """The changes of some batches: by group and partition the offset that is valid now, REMOVED if
    there is none. `unreadable` are the offsets of records that could not be decoded.
    """

    changes: dict[str, dict[TopicPartition, GroupOffset]]
    unreadable: list[int]


class _Pending(NamedTuple):
    record_offset: int
    value: GroupOffset


class CommitLog:
    """The commits of one partition; batches are read once, in the order of the log."""

    def __init__(self) -> None:
        # By producer id, the offsets of its open transaction.
        self._pending: dict[int, dict[OffsetKey, _Pending]] = {}

    def read(self, batches: Buffer) -> CommitsRead:
        """Read whole batches. Raises InvalidBatch."""
        found = CommitsRead({}, [])
        for position, header in iterate_headers(batches):
            if header.is_control:
                self._end_transaction(batches, position, header, found)
            else:
                for record in decode_batch(batches, position, header):
                    self._read_record(record, header, found)
        return found

    def _read_record(self, record: Record, header: BatchHeader, found: CommitsRead) -> None:
        try:
            key = None if record.key is None else decode_key(record.key)
            if not isinstance(key, OffsetKey):
                return
            value = REMOVED if record.value is None else _offset(record.value)
        except Malformed:
            # One record that cannot be decoded must not hide the commits of all other groups.
            found.unreadable.append(record.offset)
            return
        if header.is_transactional and value is not REMOVED:
            pending = self._pending.setdefault(header.producer_id, {})
            pending[key] = _Pending(record.offset, value)
        else:
            self._settle(key, record.offset, value, found)

    def _end_transaction(self, batches: Buffer, position: int, header: BatchHeader, found: CommitsRead) -> None:
        marker = next(decode_batch(batches, position, header), None)
        # Control records of other kinds end no transaction.
        if marker is None or marker.key is None or len(marker.key) < 4:
            return
        ended = self._pending.pop(header.producer_id, {})
        if int.from_bytes(marker.key[2:4]) == _COMMIT_MARKER:
            for key, pending in ended.items():
                self._settle(key, pending.record_offset, pending.value, found)

    def _settle(self, key: OffsetKey, record_offset: int, value: GroupOffset, found: CommitsRead) -> None:
        # (c): of two commits of one offset the later one counts, so pending earlier ones are
        # dropped.
        for pending in self._pending.values():
            if key in pending and pending[key].record_offset < record_offset:
                del pending[key]
        found.changes.setdefault(key.group, {})[TopicPartition(key.topic, key.partition)] = value


def _offset(raw: bytes) -> GroupOffset:
    value = decode_offset_value(raw)
    return GroupOffset(value.offset, value.leader_epoch, value.metadata)
