"""The logs of a site as columns: a mapping of partitions to their positions, which makes the
position of a partition only when it is asked for. Pure.

Two sites of a link have mostly the same partitions in the same state, so whole columns are compared
first, and only partitions that differ are looked at one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import accumulate
from typing import Final, TypeVar

from msgspec.structs import replace

from dr.sites.core.positions import PartitionPosition
from wire.batches.log_histories import EpochStart
from wire.control.broker_pb2 import PartitionColumns
from wire.control.partition_columns import FIELDS, HAS_MARKERS, IS_WRITABLE, Column
from wire.control.partition_columns_reader import LogColumns, columns_of
from wire.protocol.ids import UNKNOWN, TopicPartition

ValueT = TypeVar("ValueT")

_FIELD: Final = {name: number for number, name in enumerate(FIELDS)}

LAYOUTS_MAX: Final = 8
"""Layouts that are remembered: those of both sites, before and after some changes."""

LogEnds = Mapping[TopicPartition, int]
"""The ends of logs by partition."""


class PartitionOrder:
    """Some partitions, sorted. Sites whose logs have the same object have the same partitions."""

    def __init__(self, keys: tuple[TopicPartition, ...]) -> None:
        self.keys = keys
        self.index = {key: number for number, key in enumerate(keys)}


class PartitionOrders:
    """Finds the order of partitions that were described before, because sorting thousands of them
    takes longer than all else.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], bytes, bytes], tuple[PartitionOrder, Sequence[int] | None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, columns: LogColumns) -> tuple[PartitionOrder, Sequence[int] | None]:
        """The sorted partitions, and for each of them its place in the columns; None if that is the
        same place.
        """
        partition = columns.fields[_FIELD["partition"]]
        layout = columns.topics, columns.topic.tobytes(), partition.tobytes()
        found = self._known.get(layout)
        if found is None:
            found = self._sorted(columns.topics, columns.topic, partition)
            if len(self._known) >= LAYOUTS_MAX:
                del self._known[next(iter(self._known))]
            self._known[layout] = found
        return found

    def _sorted(
        self, topics: Sequence[str], topic: Column, partition: Column
    ) -> tuple[PartitionOrder, Sequence[int] | None]:
        keys = [TopicPartition(topics[number], index) for number, index in zip(topic, partition, strict=True)]
        places = sorted(range(len(keys)), key=keys.__getitem__)
        ordered = tuple(keys[place] for place in places)
        known = next((order for order, _ in self._known.values() if order.keys == ordered), None)
        return known or PartitionOrder(ordered), None if ordered == tuple(keys) else places


class OrderedPartitions(Mapping[TopicPartition, ValueT]):
    """A value for each partition of an order."""

    order: PartitionOrder

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.order.keys)

    def __len__(self) -> int:
        return len(self.order.keys)

    def __contains__(self, key: object) -> bool:
        return key in self.order.index


class PartitionEnds(OrderedPartitions[int]):
    """An offset for each of some partitions."""

    def __init__(self, order: PartitionOrder, offsets: Column) -> None:
        self.order = order
        self.offsets = offsets

    def __getitem__(self, key: TopicPartition) -> int:
        return self.offsets[self.order.index[key]]

    def above(self, other: PartitionEnds) -> list[TopicPartition]:
        """The partitions whose offset is higher than in `other`, which has the same order."""
        if self.offsets == other.offsets:
            return []
        pairs = zip(self.order.keys, self.offsets, other.offsets, strict=True)
        return [key for key, offset, another in pairs if offset > another]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionEnds) and other.order is self.order:
            return self.offsets == other.offsets
        return isinstance(other, Mapping) and len(self) == len(other) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]


