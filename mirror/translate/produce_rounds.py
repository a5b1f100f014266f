"""One append to the target of a translate link as Produce requests: parts that are planned and
renumbered, then sent in rounds.

Kafka takes one batch a partition and request, so small batches of an entry are merged
(`core/merging.py`), and what is still several batches becomes several requests: a round is the next
batch of each partition. The callers, `translated_append.py` and
`transactional_append.py`, interpret the outcomes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from mirror.link.core.topic_naming import Naming
from mirror.link.ports import AppendAnswer, AppendPart
from mirror.sites.kafka_site import reached
from mirror.translate.core.merging import ToSend, grouped, merged
from mirror.translate.core.renumbering import renumber
from mirror.translate.core.translation import BrokenOff, NotTheNextBatch, Planned, Translation
from wire.batches.record_batch import BatchHeader, InvalidBatch, PatchedBatch, iterate_headers
from wire.client.connection import Connection
from wire.client.requests import broker_requests as requests
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.produce_codec import PartitionProduced, PartitionRecords, ProduceRequest, TopicRecords

_REFUSED_AS_A_WHOLE: Final = frozenset(
    {
        ErrorCode.corrupt_message,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.message_too_large,
        ErrorCode.policy_violation,
        ErrorCode.record_list_too_large,
    }
)
"""Errors that concern a batch or a record of it, so that other batches may be accepted."""


class OutgoingBatch(NamedTuple):
    """One batch of a request, and the planned batches of the source whose records it has."""

    plans: Sequence[Planned]
    # A header, and records that are those of the fetched bytes where they are unchanged.
    batch: PatchedBatch

    @property
    def size_bytes(self) -> int:
        """Size of the batch."""
        return len(self.batch.prefix) + len(self.batch.rest)

    def placed(self, base_offset: int) -> Iterator[tuple[Planned, int]]:
        """The planned batches with their offsets at the target, where this one has
        `base_offset`.
        """
        for plan in self.plans:
            yield plan, base_offset
            base_offset += plan.count


@dataclass(slots=True)
class OutgoingPart:
    """One partition of a call: its batches in order, and the first error."""

    part: AppendPart
    translation: Translation
    # Where the batches are in `part.records`, also those that are not sent.
    places: list[tuple[int, BatchHeader]] = field(init=False)
    headers: list[BatchHeader] = field(init=False)
    to_send: list[OutgoingBatch] = field(default_factory=list)
    error: ErrorCode = ErrorCode.none
    message: str = ""

    def __post_init__(self) -> None:
        self.places = list(iterate_headers(self.part.records))
        self.headers = [header for _, header in self.places]

    @property
    def next_offset(self) -> int:
        """The source's offset after all of them."""
        return self.headers[-1].next_offset

    def fail(self, error: ErrorCode, message: str) -> None:
        """Note that this batch failed: no later batch may be sent before it is sent again."""
        # the sequences of later batches assume this one, so the target would refuse them
        self.translation.break_off()
        if self.error is ErrorCode.none:
            self.error, self.message = error, message

    def refuse(self, code: ErrorCode, message: str | None, refused: OutgoingBatch) -> None:
        """The target refused a batch of it."""
        if len(refused.plans) > 1 and code in _REFUSED_AS_A_WHOLE:
            # the batch that the target does not accept is then known, and those before it are
            # accepted
            self.translation.is_merging = False
            reason = f"the target refused merged batches, they are sent one by one: {code.name}: {message}"
            self.fail(ErrorCode.request_timed_out, reason)
        elif code is ErrorCode.invalid_record:
            # These errors concern single records that a topic refuses, such as records without a
            # key in a compacted topic.
            self.fail(ErrorCode.policy_violation, f"{code.name}: {message}")
        else:
            self.fail(code, message or code.name)

    def plan(self, producer_of: Callable[[BatchHeader], int], *, is_transactional: bool = False) -> None:
        """Plan the batches and renumber what is to be sent; a part that cannot be planned has
        failed.
        """
        part = self.part
        try:
            plans = self.translation.plan(
                self.headers,
                expected=part.expected_log_end_offset,
                skipped=part.skipped,
                producer_of=producer_of,
                log_start_offset=part.source_log_start_offset,
            )
            batches = [
                ToSend(place, header, plan, plan.stamp)
                for (place, header), plan in zip(self.places, plans, strict=True)
                if plan is not None and plan.stamp is not None
            ]
            for group in grouped(batches, is_merging=self.translation.is_merging):
                self.to_send += self._outgoing(group, is_transactional=is_transactional)
        except BrokenOff as error:
            self.fail(ErrorCode.request_timed_out, str(error))
        except NotTheNextBatch as error:
            self.fail(ErrorCode.offset_out_of_range, str(error))
        except InvalidBatch as error:
            # all or nothing: a part of the batches would leave a gap in the sequences
            self.to_send.clear()
            self.fail(ErrorCode.corrupt_message, str(error))

    def _outgoing(self, group: Sequence[ToSend], *, is_transactional: bool) -> Iterator[OutgoingBatch]:
        """The batches to send for a group. Raises InvalidBatch."""
        records = self.part.records
        if len(group) > 1:
            try:
                batch = merged(records, group, is_transactional=is_transactional)
            except InvalidBatch:
                pass  # the single batches go as they are, and the target judges them
            else:
                yield OutgoingBatch([one.plan for one in group], batch)
                return
        for position, header, plan, stamp in group:
            renumbered = renumber(records, position, header, stamp, is_transactional=is_transactional)
            plan.pieces = renumbered.pieces
            yield OutgoingBatch([plan], renumbered.batch)


