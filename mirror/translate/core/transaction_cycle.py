"""The state machine of a translate link's successive transactions: which actions are allowed in
each phase, and when a transaction must end.

| phase | meaning | leaves it |
| --- | --- | --- |
| CLOSED | no producer, or one whose state is doubtful | `open`, after InitProducerId |
| IDLE | a producer, and no transaction | `enter`, `close` |
| FILLING | a transaction is open; writers enter, write and leave | `end`, `break_off` |
| ENDING | all is written, the requested end has no response yet | `committed`, `break_off` |

  a. A transaction is ended only when no writer is active in it, so everything in it was
     acknowledged.
  b. Every error in a transaction aborts it as a whole. The cycle continues only under a new epoch
     of the producer. InitProducerId aborts the open transaction at the target, so the progress of
     the failed one does not matter.
  c. The outcome is unknown only of a transaction whose end was requested; then (and at the
     beginning) the target's notes must be read before anything else is written (`must_read`).
  d. While a carried partition is inside a transaction of the source, the end is delayed, up to
     `hold_max_ms` and `bytes_max`. It is delayed equally for writers that already wait, so that on
     a long line a transaction has more than its first writer's batches.
  e. A full transaction ends immediately. A writer gets its answer at the end of the transaction, so
     a sender that waits for all its answers sends no more, and a delay would only stop the link.

Pure: times are monotonic milliseconds. Called by `mirror/translate/transactions.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from msgspec import Struct

from runtime.invariants import InvariantBroken
from wire.batches.record_batch import BatchHeader
from wire.protocol.ids import PartitionKey, TopicPartition


class Phase(enum.Enum):
    """The cycle's phase."""

    CLOSED = "closed"
    IDLE = "idle"
    FILLING = "filling"
    ENDING = "ending"


class CycleLimits(Struct, frozen=True, kw_only=True):
    """The moments at which a transaction ends: after `interval_ms`; if more records are expected,
    after `hold_max_ms` at the latest; immediately when it has `bytes_max`.
    """

    interval_ms: int
    hold_max_ms: int
    bytes_max: int


class TransactionCycle:
    """The machine of one link's transactions."""

    def __init__(self, limits: CycleLimits) -> None:
        self._limits = limits
        self.phase = Phase.CLOSED
        self.must_read = True
        self.writers = 0
        # Partitions of the source whose batches (or skipped batches) are in the open transaction.
        self.keys: dict[TopicPartition, None] = {}
        # Partitions of the target that belong to the open transaction.
        self.places: set[PartitionKey] = set()
        self.record_count = 0
        self._began_at_ms = 0.0
        self._size_bytes = 0
        self._is_hastened = False
        self._is_full = False
        self._refuses_all = False
        # Transactions of the source that have begun in the carried batches and not ended, by
        # partition.
        self._inside: dict[TopicPartition, set[int]] = {}

    @property
    def may_enter(self) -> bool:
        """True if a writer may enter now; else it waits for the end of the open transaction."""
        return self.phase in (Phase.IDLE, Phase.FILLING) and not self._refuses_all

    @property
    def may_end(self) -> bool:
        """True if no writer is active."""
        return self.phase is Phase.FILLING and self._refuses_all and not self.writers

    def open(self) -> None:
        """Enter IDLE: the target has given our producer an epoch, no earlier transaction is open,
        and the stored notes have been read.
        """
        self._expect(Phase.CLOSED)
        self.phase = Phase.IDLE
        self.must_read = False

    def close(self) -> None:
        """Enter CLOSED: the producer is discarded, and a new epoch is needed."""
        self._expect(Phase.IDLE)
        self.phase = Phase.CLOSED

    def enter(self, now_ms: float) -> bool:
        """A writer enters; True if it is the first one, and so begins a transaction."""
        if not self.may_enter:
            raise InvariantBroken(f"no writer may write while the transaction is {self.phase.value}")
        is_first = self.phase is Phase.IDLE
        if is_first:
            self.phase, self._began_at_ms = Phase.FILLING, now_ms
        self.writers += 1
        return is_first

    def leave(self) -> None:
        """A writer has received all its answers."""
        self._expect(Phase.FILLING)
        if not self.writers:
            raise InvariantBroken("a writer leaves a transaction that it did not enter")
        self.writers -= 1

    def carry(
        self, key: TopicPartition, headers: Iterable[BatchHeader], *, skipped: Collection[int], size_bytes: int
    ) -> None:
        """Note that a writer will write these batches of a partition, except the skipped ones."""
        self._expect(Phase.FILLING)
        self.keys[key] = None
        self._size_bytes += size_bytes
        inside = self._inside.setdefault(key, set())
        for header in headers:
            if header.is_control:
                inside.discard(header.producer_id)
            elif header.base_offset not in skipped:
                self.record_count += header.record_count
                if header.is_transactional:
                    inside.add(header.producer_id)
        if not inside:
            del self._inside[key]

    def unadded(self, places: Iterable[PartitionKey]) -> list[PartitionKey]:
        """The partitions that the coordinator does not know yet."""
        return sorted(set(places) - self.places)

    def add(self, places: Iterable[PartitionKey]) -> None:
        """Note that the coordinator has added these partitions to the transaction."""
        if self.phase not in (Phase.FILLING, Phase.ENDING):
            raise InvariantBroken(f"partitions are added to a transaction that is {self.phase.value}")
        self.places.update(places)

    def hasten(self) -> None:
        """Note that a writer waits for the end of this transaction."""
        self._is_hastened = True

    def fill(self) -> None:
        """Each sender has its maximum of writers in this transaction, and sends no more before the
        end.
        """
        self._is_full = True

    def open_for_ms(self, now_ms: float) -> float:
        """The age of the open transaction in ms; 0 when there is none."""
        return now_ms - self._began_at_ms if self.phase in (Phase.FILLING, Phase.ENDING) else 0.0

    def due_in_ms(self, now_ms: float, *, is_writer_coming: bool = False) -> float:
        """The time (ms) for which the open transaction may continue; 0 if it must end.
        `is_writer_coming`: a writer has not entered yet.
        """
        if self._is_full or self._size_bytes >= self._limits.bytes_max:
            return 0
        # The end could tear only transactions of the source whose batches this transaction carries.
        is_inside = any(key in self._inside for key in self.keys)
        last_ms = self._limits.hold_max_ms if is_inside else 0 if self._is_hastened else self._limits.interval_ms
        if is_writer_coming and not self._is_hastened:
            last_ms = max(last_ms, self._limits.hold_max_ms)
        return max(0.0, self._began_at_ms + last_ms - now_ms)

    def refuse_all(self) -> None:
        """The transaction is about to end: admit no new writers, and let the active ones finish."""
        self._expect(Phase.FILLING)
        self._refuses_all = True

    def end(self) -> None:
        """Enter the phase in which the notes of the transaction are written, and then its end."""
        if not self.may_end:
            raise InvariantBroken(f"{self.writers} are still writing in the transaction that must end")
        self.phase = Phase.ENDING

    def committed(self) -> None:
        """The target has confirmed the end."""
        self._expect(Phase.ENDING)
        self._forget(Phase.IDLE)

    def break_off(self) -> None:
        """Mark the open transaction and its producer as unreliable."""
        self.must_read = self.must_read or self.phase is Phase.ENDING
        self._inside.clear()
        self._forget(Phase.CLOSED)

    def _forget(self, phase: Phase) -> None:
        self.phase = phase
        self.writers = 0
        self.keys.clear()
        self.places.clear()
        self.record_count = 0
        self._size_bytes = 0
        self._is_hastened = self._is_full = self._refuses_all = False

    def _expect(self, phase: Phase) -> None:
        if self.phase is not phase:
            raise InvariantBroken(f"the transaction is {self.phase.value} where it must be {phase.value}")
