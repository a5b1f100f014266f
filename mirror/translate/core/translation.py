"""One partition of a translate link: its mirrored position, its sequences, and the batches in
flight.

The sequence of every batch follows from the source's log alone: the records mirrored before it. So
two mirrors of one partition, or one that was killed and its successor, would write the same batches
with the same sequences, and the target appends each once and in order. No request that was late,
repeated or sent by the wrong mirror can do harm (M11).

  a. Batches are confirmed in the order of the source, for any order of the answers.
  b. A batch that was not confirmed and is planned again gets the same stamp.
  c. The position never passes a batch that is neither confirmed nor left out on purpose.

`translations.py` stores this state as the link's notes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from mirror.translate.core.offset_map import OffsetMap
from mirror.translate.core.renumbering import Piece, Stamp, next_sequence
from wire.batches.record_batch import BatchHeader

START = 0


class NotTheNextBatch(Exception):
    """The batches do not continue the planned or confirmed ones."""


class BrokenOff(Exception):
    """Earlier batches were not acknowledged; these must wait until the earlier ones have been sent
    again.
    """


class TargetWentBack(Exception):
    """The target gave a batch an offset below its earlier end, so its log was truncated or created
    again.
    """


@dataclass(slots=True)
class Planned:
    """A batch in flight: its source offsets and its stamp; None for a skipped one."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    count: int
    stamp: Stamp | None
    pieces: tuple[Piece, ...] = ()
    # The target's offset of its first record; None until it is known.
    target_offset: int | None = None

    @property
    def is_done(self) -> bool:
        """True if the batch awaits no confirmation."""
        return self.stamp is None or self.target_offset is not None


@dataclass(slots=True)
class Surplus:
    """The records of a partition in the target's log beyond one copy of each, since this process
    began.
    """

    # Offsets between our batches, or between ours in a tail that was read: duplicates, or records
    # of other clients.
    between: int = 0
    # Records that may be in aborted transactions of ours.
    broken_off: int = 0


@dataclass(slots=True)
class Position:
    """The mirrored position of a partition: the next source offset, the target's end at that
    moment, each producer's next sequence.
    """

    source_next: int = START
    source_epoch: int = -1
    target_next: int = START
    # By producer id: its epoch in this partition and the sequence of its next record.
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)

    def stamp(self, producer_id: int) -> Stamp:
        """The stamp of the producer's next batch."""
        return Stamp(producer_id, *self.sequences.get(producer_id, (0, 0)))


