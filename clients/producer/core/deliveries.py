"""Decides what a Produce response means for a batch, and gives batches their sequence numbers.
Pure; the producer calls it.
"""

from __future__ import annotations

import enum
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from clients.producer.core.accumulator import NO_IDENTITY, Outgoing, ProducerIdentity
from wire.protocol.ids import PartitionKey

_SEQUENCE_MASK = 0x7FFFFFFF


class Verdict(enum.Enum):
    """The next step for a batch that has a response."""

    DELIVERED = "delivered"
    SEND_AGAIN = "send again"
    GIVE_UP = "give up"


_IDENTITY_LOST = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
    }
)


MAY_BE_APPENDED = frozenset(
    {ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append, ErrorCode.unknown_server_error}
)
"""Errors after which the batch may be in the log."""


def judge(code: ErrorCode) -> Verdict:
    """A duplicate is a success for an idempotent producer after a lost answer: the log has the
    batch.
    """
    if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
        return Verdict.DELIVERED
    if code in _IDENTITY_LOST or not code.retriable:
        return Verdict.GIVE_UP
    return Verdict.SEND_AGAIN


class Sequences(Struct):
    """The identity of a producer and the next sequence of each partition.

    A batch keeps its identity for all its attempts. If a batch that was sent expires, the sequence
    that its partition expects is unknown: the producer drops its producer id, and the next one
    begins at 0 in every partition.
    """

    identity: ProducerIdentity = NO_IDENTITY
    _next: dict[PartitionKey, int] = field(default_factory=dict)

    def renew(self, identity: ProducerIdentity) -> None:
        """Begin anew."""
        self.identity = identity
        self._next.clear()

    def stamp(self, batch: Outgoing[Any]) -> None:
        """Give a batch that is sent for the first time its identity and sequence."""
        if batch.attempts or self.identity == NO_IDENTITY:
            return
        batch.identity = self.identity
        batch.base_sequence = self._next.get(batch.place, 0)
        self._next[batch.place] = (batch.base_sequence + batch.record_count) & _SEQUENCE_MASK

    def take_back(self, batch: Outgoing[Any]) -> None:
        """The broker refused the only batch in flight of its partition and did not append it: the
        next batch gets its sequence.
        """
        if batch.identity != NO_IDENTITY and batch.identity == self.identity and not batch.is_doubtful:
            self._next[batch.place] = batch.base_sequence
            batch.identity = NO_IDENTITY

    def is_over_with(self, batch: Outgoing[Any]) -> bool:
        """True if giving this batch up leaves a gap in the sequence of the current producer id."""
        return batch.attempts > 0 and batch.identity != NO_IDENTITY and batch.identity == self.identity