class LogsInColumns(OrderedPartitions[PartitionPosition]):
    """The positions of a site's logs."""

    def __init__(self, order: PartitionOrder, columns: LogColumns) -> None:
        """`columns` has the partitions in this order."""
        self.order = order
        self._columns = columns
        self._positions: dict[TopicPartition, PartitionPosition] | None = None
        self._safe_ends: PartitionEnds | None = None
        self._epochs_until: list[int] | None = None

    def column(self, name: str) -> Column:
        """One field of every partition, in order."""
        return self._columns.fields[_FIELD[name]]

    @property
    def ends(self) -> PartitionEnds:
        """The log end of every partition."""
        return PartitionEnds(self.order, self.column("log_end_offset"))

    @property
    def safe_ends(self) -> PartitionEnds:
        """As `PartitionPosition.safe_end_offset`."""
        if self._safe_ends is None:
            ends, marks = self.column("log_end_offset"), self.column("high_watermark")
            if marks != ends:
                ends = array(
                    "q", [end if mark < 0 or mark > end else mark for end, mark in zip(ends, marks, strict=True)]
                )
            self._safe_ends = PartitionEnds(self.order, ends)
        return self._safe_ends

    @property
    def source_ends(self) -> PartitionEnds:
        """The ends of the source's logs as a mirror has last reported them; UNKNOWN without one."""
        return PartitionEnds(self.order, self.column("source_high_watermark"))

    def without_source(self) -> list[TopicPartition]:
        """The partitions with records of whose source no mirror has reported."""
        columns = map(self.column, ("source_high_watermark", "log_start_offset", "log_end_offset"))
        rows = zip(self.order.keys, *columns, strict=True)
        return [key for key, source_end, start, end in rows if source_end == UNKNOWN and end > start]

    def with_markers(self) -> list[TopicPartition]:
        """The partitions in which a producer has ended a transaction."""
        flags = self.column("flags")
        if not any(one & HAS_MARKERS for one in set(flags)):
            return []
        return [key for key, one in zip(self.order.keys, flags, strict=True) if one & HAS_MARKERS]

    def thinned(self) -> list[TopicPartition]:
        """The partitions from whose logs compaction may have removed records."""
        ends, starts = self.column("thinned_to"), self.column("log_start_offset")
        return [key for key, end, start in zip(self.order.keys, ends, starts, strict=True) if end > start]

    @property
    def has_writable(self) -> bool:
        """True if a partition accepts client writes."""
        return any(flags & IS_WRITABLE for flags in set(self.column("flags")))

    @property
    def are_all_writable(self) -> bool:
        """True if every partition accepts client writes."""
        return all(flags & IS_WRITABLE for flags in set(self.column("flags")))

    def not_prefixes_of(self, source: LogsInColumns) -> list[TopicPartition]:
        """The partitions whose epochs are not those of `source`, which has the same order, or that
        end later: all others are prefixes of the source's logs.
        """
        ends, others = self.column("log_end_offset"), source.column("log_end_offset")
        mine, theirs = self._columns, source._columns
        has_same_epochs = (
            mine.epoch_count == theirs.epoch_count
            and mine.epochs == theirs.epochs
            and mine.epoch_starts == theirs.epoch_starts
        )
        if has_same_epochs:
            return self.ends.above(source.ends)
        return [
            key
            for number, key in enumerate(self.order.keys)
            if ends[number] > others[number] or self._epochs(number) != source._epochs(number)
        ]

    def _epochs(self, number: int) -> tuple[EpochStart, ...]:
        columns = self._columns
        if self._epochs_until is None:
            self._epochs_until = [0, *accumulate(columns.epoch_count)]
        first, end = self._epochs_until[number : number + 2]
        return tuple(map(EpochStart, columns.epochs[first:end], columns.epoch_starts[first:end]))

    def _position(self, number: int) -> PartitionPosition:
        values = {name: column[number] for name, column in zip(FIELDS, self._columns.fields, strict=True)}
        del values["partition"]
        flags = values.pop("flags")
        return PartitionPosition(
            **values,
            epochs=self._epochs(number),
            is_writable=bool(flags & IS_WRITABLE),
            has_markers=bool(flags & HAS_MARKERS),
        )

    def _all(self) -> dict[TopicPartition, PartitionPosition]:
        if self._positions is None:
            self._positions = {key: self._position(number) for number, key in enumerate(self.order.keys)}
        return self._positions

    def __getitem__(self, key: TopicPartition) -> PartitionPosition:
        return self._position(self.order.index[key]) if self._positions is None else self._positions[key]

    def items(self) -> ItemsView[TopicPartition, PartitionPosition]:
        """All positions, which are made at the first call."""
        return self._all().items()

    def values(self) -> ValuesView[PartitionPosition]:
        """All positions, which are made at the first call."""
        return self._all().values()

    def __repr__(self) -> str:
        return f"LogsInColumns({self._all()!r})"