Part = TypeVar("Part", bound=OutgoingPart)

Round = list[tuple[Part, OutgoingBatch]]


def rounds_of(parts: Sequence[Part]) -> list[Round[Part]]:
    """The first batch of each part, the second one of each, and so on."""
    # one batch of a partition in each request: a Produce request has one set of records for a
    # partition
    rows = zip_longest(*([(part, sent) for sent in part.to_send] for part in parts))
    return [[one for one in row if one is not None] for row in rows]


async def send_round(
    connection: Connection, sent: Round[Part], naming: Naming, *, transactional_id: str | None = None, timeout_ms: int
) -> list[tuple[Part, OutgoingBatch, PartitionProduced | None]]:
    """One request; returns each batch's outcome, None where the broker reports none. Unreachable:
    the outcome is unknown.
    """
    by_topic: dict[str, list[PartitionRecords]] = {}
    for part, one in sent:
        key = part.part.key
        records = PartitionRecords(key.partition, one.batch.rest, one.batch.prefix)
        by_topic.setdefault(naming.target_name(key.topic), []).append(records)
    listed = [TopicRecords(name, None, partitions) for name, partitions in by_topic.items()]
    request = ProduceRequest(transactional_id, -1, timeout_ms, listed)
    response = await reached(requests.request_produce(connection, request))
    outcomes: dict[tuple[str, int], PartitionProduced] = {}
    if response is not None:
        for topic in response.topics:
            outcomes.update({(topic.name, produced.partition_index): produced for produced in topic.partitions})
    return [
        (part, one, outcomes.get((naming.target_name(part.part.key.topic), part.part.key.partition)))
        for part, one in sent
    ]


async def all_of(sending: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all calls; afterwards raise Unreachable if one of them had no answer."""
    # all outcomes first: the other requests may still be written while one has failed
    outcomes = await asyncio.gather(*sending, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def answered(key: TopicPartition, error: ErrorCode, message: str, log_end_offset: int) -> AppendAnswer:
    """An answer in the source's offsets; a translate link has neither epochs nor divergence."""
    return AppendAnswer(
        key=key,
        error=error,
        message=message,
        log_end_offset=log_end_offset,
        link_epoch=0,
        divergence_epoch=-1,
        divergence_end_offset=-1,
    )
