"""Entries of the quarantine as records at the active site, each record once.

The records are written in transactions of one producer for each partition, in the order of the
entry, with their keys, values, headers and times, and with provenance headers (`replayed.py`). A
run first takes the producer's transactional id over, which aborts what an earlier run left open and
fences it, and then looks which records are there: so a run that is killed at any moment, or made
again, writes no record twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cli.recovery.quarantined.entries import batches
from cli.recovery.quarantined.fates import Fate, Fates
from cli.recovery.quarantined.replayed import Origin, Replayed, TargetLog
from cli.shared.kafka_admin import librdkafka_settings
from cli.shared.output import report_progress
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from wire.batches.record_batch import BatchHeader
    from wire.batches.records import Record
    from wire.client.raw_client import KafkaClient

RECORDS_PER_TRANSACTION = 500
BYTES_PER_TRANSACTION = 1 << 20
ANSWER_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The request. `topic` None: the entry's own topic. `may_repeat`: continue although the active
    site has lost the part of its log in which an earlier replay might be.
    """

    to: str
    topic: str | None = None
    with_aborted: bool = False
    with_open: bool = False
    may_repeat: bool = False
    is_dry_run: bool = False


@dataclass(slots=True)
class Replay:
    """The replay of one entry: call `run`, then read the counts."""

    entry: Mapping[str, Any]
    plan: ReplayPlan
    counts: Counter[str] = field(default_factory=Counter)
    """Records by outcome: replayed, present, aborted, open; and markers."""

    @property
    def topic(self) -> str:
        """The topic that receives the records."""
        return self.plan.topic or str(self.entry["topic"])

    def document(self) -> dict[str, Any]:
        """The result for `--output json`."""
        kinds = ("replayed", "present", "aborted", "open", "markers")
        place = {
            field: self.entry[field] for field in ("name", "broker", "topic", "partition", "first_offset", "end_offset")
        }
        counts = {kind: self.counts[kind] for kind in kinds}
        return {**place, "to_topic": self.topic, "is_dry_run": self.plan.is_dry_run, **counts}

    async def run(self, client: KafkaClient, *, topic_id: str, advance: Callable[[int], None]) -> None:
        """Replay the records that the active site does not have. `topic_id` is that of the topic at
        the active site. OperationalFailure.
        """
        fates = Fates()
        async for position, header, batch in batches(client, dict(self.entry)):
            fates.take(position, header, is_abort=_is_abort(batch, header))
        target = TargetLog(self.plan.to, self.topic, int(self.entry["partition"]))
        producer = None if self.plan.is_dry_run else await asyncio.to_thread(self._producer)
        try:
            known = await asyncio.to_thread(self._known, target, topic_id)
            waiting: list[tuple[Origin, Record]] = []
            size_bytes = 0
            async for origin, record, batch_bytes in self._wanted(client, fates, known):
                if origin is not None and record is not None:
                    waiting.append((origin, record))
                    size_bytes += len(record.key or b"") + len(record.value or b"")
                if len(waiting) >= RECORDS_PER_TRANSACTION or size_bytes >= BYTES_PER_TRANSACTION:
                    await self._send(producer, waiting)
                    waiting, size_bytes = [], 0
                advance(batch_bytes)
            await self._send(producer, waiting)
        finally:
            del producer

    def _known(self, target: TargetLog, topic_id: str) -> Replayed:
        """The records of the entry that the active site has. Below the entry's first offset both
        logs are the same, so none of them can be there; a topic that was created again has other
        offsets.
        """
        log_start, log_end = target.bounds()
        is_same = bool(topic_id) and topic_id == self.entry["topic_id"] and self.topic == self.entry["topic"]
        start = int(self.entry["first_offset"]) if is_same else 0
        first = max(start, log_start)
        report_progress(
            f"{target.topic}-{target.partition}: looking for replayed records, offsets {first} to {log_end}"
        )
        known = target.replayed(first, log_end)
        known.lacks_beginning = log_start > start and len(known) > 0
        if log_start > start and not known.lacks_beginning and not self.plan.may_repeat:
            raise OperationalFailure(
                f"{target.topic}-{target.partition} begins at offset {log_start} now, and an earlier replay of {self.entry['name']} "
                f"may have been written from offset {start} on and removed since: --again replays it all the same"
            )
        return known

    async def _wanted(
        self, client: KafkaClient, fates: Fates, known: Replayed
    ) -> AsyncIterator[tuple[Origin | None, Record | None, int]]:
        """The records that are to be written, in order; behind the last one of a batch its size in
        bytes, without a record.
        """
        from wire.batches.records import decode_records

        left_out = {Fate.ABORTED: not self.plan.with_aborted, Fate.OPEN: not self.plan.with_open}
        first_offset = int(self.entry["first_offset"])
        async for position, header, batch in batches(client, dict(self.entry)):
            fate = fates.of(position)
            if fate is Fate.MARKER:
                self.counts["markers"] += 1
            else:
                for record in decode_records(batch):
                    origin = self._origin(header.partition_leader_epoch, record.offset)
                    if record.offset < first_offset:
                        continue
                    if left_out.get(fate, False):
                        self.counts[fate.value] += 1
                    elif known.has(origin):
                        self.counts["present"] += 1
                    else:
                        known.add(origin)
                        yield origin, record, 0
            yield None, None, header.size_bytes

    def _origin(self, leader_epoch: int, offset: int) -> Origin:
        entry = self.entry
        return Origin(
            site=entry["origin_site"],
            topic=entry["topic"],
            topic_id=entry["topic_id"],
            partition=entry["partition"],
            leader_epoch=leader_epoch,
            offset=offset,
        )

    # --- writing

    def _producer(self) -> Any:
        """Make a producer for one source partition: a second run replaces it."""
        from confluent_kafka import KafkaException, Producer

        origin = self.entry["topic_id"] or self.entry["topic"]
        made = Producer(
            {
                **librdkafka_settings(self.plan.to),
                "transactional.id": f"antipode-quarantine-replay-{origin}-{self.entry['partition']}",
            }
        )
        try:
            made.init_transactions(ANSWER_WITHIN_S)
        except KafkaException as error:
            raise OperationalFailure(f"--to {self.plan.to}: {error.args[0].str()}") from error
        return made

    async def _send(self, producer: Any, records: list[tuple[Origin, Record]]) -> None:
        if records and producer is not None:
            await asyncio.to_thread(self._commit, producer, records)
        self.counts["replayed"] += len(records)

    def _commit(self, producer: Any, records: list[tuple[Origin, Record]]) -> None:
        """Commit all these records, or none. Raises OperationalFailure; another run of the command
        continues with the records that were not committed.
        """
        from confluent_kafka import KafkaException

        first, last = records[0][0].offset, records[-1][0].offset
        try:
            producer.begin_transaction()
            for origin, record in records:
                producer.produce(
                    self.topic,
                    record.value,
                    record.key,
                    partition=int(self.entry["partition"]),
                    timestamp=max(record.timestamp_ms, 0),
                    headers=[*origin.headers(str(self.entry["name"])), *record.headers],
                )
            _until_answered(producer.commit_transaction)
        except (KafkaException, BufferError, UnicodeEncodeError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise OperationalFailure(
                f"offsets {first} to {last} of {self.entry['name']} could not be written to {self.topic}: {reason}; the records "
                "that were committed before are there, and another run continues after them"
            ) from error


def _until_answered(end: Callable[[float], None]) -> None:
    """A commit without an answer continues at the next call."""
    from confluent_kafka import KafkaException

    while True:
        try:
            end(ANSWER_WITHIN_S)
        except KafkaException as error:
            if error.args[0].retriable():
                continue
            raise
        return


def _is_abort(batch: bytes, header: BatchHeader) -> bool:
    from clients.reader.core.committed import is_abort_marker

    return header.is_control and is_abort_marker(batch, 0, header)