class Translation:
    """The machine of one partition."""

    def __init__(self, position: Position | None = None, offset_map: OffsetMap | None = None) -> None:
        self.position = position or Position()
        self.map = offset_map if offset_map is not None else OffsetMap()
        # Changed since it was last stored.
        self.is_dirty = False
        self.surplus = Surplus()
        # The target's log start as far as it is known: records below it are not counted as gaps.
        self.target_start = START
        # The target gave a batch an offset below its earlier end: it has lost acknowledged records.
        self.has_target_gone_back = False
        # Small batches are sent as one; false after the target has refused such a batch.
        self.is_merging = True
        # A planned batch failed: later ones may be sent only after it was sent again.
        self._is_broken = False
        self._planned: deque[Planned] = deque()
        self._plan_sequences: dict[int, tuple[int, int]] = dict(self.position.sequences)

    @property
    def planned_next(self) -> int:
        """The source offset after everything that is planned."""
        return self._planned[-1].next_offset if self._planned else self.position.source_next

    def plan(
        self,
        headers: Iterable[BatchHeader],
        *,
        expected: int,
        skipped: Collection[int],
        producer_of: Callable[[BatchHeader], int],
        log_start_offset: int = START,
    ) -> list[Planned | None]:
        """Plan the next batches of the partition: give each a stamp, and record which ones are
        skipped.

        Raises NotTheNextBatch unless `expected` continues the plan, or returns to batches that must
        be sent again; BrokenOff until that has happened. Offsets below `log_start_offset` are gone
        from the source: the flow decided to continue there.
        """
        if not self._planned and self.position.source_next < expected <= log_start_offset:
            self.position.source_next, self.position.source_epoch = expected, -1
            self.rest()
        if self._is_broken and expected <= self._first_unconfirmed:
            self.rest()
        if self._is_broken:
            raise BrokenOff(f"batches before {expected} are to be sent again first")
        if expected != self.planned_next:
            if expected > self.planned_next or (self._planned and self._planned[0].base_offset < expected):
                raise NotTheNextBatch(f"batches that start at {expected} follow {self.planned_next}")
            self.rest()
        return [self._plan_one(header, skipped, producer_of) for header in headers]

    @property
    def _first_unconfirmed(self) -> int:
        return self._planned[0].base_offset if self._planned else self.position.source_next

    def is_next(self, planned: Planned) -> bool:
        """True if everything before a planned batch is confirmed: then a refusal concerns this
        batch itself.
        """
        return bool(self._planned) and self._planned[0] is planned

    def break_off(self) -> None:
        """A planned batch was not acknowledged: plan nothing after it until it has been planned
        again.
        """
        self._is_broken = True

    def give_up(self) -> None:
        """As `break_off`, for batches that may be in the target's log but that no reader may see
        there.
        """
        if not self._is_broken:
            self.surplus.broken_off += sum(planned.count for planned in self._planned if planned.stamp is not None)
        self.break_off()

    def _plan_one(
        self, header: BatchHeader, skipped: Collection[int], producer_of: Callable[[BatchHeader], int]
    ) -> Planned | None:
        if header.next_offset <= self.position.source_next:
            return None
        stamp = None
        if header.base_offset not in skipped:
            producer_id = producer_of(header)
            stamp = Stamp(producer_id, *self._plan_sequences.get(producer_id, (0, 0)))
            after = next_sequence(stamp.sequence, header.record_count)
            self._plan_sequences[producer_id] = (stamp.producer_epoch, after)
        planned = Planned(
            header.base_offset, header.next_offset, header.partition_leader_epoch, header.record_count, stamp
        )
        self._planned.append(planned)
        return planned

    def confirm(self, planned: Planned | None = None, target_offset: int | None = None) -> None:
        """The target has a batch at this offset (None: only check whether skipped batches can be
        passed).

        Raises TargetWentBack if the log must have begun anew.
        """
        if planned is not None:
            planned.target_offset = target_offset
        while self._planned and self._planned[0].is_done:
            self._pass(self._planned[0])
            self._planned.popleft()

    def _pass(self, done: Planned) -> None:
        position = self.position
        if done.stamp is not None and done.target_offset is not None:
            self.demand_growth(done.target_offset)
            self.surplus.between += max(0, done.target_offset - max(position.target_next, self.target_start))
            for piece in done.pieces:
                self.map.append(piece.source_offset, done.target_offset + piece.first_record, piece.record_count)
            position.target_next = done.target_offset + done.count
            producer_id, epoch, sequence = done.stamp
            position.sequences[producer_id] = (epoch, next_sequence(sequence, done.count))
        position.source_next = done.next_offset
        position.source_epoch = done.leader_epoch
        self.is_dirty = True

    def demand_growth(self, target_offset: int) -> None:
        """Raises TargetWentBack if the target gave a batch an offset that it had given before."""
        if target_offset < self.position.target_next:
            self.has_target_gone_back = True
            raise TargetWentBack(
                f"the target gave offset {target_offset}, its log had reached {self.position.target_next}"
            )

    def rest(self) -> None:
        """Drop the planned batches that are not confirmed; they will be planned again with the same
        stamps.
        """
        self._is_broken = False
        self._planned.clear()
        self._plan_sequences = dict(self.position.sequences)

    def write_under(self, producer_id: int, producer_epoch: int, *, instead_of: Collection[int] = ()) -> None:
        """Write under this producer and epoch from now on. Sequences begin at zero for a new
        producer, and planned batches are dropped. `instead_of` are producers that have stopped
        writing; their sequences are removed.
        """
        sequences = self.position.sequences
        if sequences.get(producer_id, (-1, 0))[0] != producer_epoch:
            for gone in sequences.keys() & set(instead_of) - {producer_id}:
                del sequences[gone]
            sequences[producer_id] = (producer_epoch, 0)
            self._plan_sequences = dict(sequences)

    def ahead(self, *, first_chunk: int) -> Translation:
        """A copy as it will be once the target has confirmed all planned batches; its map begins at
        `first_chunk`. So the position can be written in the transaction that makes it valid.
        """
        position = self.position
        copy = Position(position.source_next, position.source_epoch, position.target_next, dict(position.sequences))
        found = Translation(copy, self.map.tail(first_chunk))
        for planned in self._planned:
            if not planned.is_done:
                raise NotTheNextBatch(
                    f"the batch at {planned.base_offset} would be stored as done, but was not acknowledged"
                )
            found._pass(planned)
        return found

    def renew_epochs(self) -> None:
        """Begin each producer's sequences in this partition anew under its next epoch: the target
        does not know the old ones.
        """
        self.position.sequences = {
            producer_id: (epoch + 1, 0) for producer_id, (epoch, _) in self.position.sequences.items()
        }
        self.is_dirty = True
        self.rest()

    def lose_target(self, target_end: int) -> int:
        """The target's log is a copy only up to `target_end`, below the acknowledged end: return
        there. Returns how many offsets it lost.
        """
        self.has_target_gone_back = False
        lost = self.position.target_next - target_end
        self.map.target_truncated_at(target_end)
        last = self.map.last
        self.position.source_next = last.source_end if last is not None else START
        self.position.source_epoch = -1
        self.position.target_next = target_end
        self.renew_epochs()
        return lost

    def downstream(self, source_offset: int) -> int:
        """The target offset at which a consumer of the source at `source_offset` continues."""
        return self.map.downstream(source_offset, end=self.position.target_next)

    def upstream(self, target_offset: int) -> int:
        """The source offset at which a consumer of the target at `target_offset` continues."""
        return self.map.upstream(target_offset, end=self.position.source_next)
