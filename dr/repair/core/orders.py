"""Plans the repair of logs that differ: for each finding an order, or a refusal with its reason.
Pure: it works on the batches that both sites hold now around the findings of a comparison.

An order replaces one damaged batch by the other site's bytes, or truncates the standby's copy at
the first offset that differs, so that the mirror copies everything from there again. Bytes that an
order removes go to quarantine. The active site's log is never truncated.

A damaged batch, at either site, is replaced if its checksum proves that the other site's bytes were
its content. A copy is truncated if its batch is damaged beyond that proof, is missing, or was
written under a leader epoch that ended with the last promotion. If both sites hold valid batches
that differ, and no epoch decides, both could be right: that is refused, unless the operator trusts
the active site.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from wire.batches.damage import is_same_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """A batch as one site holds it; both offsets are included."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    content: bytes
    is_sound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """The batches that one site's leader holds around the suspected offsets, in log order. From
    `broken_at` on its bytes are not batches; -1 if all are. `start_offset` and `end_offset` are
    those of the log.
    """

    start_offset: int
    end_offset: int
    batches: tuple[LogBatch, ...] = ()
    broken_at: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSides:
    """The sites of the link, and the facts that decide which one is right."""

    active_site: str
    standby_site: str
    leader_epoch_floor: int
    """Leader epochs below it ended with the last promotion."""
    is_active_trusted: bool = False


