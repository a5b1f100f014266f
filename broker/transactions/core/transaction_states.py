"""A transactional id as a value: who produces under it now, and how far its transaction is. Pure
and immutable.

| state | meaning | left by |
| --- | --- | --- |
| EMPTY | a producer id is handed out, nothing was written | the first partition |
| ONGOING | partitions take part | the producer's end, its timeout, or another producer with the same transactional id |
| PREPARE_COMMIT, PREPARE_ABORT | decided; markers are on their way to the partitions | the last marker |
| COMPLETE_COMMIT, COMPLETE_ABORT | every partition has its marker | the next first partition, or a new producer |

The last marker of an abandoned transaction leaves its carried producer EMPTY.

A state counts once its record is in `__transaction_state`. The decision to commit is the
PREPARE_COMMIT record: from then on every coordinator that reads it finishes the commit. Only
`last_producer_epoch` lives in memory alone (it lets a producer repeat its request for a new epoch);
`durable` is the projection that a replay of the log must reproduce.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from broker.transactions.core.producer_ids import PRODUCER_EPOCH_MAX
from wire.protocol.ids import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

FENCING_EPOCH_MAX: Final = PRODUCER_EPOCH_MAX + 1
"""An epoch that only markers carry, so that a producer with the last epoch can still be fenced."""


BUMPING_CLIENT_VERSION: Final = 2
"""transaction.version of a producer whose transactions each have an epoch of their own
(KIP-890).
"""


class TransactionState(enum.IntEnum):
    """Kafka's numbers in the log; `label` is how its tools print them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Such as `CompleteCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """True while markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_over(self) -> bool:
        """True when nothing is open under the transactional id."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class Transaction(Struct, frozen=True, kw_only=True):
    """One transactional id; see the module."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    """The transaction.version that the producer speaks."""
    last_producer_epoch: int = NO_EPOCH
    is_carried: bool = False
    """The producer works at the other site, as a mirror reports, or its transaction was abandoned
    here when that site became active: it never goes on here under this id.
    """

    @property
    def has_used_up_epochs(self) -> bool:
        """True when the next epoch needs a new producer id."""
        return self.producer_epoch >= PRODUCER_EPOCH_MAX

    def is_same_producer(self, other: Transaction) -> bool:
        """True when both name one producer, with one epoch and timeout."""
        ours = (self.producer_id, self.producer_epoch, self.timeout_ms)
        return ours == (other.producer_id, other.producer_epoch, other.timeout_ms)

    @property
    def deadline_ms(self) -> int:
        """Unix time at which an ongoing transaction is given up."""
        return self.started_ms + self.timeout_ms

    def of_new_producer(self, producer_id: int, *, timeout_ms: int, now_ms: int) -> Transaction:
        """Handed to a producer under a new id, epoch 0."""
        # the previous id lets the producer find out about an id change when a response was lost
        # (KIP-360)
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            started_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
            last_producer_epoch=NO_EPOCH,
            is_carried=False,
        )

    def in_epoch(self, epoch: int, last_epoch: int, *, timeout_ms: int, now_ms: int) -> Transaction:
        """Handed to a producer under this epoch."""
        return replace(
            self,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            started_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], *, client_version: int, now_ms: int) -> Transaction:
        """A copy in which these partitions take part."""
        is_first = self.state is not TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions | frozenset(partitions),
            # added partitions do not extend the timeout
            started_ms=now_ms if is_first else self.started_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def ending(
        self,
        *,
        is_commit: bool,
        epoch: int,
        next_producer_id: int,
        last_epoch: int,
        now_ms: int,
        client_version: int,
    ) -> Transaction:
        """Decided: markers of this epoch must reach the partitions."""
        return replace(
            self,
            state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            producer_epoch=epoch,
            next_producer_id=next_producer_id,
            last_producer_epoch=last_epoch,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def abandoned(self, *, now_ms: int) -> Transaction:
        """Aborted because another site coordinates now, and the producer keeps its epoch there: the
        markers are those of the older protocol, and have the transaction's own epoch.
        """
        return replace(
            self,
            state=TransactionState.PREPARE_ABORT,
            next_producer_id=NO_PRODUCER_ID,
            last_producer_epoch=NO_EPOCH,
            updated_ms=now_ms,
            client_version=0,
            is_carried=True,
        )

    def ended(self, *, now_ms: int) -> Transaction:
        """Every partition has its marker; a producer whose epochs are used up continues under its
        next id.
        """
        if self.is_carried:
            # the other site's coordinator ends it for the producer, so this site keeps the
            # producer's epoch
            return replace(self, state=TransactionState.EMPTY, partitions=frozenset(), updated_ms=now_ms)
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        is_rotated = self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
            producer_id=self.next_producer_id if is_rotated else self.producer_id,
            producer_epoch=0 if is_rotated else self.producer_epoch,
            previous_producer_id=self.producer_id if is_rotated else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def durable(self) -> Transaction:
        """The part of this value that the log holds."""
        # only retries need the last epoch, and Kafka's record has no field for it
        return replace(self, last_producer_epoch=NO_EPOCH)

    def violations(self) -> Iterable[str]:
        """The invariants that this value violates; none for a sound value."""
        if self.state.is_over and self.partitions:
            yield f"state {self.state.label} with {len(self.partitions)} partitions"
        if self.state is TransactionState.ONGOING and not self.partitions:
            yield "an ongoing transaction without partitions"
        if not 0 <= self.producer_epoch <= FENCING_EPOCH_MAX:
            yield f"producer epoch {self.producer_epoch}"
        if self.is_carried and self.state not in (TransactionState.EMPTY, TransactionState.PREPARE_ABORT):
            yield f"carried, and in state {self.state.label}"
        if self.producer_id < 0:
            yield "no producer id"
        if self.next_producer_id != NO_PRODUCER_ID and not self.state.is_ending:
            yield f"a next producer id in state {self.state.label}"
