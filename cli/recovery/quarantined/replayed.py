"""Finds the records of an entry that the active site has, by the provenance headers of replayed
records.

A record is known by topic, partition, leader epoch and offset of the log that it was removed from:
no two records of one topic id share these. The log is read up to the end that it has when the
search begins, committed records only; while a transaction of another producer is open below that
end, the search waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from cli.shared.kafka_admin import librdkafka_settings
from runtime.process import OperationalFailure

HEADER_PREFIX = "antipode.origin."
ENTRY_HEADER = "antipode.quarantine.entry"
ANSWER_WITHIN_S = 30.0
SILENT_MAX_S = 120.0
"""Time (s) that the search waits for transactions of other producers; longer than most transactions
may take.
"""


class Origin(NamedTuple):
    """The place of a record before its removal; `topic_id` is empty where it is unknown."""

    site: str
    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    offset: int

    def headers(self, entry: str) -> list[tuple[str, bytes]]:
        """The headers that the replayed record has in front of its own."""
        found = [(f"{HEADER_PREFIX}{name}", str(value).encode()) for name, value in self._asdict().items()]
        return [*found, (ENTRY_HEADER, entry.encode())]

    @classmethod
    def all_of(cls, headers: Iterable[tuple[str, Any]]) -> list[Origin]:
        """The origins by the headers of a record, in their order. A record that was replayed,
        removed, and replayed again has several; one that was never replayed has none.
        """
        values: dict[str, list[str]] = {}
        for name, value in headers:
            if name.startswith(HEADER_PREFIX):
                text = (value or b"").decode(errors="replace")
                values.setdefault(name.removeprefix(HEADER_PREFIX), []).append(text)
        found: list[Origin] = []
        for texts in zip(*(values.get(name, ()) for name in cls._fields), strict=False):
            fields: dict[str, Any] = dict(zip(cls._fields, texts, strict=True))
            try:
                numbers = {name: int(fields[name]) for name in ("partition", "leader_epoch", "offset")}
            except ValueError:
                continue
            found.append(cls(**{**fields, **numbers}))
        return found


class Replayed:
    """The records that are there."""

    def __init__(self) -> None:
        self._by_id: set[tuple[str, str, int, int, int]] = set()
        self._by_name: set[tuple[str, int, int, int]] = set()
        self.lacks_beginning = False
        """The log has lost the records that were replayed first: records of an entry before its
        first present record were present too.
        """

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, origin: Origin) -> None:
        """A record is there."""
        place = (origin.topic, origin.partition, origin.leader_epoch, origin.offset)
        self._by_id.add((origin.topic_id, *place))
        self._by_name.add(place)

    def has(self, origin: Origin) -> bool:
        """True if the log has the record, or had it; if one side does not know the topic id, the
        name decides. Ask in the order of the entry.
        """
        is_here = self._is_here(origin)
        self.lacks_beginning = self.lacks_beginning and not is_here
        return is_here or self.lacks_beginning

    def _is_here(self, origin: Origin) -> bool:
        place = (origin.topic, origin.partition, origin.leader_epoch, origin.offset)
        if not origin.topic_id:
            return place in self._by_name
        return (origin.topic_id, *place) in self._by_id or ("", *place) in self._by_id


class TargetLog(NamedTuple):
    """One partition of the active site."""

    bootstrap_servers: str
    topic: str
    partition: int

    def bounds(self) -> tuple[int, int]:
        """The current start and end of the log, open transactions included. Raises
        OperationalFailure.
        """
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer("read_uncommitted")
        try:
            found = consumer.get_watermark_offsets(TopicPartition(self.topic, self.partition), timeout=ANSWER_WITHIN_S)
        except KafkaException as error:
            raise OperationalFailure(f"{self.topic}-{self.partition}: {error.args[0].str()}") from error
        finally:
            consumer.close()
        return (int(found[0]), int(found[1]))

    def replayed(self, start: int, end: int) -> Replayed:
        """The replayed records between these offsets. Raises OperationalFailure when a transaction
        of another producer stays open below the end, or no broker answers.
        """
        from confluent_kafka import KafkaError, TopicPartition

        found = Replayed()
        if start >= end:
            return found
        consumer = self._consumer("read_committed")
        at, moved_at_s = start, time.monotonic()
        try:
            consumer.assign([TopicPartition(self.topic, self.partition, start)])
            while at < end:
                if time.monotonic() - moved_at_s > SILENT_MAX_S:
                    raise OperationalFailure(
                        f"{self.topic}-{self.partition} cannot be read from offset {at} to {end}: a transaction of another "
                        "producer is open there (antipode transactions find-hanging), or no broker answers"
                    )
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    continue  # librdkafka retries by itself
                assert offset is not None
                if error is None and offset < end:
                    for origin in Origin.all_of(message.headers() or ()):
                        found.add(origin)
                reached = offset + 1 if error is None else offset
                if reached > at:
                    at, moved_at_s = reached, time.monotonic()
        finally:
            consumer.close()
        return found

    def _consumer(self, isolation: str) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                **librdkafka_settings(self.bootstrap_servers),
                "group.id": "antipode-quarantine-replay",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )
