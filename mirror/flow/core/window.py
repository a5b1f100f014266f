"""One partition's batches between the queue and the target's acknowledgement, in order.

A window keeps what was sent until it is acknowledged, so that a lost connection or a moved leader
means sending again, not fetching again. The target makes that safe: a batch that is already there
is acknowledged, one that does not continue the log is refused. Called by the producer that owns the
partition.

  a. Entries of one generation form a chain: each expects the end that the one before leaves.
  b. After a failure nothing is sent until everything in flight has been answered; then all
     unacknowledged entries, in order.
  c. A discarded generation is settled once nothing of it is in flight.

Small entries that wait for their turn are joined: while a target is slow, requests become larger
and not more.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from mirror.link.core.partitions import BatchRun, joined
from wire.protocol.ids import TopicPartition

JOINED_BYTES_MAX = 256 * 1024
"""Entries are joined up to this size. Joining copies the bytes, which costs less than a request of
their own.
"""


class ChainBroken(Exception):
    """An entry does not continue the previous one: something was lost or reordered between fetcher
    and producer.
    """


class QueuedBatches(Struct, frozen=True, kw_only=True):
    """Batches that are being mirrored; `records` is a view into the buffer in which they were
    received.
    """

    key: TopicPartition
    generation: int
    expected_log_end_offset: int
    run: BatchRun
    records: memoryview
    fetched_at_ms: int = -1
    # The same moment by the monotonic clock.
    fetched_monotonic_ms: float = 0.0
    # Base offsets of batches that a translate link does not carry.
    skipped: frozenset[int] = frozenset()

    @property
    def size_bytes(self) -> int:
        """Bytes that the queue accounts for them."""
        return self.run.size_bytes

    def joined(self, following: QueuedBatches) -> QueuedBatches | None:
        """Both as one entry, with the age of the older one; None if they are not to be joined."""
        if self.generation != following.generation or self.size_bytes + following.size_bytes > JOINED_BYTES_MAX:
            return None
        run = joined(self.run, following.run)
        if run is None:
            return None
        return replace(
            self,
            run=run,
            records=memoryview(b"".join((self.records, following.records))),
            skipped=self.skipped | following.skipped,
        )


class SendWindow:
    """The unacknowledged entries of one partition. Not concurrent: one producer owns it."""

    def __init__(self) -> None:
        self.generation = 0
        self._entries: deque[QueuedBatches] = deque()
        self._sent = 0
        self._in_flight = 0
        # The offset after all entries of this generation that were ever sent.
        self._sent_until = 0
        self._dropped_in_flight_bytes = 0
        self._is_failed = False

    @property
    def is_idle(self) -> bool:
        """True when nothing is kept and nothing is in flight."""
        return not self._entries and not self._in_flight

    @property
    def unacknowledged(self) -> tuple[QueuedBatches, ...]:
        """The batches that the target does not have yet, the oldest first; a copy, because a thread
        of their own reads metrics.
        """
        return tuple(self._entries)

    @property
    def kept_bytes(self) -> int:
        """Bytes that the window holds, those of a discarded generation in flight included."""
        return sum(entry.size_bytes for entry in self._entries) + self._dropped_in_flight_bytes

    def follows_a_failure(self, entry: QueuedBatches) -> bool:
        """True if the target refused an earlier batch: a refusal of this one may then be a
        consequence.
        """
        return self._is_failed and bool(self._entries) and self._entries[0] is not entry

    def push(self, entry: QueuedBatches) -> bool:
        """Add an entry; False if its generation has ended. Raises ChainBroken if it does not
        continue the last one.
        """
        if entry.generation != self.generation:
            return False
        if self._entries and self._entries[-1].run.next_offset != entry.expected_log_end_offset:
            last = self._entries[-1].run.next_offset
            raise ChainBroken(
                f"{entry.key}: batches that expect {entry.expected_log_end_offset} follow an end of {last}"
            )
        # An entry that was sent stays as it is: the target recognises the same pieces more easily.
        if self._entries and self._entries[-1].run.first_offset >= self._sent_until:
            both = self._entries[-1].joined(entry)
            if both is not None:
                self._entries[-1] = both
                return True
        self._entries.append(entry)
        return True

    def next_to_send(self) -> QueuedBatches | None:
        """The first entry that is neither sent nor waiting for a failure to settle."""
        # (b): the target would refuse an entry that arrives before the failed one.
        if self._is_failed or self._sent >= len(self._entries):
            return None
        return self._entries[self._sent]

    def mark_sent(self) -> None:
        """The entry of `next_to_send` is in flight."""
        self._sent_until = max(self._sent_until, self._entries[self._sent].run.next_offset)
        self._sent += 1
        self._in_flight += 1

    def acknowledge(self, entry: QueuedBatches, log_end_offset: int) -> list[QueuedBatches]:
        """The target has everything below `log_end_offset`: return the entries that are
        complete.
        """
        if not self._answered(entry):
            return []
        done: list[QueuedBatches] = []
        # The target's end decides and not the single entry, because one answer may confirm several
        # earlier entries.
        while self._entries and self._entries[0].run.next_offset <= log_end_offset:
            done.append(self._entries.popleft())
        # Some of them may be marked as unsent after a failure, although the target has them.
        self._sent = max(0, self._sent - len(done))
        return done

    def fail(self, entry: QueuedBatches) -> None:
        """The entry must be sent again, and everything after it."""
        if self._answered(entry):
            # The other answers in flight show where the target's log ends, so nothing is sent
            # before they arrive.
            self._is_failed = self._in_flight > 0
            if not self._is_failed:
                self._sent = 0

    def discard(self, generation: int) -> int:
        """Drop everything older than `generation`; return the bytes freed now. Batches in flight
        follow in `settle`.
        """
        self.generation = generation
        in_flight = min(self._sent, len(self._entries))
        freed = 0
        for position, entry in enumerate(self._entries):
            # The request in flight still reads from these buffers, so their bytes stay accounted.
            if position < in_flight and self._in_flight:
                self._dropped_in_flight_bytes += entry.size_bytes
            else:
                freed += entry.size_bytes
        self._entries.clear()
        self._sent = self._sent_until = 0
        self._is_failed = False
        return freed

    def settle(self) -> int | None:
        """None while an older generation has batches in flight, else the bytes that were kept for
        them.
        """
        if self._in_flight:
            return None
        freed, self._dropped_in_flight_bytes = self._dropped_in_flight_bytes, 0
        return freed

    def _answered(self, entry: QueuedBatches) -> bool:
        """Count an answer; True if it belongs to the current generation."""
        self._in_flight -= 1
        if entry.generation != self.generation:
            return False
        if self._is_failed and not self._in_flight:
            self._is_failed = False
            self._sent = 0
        return True
