"""The observations of a group's members, and the checks of a rebalance storm. Pure.

Times are of one monotonic clock, taken where order matters: a partition is given up before its
owner tells the coordinator, so of two ownerships in order the end of the first lies before the
start of the second. Invariants, after the checkers for Kafka histories:

- S1 no two members own a partition at one time. A member that lost its partitions, or whose last
  commit was refused, is no proof.
- S2 no commit is lost: a member that takes a partition over begins at or after every offset whose
  commit was acknowledged before. Where it asked for its position, the coordinator's answer is what
  counts.
- S3 committed offsets never go back: of two acknowledged commits, one after the other, the second
  is not lower.
- S4 no member commits an offset up to which no member has read.
- S5 within an ownership offsets are read one after the other, from the position that was asked for,
  none left out and none twice.
- S6 in the end every record has been read.
- S7 within a generation no partition is given to two members, and no member is told two things
  (`generation_violations`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True, kw_only=True)
class Ownership:
    """One member's ownership of a partition. It has no end if the member vanished."""

    member: str
    partition: int
    began_s: float
    ended_s: float | None = None
    is_lost: bool = False
    position: int | None = None
    """The offset at which the coordinator let it continue, if it was asked."""
    offsets: list[int] = field(default_factory=list)

    @property
    def start(self) -> int | None:
        """The offset at which it began, None if unknown."""
        return self.position if self.position is not None else next(iter(self.offsets), None)

    @property
    def next_offset(self) -> int | None:
        """The next offset that it reads, None if unknown."""
        return self.offsets[-1] + 1 if self.offsets else self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An acknowledged commit: when it was asked for and when it was answered."""

    member: str
    partition: int
    offset: int
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The partitions that a member was assigned in a generation."""

    member: str
    generation: int
    partitions: frozenset[int]


def generation_violations(given: Sequence[Given]) -> list[str]:
    """One line for each violation of S7."""
    found: list[str] = []
    for position, later in enumerate(given):
        for earlier in given[:position]:
            if earlier.generation != later.generation:
                continue
            shared = sorted(earlier.partitions & later.partitions)
            if earlier.member != later.member and shared:
                found.append(
                    f"S7 generation {later.generation}: {earlier.member} and {later.member} are both given {shared}"
                )
            if earlier.member == later.member and earlier.partitions != later.partitions:
                found.append(
                    f"S7 generation {later.generation}: {later.member} is given {sorted(earlier.partitions)} "
                    f"and then {sorted(later.partitions)}"
                )
    return found


def violations(ownerships: Sequence[Ownership], commits: Sequence[Commit], end_offsets: Mapping[int, int]) -> list[str]:
    """One line for each violation of S1 to S6; empty when all hold."""
    found: list[str] = []
    for partition, end_offset in end_offsets.items():
        held = sorted((one for one in ownerships if one.partition == partition), key=lambda one: one.began_s)
        acknowledged = sorted((one for one in commits if one.partition == partition), key=lambda one: one.ended_s)
        read = {offset for one in held for offset in one.offsets}
        found += _double_ownerships(held)
        found += _lost_commits(held, acknowledged)
        found += _commits_that_go_back(acknowledged)
        found += _commits_of_the_unread(acknowledged, read)
        found += _gaps(held)
        missing = sorted(set(range(end_offset)) - read)
        if missing:
            found.append(f"S6 partition {partition}: {len(missing)} records unread, the first at {missing[0]}")
    return found


def _double_ownerships(held: Sequence[Ownership]) -> Iterable[str]:
    kept = [one for one in held if not one.is_lost and one.ended_s is not None]
    for first, second in pairwise(kept):
        if first.ended_s is not None and second.began_s < first.ended_s:
            overlap_ms = (first.ended_s - second.began_s) * 1000
            yield f"S1 partition {first.partition}: {first.member} and {second.member} for {overlap_ms:.1f} ms"


def _lost_commits(held: Sequence[Ownership], acknowledged: Sequence[Commit]) -> Iterable[str]:
    for one in held:
        start = one.start
        if start is None:
            continue
        before = [commit for commit in acknowledged if commit.ended_s <= one.began_s]
        highest = max(before, key=lambda commit: commit.offset, default=None)
        if highest is not None and start < highest.offset:
            yield (
                f"S2 partition {one.partition}: {one.member} began at {start}, "
                f"{highest.member} had committed {highest.offset}"
            )


def _commits_that_go_back(acknowledged: Sequence[Commit]) -> Iterable[str]:
    for position, later in enumerate(acknowledged):
        before = [one for one in acknowledged[:position] if one.ended_s <= later.began_s]
        highest = max(before, key=lambda commit: commit.offset, default=None)
        if highest is not None and later.offset < highest.offset:
            yield (
                f"S3 partition {later.partition}: {later.member} committed {later.offset} "
                f"after {highest.member} had committed {highest.offset}"
            )


def _commits_of_the_unread(acknowledged: Sequence[Commit], read: set[int]) -> Iterable[str]:
    for commit in acknowledged:
        unread = set(range(commit.offset)) - read
        if unread:
            yield f"S4 partition {commit.partition}: {commit.offset} committed, no member read {min(unread)}"


def _gaps(held: Sequence[Ownership]) -> Iterable[str]:
    for one in held:
        if one.position is not None and one.offsets and one.offsets[0] != one.position:
            yield f"S5 partition {one.partition}: {one.member} read {one.offsets[0]} first, told {one.position}"
        for earlier, later in pairwise(one.offsets):
            if later != earlier + 1:
                yield f"S5 partition {one.partition}: {one.member} read {later} after {earlier}"