def logs_of(messages: Iterable[PartitionColumns], orders: PartitionOrders) -> LogsInColumns:
    """The logs that the brokers of a site have described, the last one of each partition.
    MalformedColumns.
    """
    columns = _joined([columns_of(message) for message in messages])
    order, places = orders.of(columns)
    if places is not None:
        columns = _placed(columns, places)
    if len(order.index) != len(order.keys):  # two brokers lead the partition, at different times
        last = [number for number, key in enumerate(order.keys) if order.index[key] == number]
        order, columns = PartitionOrder(tuple(order.keys[number] for number in last)), _placed(columns, last)
    return LogsInColumns(order, columns)


def _joined(parts: Sequence[LogColumns]) -> LogColumns:
    if len(parts) == 1:
        return parts[0]
    topics: dict[str, int] = {}
    joined = LogColumns(
        topics=(),
        topic=array("q"),
        fields=tuple(array("q") for _ in FIELDS),
        epoch_count=array("q"),
        epochs=array("q"),
        epoch_starts=array("q"),
    )
    for part in parts:
        numbers = [topics.setdefault(name, len(topics)) for name in part.topics]
        joined.topic.extend(numbers[topic] for topic in part.topic)
        for whole, column in zip(joined.fields, part.fields, strict=True):
            whole.extend(column)
        joined.epoch_count.extend(part.epoch_count)
        joined.epochs.extend(part.epochs)
        joined.epoch_starts.extend(part.epoch_starts)
    return replace(joined, topics=tuple(topics))


def _placed(columns: LogColumns, places: Sequence[int]) -> LogColumns:
    """The columns with their partitions in another order: `places` says where each one is."""
    until = [0, *accumulate(columns.epoch_count)]
    numbers = [number for place in places for number in range(until[place], until[place + 1])]

    def placed(column: Column, order: Sequence[int]) -> Column:
        return array("q", [column[place] for place in order])

    return LogColumns(
        topics=columns.topics,
        topic=placed(columns.topic, places),
        fields=tuple(placed(column, places) for column in columns.fields),
        epoch_count=placed(columns.epoch_count, places),
        epochs=placed(columns.epochs, numbers),
        epoch_starts=placed(columns.epoch_starts, numbers),
    )


def safe_ends(logs: Mapping[TopicPartition, PartitionPosition]) -> LogEnds:
    """The offsets up to which a site keeps its logs even if their leaders die now."""
    if isinstance(logs, LogsInColumns):
        return logs.safe_ends
    return {key: position.safe_end_offset for key, position in logs.items()}


def thinned_logs(logs: Mapping[TopicPartition, PartitionPosition]) -> list[TopicPartition]:
    """The partitions from whose logs compaction may have removed records."""
    if isinstance(logs, LogsInColumns):
        return logs.thinned()
    return [key for key, position in logs.items() if position.thinned_to > position.log_start_offset]


def log_ends(logs: Mapping[TopicPartition, PartitionPosition]) -> LogEnds:
    """The ends of these logs."""
    return logs.ends if isinstance(logs, LogsInColumns) else {key: one.log_end_offset for key, one in logs.items()}