LEADER: Final = -1
"""The node id of an order for the broker that leads the partition then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceBatch:
    """Write a damaged batch again, on the disk of the leader or of the named broker, with the bytes
    that the leader of `from_site` has.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    site: str
    from_site: str
    reason: str
    content: bytes = field(repr=False)
    node_id: int = LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateCopy:
    """Put the copy from `first_offset` on into quarantine and truncate it there; the mirror copies
    the offsets again.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    site: str
    from_site: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Offsets that are not repaired, and the reason."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    reason: str


Order = ReplaceBatch | TruncateCopy
Judged = Order | Refused


def judge_partition(topic: str, partition: int, active: LogPart, standby: LogPart, sides: RepairSides) -> list[Judged]:
    """Return the orders and refusals for one partition, by offset; empty if nothing differs, or
    only the end of a copy that the mirror has not reached yet.
    """
    return list(_Judging(topic, partition, active, standby, sides).judged())


class _Judging:
    """One partition."""

    def __init__(self, topic: str, partition: int, active: LogPart, standby: LogPart, sides: RepairSides) -> None:
        self._topic = topic
        self._partition = partition
        self._active = active
        self._standby = standby
        self._sides = sides

    def judged(self) -> Iterator[Judged]:
        ours = {batch.base_offset: batch for batch in self._active.batches}
        copied = {batch.base_offset: batch for batch in self._standby.batches}
        for offset in sorted({*ours, *copied}):
            if self._is_beyond_bytes(offset):
                break
            mine, copy = ours.get(offset), copied.get(offset)
            found = self._pair(mine, copy) if mine and copy else self._alone(offset, mine, copy)
            if found is None:
                continue
            yield found
            if not isinstance(found, ReplaceBatch):
                return
        # After a truncation or a refusal nothing more is judged: the later offsets of the copy will
        # be different ones.
        yield from self._broken()

    def _is_beyond_bytes(self, offset: int) -> bool:
        return any(0 <= part.broken_at <= offset for part in (self._active, self._standby))

    def _broken(self) -> Iterator[Judged]:
        sides = self._sides
        if self._active.broken_at >= 0:
            yield self._refused(
                self._active.broken_at,
                self._active.end_offset - 1,
                f"the bytes at site {sides.active_site}, which is active, are not valid batches: elect a "
                f"follower as the leader, or fail over to site {sides.standby_site}",
            )
        elif self._standby.broken_at >= 0:
            yield self._truncate(
                self._standby.broken_at, f"the bytes at site {sides.standby_site} are not valid batches from there on"
            )

    def _pair(self, mine: LogBatch, copy: LogBatch) -> Judged | None:
        """Judge two batches that begin at the same offset."""
        # Equal contents may both be damaged, if the damage came before the mirroring.
        if mine.content == copy.content and mine.is_sound:
            return None
        sides = self._sides
        if mine.is_sound and copy.is_sound:
            return self._differing(mine, copy)
        if not mine.is_sound and not copy.is_sound:
            return self._refused(mine.base_offset, mine.last_offset, "the batch is damaged at both sites")
        # A damaged batch is replaced only if the checksum in its own header fits the other site's
        # bytes.
        if mine.is_sound and is_same_batch(copy.content, mine.content):
            return self._replace(mine, site=sides.standby_site, from_site=sides.active_site)
        if mine.is_sound:
            return self._truncate(
                copy.base_offset,
                f"the batch at site {sides.standby_site} is damaged, and its checksum does not prove its former content",
            )
        if is_same_batch(mine.content, copy.content):
            return self._replace(copy, site=sides.active_site, from_site=sides.standby_site)
        return self._refused(
            mine.base_offset,
            mine.last_offset,
            f"the batch at site {sides.active_site}, which is active, is damaged, and its checksum does not prove "
            f"that its content was that of site {sides.standby_site}",
        )

    def _alone(self, offset: int, mine: LogBatch | None, copy: LogBatch | None) -> Judged | None:
        """Judge an offset at which only one site has a batch."""
        sides = self._sides
        if mine is not None:
            if not mine.is_sound:
                # also where the copy is only behind: no mirror copies such a batch
                return self._refused(
                    mine.base_offset,
                    mine.last_offset,
                    f"the batch at site {sides.active_site}, which is active, is damaged, and no other replica has it "
                    "whole",
                )
            if offset < self._standby.start_offset or offset >= self._standby.end_offset:
                return None  # The batch has expired there, or is not mirrored yet.
            overlapped = _overlapped(mine, self._standby.batches)
            if overlapped is not None:
                return self._differing(mine, overlapped)
            return self._truncate(offset, f"site {sides.standby_site} lacks the batch and has later ones")
        assert copy is not None
        if offset < self._active.start_offset:
            return None
        return self._differing(_overlapped(copy, self._active.batches), copy)

    def _differing(self, mine: LogBatch | None, copy: LogBatch) -> Judged:
        """Judge valid batches that differ, or one that only the standby has (`mine` None)."""
        sides = self._sides
        first = copy.base_offset if mine is None else min(mine.base_offset, copy.base_offset)
        is_of_ended_epoch = copy.leader_epoch < sides.leader_epoch_floor and (
            mine is None or copy.leader_epoch < mine.leader_epoch
        )
        if is_of_ended_epoch:
            return self._truncate(
                first,
                f"the batch at site {sides.standby_site} is of leader epoch {copy.leader_epoch}, which ended with the "
                f"promotion of site {sides.active_site}",
            )
        if sides.is_active_trusted:
            return self._truncate(first, f"site {sides.active_site} is trusted, and the sites differ")
        what = "has a batch alone" if mine is None else f"has another batch than site {sides.active_site}"
        return self._refused(
            first,
            copy.last_offset,
            f"either site could be right: site {sides.standby_site} {what}, of leader epoch {copy.leader_epoch}, and no "
            f"promotion ended that epoch; look at both, then repeat with --trust {sides.active_site}, or fail over to "
            f"site {sides.standby_site}",
        )

    def _replace(self, sound: LogBatch, *, site: str, from_site: str) -> ReplaceBatch:
        return ReplaceBatch(
            topic=self._topic,
            partition=self._partition,
            first_offset=sound.base_offset,
            last_offset=sound.last_offset,
            site=site,
            from_site=from_site,
            reason=f"the batch at site {site} is damaged, and the one at site {from_site} fits its checksum",
            content=sound.content,
        )

    def _truncate(self, offset: int, reason: str) -> Judged:
        if offset < self._active.start_offset:
            return self._refused(
                offset,
                self._standby.end_offset - 1,
                f"{reason}; the log of site {self._sides.active_site} starts at {self._active.start_offset} and cannot "
                "be copied from there: antipode links reset copies the topic again",
            )
        return TruncateCopy(
            topic=self._topic,
            partition=self._partition,
            first_offset=offset,
            last_offset=self._standby.end_offset - 1,
            site=self._sides.standby_site,
            from_site=self._sides.active_site,
            reason=reason,
        )

    def _refused(self, first_offset: int, last_offset: int, reason: str) -> Refused:
        return Refused(
            topic=self._topic,
            partition=self._partition,
            first_offset=first_offset,
            last_offset=last_offset,
            reason=reason,
        )


def _overlapped(batch: LogBatch, others: Sequence[LogBatch]) -> LogBatch | None:
    return next(
        (one for one in others if one.base_offset <= batch.last_offset and batch.base_offset <= one.last_offset), None
    )
