"""Offsets by partition as Spark's Kafka connector writes them, and the bounds of a read. Pure.

A checkpoint of the Kafka connector is `{"orders": {"0": 123}}`. Ours has the same entries, and
beside them the leader epoch of the last record that was read of each partition, in the same shape
under a name that no topic can have: `{"orders (leader epochs)": {"0": 7}}`.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, PartitionKey

PartitionOffsets = dict[PartitionKey, int]
OffsetsByTopic = dict[str, dict[str, int]]

EPOCHS_SUFFIX: Final = " (leader epochs)"


class InvalidOffsets(ValueError):
    """Offsets that are not JSON of the connector's shape, or that do not fit the topics."""


class BoundKind(enum.StrEnum):
    """The form of one end of a read in the options."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of a read. `values` are offsets (or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) or times
    in Unix ms by partition; `timestamp_ms` is one time for all partitions.
    """

    kind: BoundKind
    values: Mapping[PartitionKey, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    option: str = ""

    def times(self, partitions: Iterable[PartitionKey]) -> PartitionOffsets:
        """The time to look up in each partition; empty unless the bound is given by times."""
        if self.kind is not BoundKind.TIMESTAMPS:
            return {}
        if self.timestamp_ms is not None:
            return dict.fromkeys(partitions, self.timestamp_ms)
        return dict(self.values)


@dataclass(frozen=True, slots=True)
class LogRange:
    """The start of a log, and the end of the part that may be read."""

    start_offset: int
    end_offset: int


def parse_offsets(text: str) -> PartitionOffsets:
    """`{"topic": {"0": 123}}` by partition. InvalidOffsets."""
    try:
        found = json.loads(text)
        return {
            (str(topic), int(partition)): int(offset)
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidOffsets('it is not JSON such as {"orders": {"0": 23, "1": -2}}') from error


def parse_times(text: str) -> PartitionOffsets:
    """`{"topic": {"0": 1700000000000}}` by partition. InvalidOffsets, also for a time below 0,
    which to brokers is an end of the log.
    """
    times = parse_offsets(text)
    if min(times.values(), default=0) < 0:
        raise InvalidOffsets("times in Unix ms, from 0 on")
    return times


def parse_partitions(text: str) -> tuple[PartitionKey, ...]:
    """`{"topic": [0, 1]}` as partitions, sorted. InvalidOffsets."""
    try:
        found = json.loads(text)
        return tuple(
            sorted((str(topic), int(partition)) for topic, partitions in found.items() for partition in partitions)
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidOffsets('it is not JSON such as {"orders": [0, 1]}') from error


def by_topic(offsets: Mapping[PartitionKey, int]) -> OffsetsByTopic:
    """The connector's shape, sorted."""
    found: OffsetsByTopic = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def encode_position(offsets: Mapping[PartitionKey, int], epochs: Mapping[PartitionKey, int]) -> OffsetsByTopic:
    """The position of a stream as a checkpoint keeps it: offsets, and the epochs that are known."""
    named = {(topic + EPOCHS_SUFFIX, partition): epoch for (topic, partition), epoch in epochs.items()}
    return by_topic(offsets) | by_topic(named)


def decode_position(stored: Mapping[str, Mapping[str, int]]) -> tuple[PartitionOffsets, PartitionOffsets]:
    """Offsets and leader epochs of a checkpoint, ours or the Kafka connector's."""
    offsets: PartitionOffsets = {}
    epochs: PartitionOffsets = {}
    for name, partitions in stored.items():
        topic = name.removesuffix(EPOCHS_SUFFIX)
        kept = offsets if topic == name else epochs
        kept.update({(topic, int(partition)): int(value) for partition, value in partitions.items()})
    return offsets, epochs


def resolve_start(
    bound: Bound,
    logs: Mapping[PartitionKey, LogRange],
    found: Mapping[PartitionKey, int],
    *,
    is_latest_without_match: bool = False,
) -> PartitionOffsets:
    """The offset from which each log is read. `found` are the offsets of the bound's times,
    NO_OFFSET where no record is that recent. Raises InvalidOffsets.
    """
    offsets = _resolved(bound, logs, found)
    for key, offset in offsets.items():
        if offset != NO_OFFSET:
            continue
        if not is_latest_without_match:
            raise InvalidOffsets(
                f"{bound.option}: {key[0]}-{key[1]} has no record at {_time_of(bound, key)} or later; accepted: an "
                "earlier time, or startingOffsetsByTimestampStrategy=latest"
            )
        offsets[key] = logs[key].end_offset
    return offsets


def resolve_end(
    bound: Bound, logs: Mapping[PartitionKey, LogRange], found: Mapping[PartitionKey, int]
) -> PartitionOffsets:
    """The end offset of each log's read, not included. Raises InvalidOffsets."""
    offsets = _resolved(bound, logs, found)
    return {key: logs[key].end_offset if offset == NO_OFFSET else offset for key, offset in offsets.items()}


def _resolved(
    bound: Bound, logs: Mapping[PartitionKey, LogRange], found: Mapping[PartitionKey, int]
) -> PartitionOffsets:
    if bound.kind is BoundKind.EARLIEST:
        return {key: log.start_offset for key, log in logs.items()}
    if bound.kind is BoundKind.LATEST:
        return {key: log.end_offset for key, log in logs.items()}
    if bound.values:
        _check_same_partitions(bound, logs)
    if bound.kind is BoundKind.TIMESTAMPS:
        return {key: found[key] for key in logs}
    special = {EARLIEST_TIMESTAMP: "start_offset", LATEST_TIMESTAMP: "end_offset"}
    return {
        key: getattr(logs[key], special[offset]) if offset in special else offset
        for key, offset in bound.values.items()
    }


def _check_same_partitions(bound: Bound, logs: Mapping[PartitionKey, LogRange]) -> None:
    """Check that the bound names every partition that is read and no other, as the Kafka connector
    does.
    """
    missing, unknown = sorted(logs.keys() - bound.values.keys()), sorted(bound.values.keys() - logs.keys())
    if missing or unknown:
        problems = [f"without {_listed(missing)}"] * bool(missing) + [f"with {_listed(unknown)}"] * bool(unknown)
        raise InvalidOffsets(
            f"{bound.option} comes {' and '.join(problems)}; accepted: a value for each partition that is read"
        )


def _listed(keys: Iterable[PartitionKey]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in keys)


def _time_of(bound: Bound, key: PartitionKey) -> int:
    return bound.values.get(key, 0) if bound.timestamp_ms is None else bound.timestamp_ms
