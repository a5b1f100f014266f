"""The state machine of a link's group offsets. Its input are commits of the source and offsets of
the target, its output are the offsets to write.

A shell lists groups (`list_groups`), reads the source (`source_read`, `source_changed`) and the
target (`unknown_at_target`, `target_read`), and then asks for each group what to write. `decide`
changes nothing; `apply` records a decision before its writes are sent, `written` and `fail` record
the outcome.

  a. No offset is written outside of what the copy of its partition holds (M3).
  b. No offset is written that is lower than the target's, unless the group was reset at the source
     and has not moved at the target since, or the source's offset is final (M4).
  c. Nothing is written for a group that has members at the target.
  d. A source offset counts as carried only after the target has accepted it, or when both ends are
     seen to agree. A write without an answer makes the target's offsets unknown.
  e. Nothing is written over offsets that are unknown at the target. Where groups may work at the
     target (all links but routed ones), its offsets are read again before each change.
  f. Nothing is written for a partition that another daemon of the link has.
  g. An offset is removed at the target only if a mirror of the link has written it there or both
     ends agreed on it, after the source has been without it for FORGOTTEN_AFTER_MS, and while its
     partition is mirrored. An offset that the group has committed at the target stays.
  h. A group that fails pauses alone, ever longer, up to PROBLEM_PAUSE_MS_MAX.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final
from zlib import crc32

from mirror.groups.core.group_decisions import decide
from mirror.groups.core.group_state import Circumstances, GroupDecision, GroupState, Offsets
from mirror.link.core.committed_offsets import REMOVED, GroupOffset, LastInSync
from runtime.invariants import InvariantBroken
from wire.protocol.ids import TopicPartition

PROBLEM_PAUSE_MS: Final = 1_000
PROBLEM_PAUSE_MS_MAX: Final = 30_000
"""Pause of a group whose read or write failed, doubled each time, so that its timeouts do not slow
down the rounds of other groups.
"""

WRITTEN_AGAIN_MS: Final = 3_600_000
"""Age (ms) at which an unchanged offset is written to the target again: far less than the shortest
sensible retention.
"""

FIRST_WRITTEN_AGAIN_MS: Final = 600_000
"""Time (ms) within which a daemon writes the offsets again that it has found equal, but not in the
first half of it, when copies may be unknown: then the target knows them as carried at the link's
epoch.
"""

STORY_LENGTH: Final = 16


class GroupOffsets:
    """The machine of one link's daemon. One event loop only."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupState] = {}
        # How often each copy had lost its end when offsets were last compared with it.
        self._losses: dict[TopicPartition, int] = {}
        self._story: deque[tuple[object, ...]] = deque(maxlen=STORY_LENGTH)

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    # State.

    @property
    def problems(self) -> dict[str, str]:
        """The groups that fail, and why."""
        return {name: group.problem for name, group in self._groups.items() if group.problem}

    @property
    def target_ahead(self) -> dict[str, Mapping[TopicPartition, str]]:
        """Groups that stay further on at the target than at the source, where they may have been
        reset, and why, by partition.
        """
        return {name: group.target_ahead for name, group in self._groups.items() if group.target_ahead}

    @property
    def at_source(self) -> set[str]:
        """The groups that have offsets at the source."""
        return {name for name, group in self._groups.items() if group.at_source}

    def ready(self, names: Iterable[str], now_ms: float) -> list[str]:
        """Return the groups that do not pause."""
        return [name for name in names if name in self._groups and self._groups[name].paused_until_ms <= now_ms]

    def open_groups(self, now_ms: float) -> list[str]:
        """Groups whose offsets wait for their copies to grow, without those that pause."""
        return [name for name, it in self._groups.items() if it.is_open and it.paused_until_ms <= now_ms]

    # Inputs.

    def clear(self) -> None:
        """Forget everything: this site is active, or the link is gone."""
        self._groups.clear()

    def forget_reads(self) -> None:
        """Commits of the source may have been missed: earlier reads do not count as complete."""
        for group in self._groups.values():
            group.is_read = False

    def are_read(self, names: Iterable[str]) -> bool:
        """True when all offsets of these groups were read since `forget_reads`."""
        return all(name in self._groups and self._groups[name].is_read for name in names)

    def forget_topic(self, topic: str) -> None:
        """Forget the target's offsets of the topic, whose copy was made anew."""
        self._forget_at_target(lambda key: key.topic == topic)

    def forget_target(self) -> None:
        """Read the target again before the next writes: it may have taken others, or the source is
        fenced and it gets exactly the source's. A group that pauses must not delay a drain.
        """
        for group in self._groups.values():
            group.at_target.clear()
            group.paused_until_ms = 0.0

    def list_groups(self, names: Collection[str], link: Circumstances) -> list[str]:
        """The source has these groups. Return the groups to examine: without paused ones, and with
        groups that the source has removed.
        """
        for name in names:
            self._group(name, link.now_ms)
        # A group with mirrored offsets is kept, because the removal of these offsets must be
        # mirrored too.
        for name in [name for name, group in self._groups.items() if name not in names and not group.carried]:
            del self._groups[name]
        for group in self._groups.values():
            self._forget_partitions_of_others(group, link)
        return [name for name, group in self._groups.items() if group.paused_until_ms <= link.now_ms]

    def source_read(
        self, name: str, offsets: Offsets, *, from_target: Collection[TopicPartition] = (), now_ms: float
    ) -> None:
        """Record all offsets of a group at the source."""
        group = self._group(name, now_ms)
        group.at_source, group.from_target, group.is_read = dict(offsets), from_target, True

    def source_changed(self, name: str, changes: Offsets, now_ms: float) -> None:
        """Single offsets that were committed at the source (REMOVED: deleted or expired)."""
        group = self._group(name, now_ms)
        for key, offset in changes.items():
            if offset is REMOVED:
                group.at_source.pop(key, None)
            else:
                group.at_source[key] = offset

    def unexplained(self, at_target: Collection[str]) -> list[str]:
        """Of the target's groups those with offsets that the source lacks and of which this daemon
        does not know where they come from.
        """
        known = self._groups
        return [name for name in at_target if name not in known or known[name].only_at_target]

    def adopt(self, name: str, offsets: Offsets, link: Circumstances) -> bool:
        """Mirrors of the link have written these offsets of a group at the target, perhaps an
        earlier daemon: they are removed if the source lacks them. True if there are such.
        """
        adopted = {
            key: at
            for key, at in offsets.items()
            if (copy := link.copy_of(key)) is not None and copy.is_ours and self._is_lacking(name, key)
        }
        if adopted:
            group = self._group(name, link.now_ms)
            group.carried.update(adopted)
            group.at_target.update(adopted)
            group.only_at_target.difference_update(adopted)
        return bool(adopted)

    def _is_lacking(self, name: str, key: TopicPartition) -> bool:
        group = self._groups.get(name)
        return group is None or (key not in group.at_source and key not in group.carried)

    def target_states(self, active: Collection[str]) -> None:
        """The groups that have members at the target."""
        for name, group in self._groups.items():
            group.is_active = name in active

    def unknown_at_target(self, name: str, link: Circumstances) -> bool:
        """True when the target must be read before the group can be decided on (d, e)."""
        group = self._groups[name]
        self._notice_losses(group, link)
        if group.is_active:
            return False
        offsets = self.carriable(name, link)
        # What is removed at the target is compared with what it has there.
        if not {*offsets, *_lacking(group, link)} <= group.at_target.keys():
            return True
        if link.is_routed:
            return False  # (e) On a routed link only this mirror commits at the target.
        is_written_again = bool(offsets) and link.now_ms >= group.written_again_at_ms
        return is_written_again or any(group.carried.get(key) != offset for key, offset in offsets.items())

    def carriable(self, name: str, link: Circumstances) -> dict[TopicPartition, GroupOffset]:
        """The source's offsets of partitions that this daemon mirrors and whose copy it knows."""
        return {
            key: offset
            for key, offset in self._groups[name].at_source.items()
            if (copy := link.copy_of(key)) is not None and copy.is_known
        }

    def is_active(self, name: str) -> bool:
        """True while the group has members at the target."""
        return self._groups[name].is_active

    def target_read(
        self, name: str, at_target: Offsets, link: Circumstances, *, notes: Mapping[TopicPartition, LastInSync]
    ) -> None:
        """Record the target's offsets, and the offsets at which both ends last agreed, as far as
        the target stores them.
        """
        group = self._groups[name]
        lacking = _lacking(group, link)
        group.only_at_target = set(at_target.keys() - group.at_source.keys() - group.carried.keys())
        for key in [*self.carriable(name, link), *lacking]:
            before, now = group.at_target.pop(key, None), at_target.get(key)
            if now is None:
                if key in lacking:
                    group.forget(key)
                continue
            group.at_target[key] = now
            # The target's offset is unchanged, so it shows nothing new.
            if before == now:
                continue
            seen = notes.get(key)
            if seen is not None and seen.is_unmoved:
                group.carried[key] = GroupOffset(seen.source_offset)
                group.moved_at_target.discard(key)
            elif seen is not None:
                # A known value is kept, because it is newer than the stored one.
                group.carried.setdefault(key, GroupOffset(seen.source_offset))
                group.moved_at_target.add(key)
            elif before is not None:
                group.moved_at_target.add(key)

    # Decisions.

    def decide(self, name: str, link: Circumstances) -> GroupDecision:
        """Decide what to write for a group that is known at the target; this changes nothing
        yet.
        """
        return decide(name, self._groups[name], link)

    def apply(self, decision: GroupDecision, link: Circumstances) -> None:
        """Apply a decision; its writes are sent next. Raises InvariantBroken if they are not
        allowed.
        """
        group = self._groups[decision.group]
        for key, offset in decision.writes.items():
            source, before, at_target = group.at_source[key], group.carried.get(key), group.at_target.get(key)
            self._story.append((decision.group, key, source, before, at_target, offset))
            self._check_write(group, key, offset, link)
        for key, at_target in decision.removed.items():
            self._story.append((decision.group, key, None, group.carried.get(key), at_target, REMOVED))
        group.target_ahead = dict(decision.target_ahead)
        group.behind_since_ms = dict(decision.behind_since_ms)
        group.missing_since_ms = dict(decision.missing_since_ms)
        group.carried.update(decision.settled)
        group.moved_at_target.difference_update(decision.in_sync)
        for key in decision.forgotten:
            group.forget(key)
        if decision.is_written_again:
            group.written_again_at_ms = link.now_ms + WRITTEN_AGAIN_MS
        group.is_open = decision.is_open

    def written(self, decision: GroupDecision, refused: Collection[TopicPartition]) -> None:
        """The target's answer to the decision's writes."""
        group = self._groups.get(decision.group)
        if group is None:
            return  # The state was cleared meanwhile.
        for key, offset in {**decision.refreshed, **decision.writes}.items():
            if key in refused:
                # refused: the target's current offset is unknown (d)
                group.at_target.pop(key, None)
            elif key in decision.writes:
                group.carried[key] = decision.sources[key]
                group.at_target[key] = offset
                group.moved_at_target.discard(key)
        for key in decision.removed:
            if key in refused:
                group.at_target.pop(key, None)
            else:
                group.forget(key)

    def fail(self, name: str, reason: str, now_ms: float) -> None:
        """The group could not be read or written: it pauses. The writes that were sent may have
        been executed.
        """
        group = self._groups.get(name)
        if group is None:
            return
        group.problem = reason
        group.pause_ms = min(max(PROBLEM_PAUSE_MS, 2 * group.pause_ms), PROBLEM_PAUSE_MS_MAX)
        group.paused_until_ms = now_ms + group.pause_ms
        # The writes may have been executed, so the target is read before the next write.
        group.at_target.clear()

    def wait(self, name: str, reason: str) -> None:
        """The group cannot be examined right now, for a temporary reason."""
        self._groups[name].problem = reason

    def succeed(self, name: str) -> None:
        """The group was examined, and nothing failed."""
        group = self._groups.get(name)
        if group is not None:
            group.problem, group.pause_ms = "", 0

    def check_invariants(self, link: Circumstances) -> None:
        """Raise InvariantBroken if the state contradicts itself; for tests, after every step."""
        for name, group in self._groups.items():
            if not group.missing_since_ms.keys() <= group.carried.keys():
                self._break(f"g: {name} misses offsets that were never carried")
            if not 0 <= group.pause_ms <= PROBLEM_PAUSE_MS_MAX:
                self._break(f"h: {name} pauses for {group.pause_ms} ms")
            if group.pause_ms and not group.problem:
                self._break(f"h: {name} pauses without a problem")
            if group.paused_until_ms > link.now_ms + PROBLEM_PAUSE_MS_MAX:
                self._break(f"h: {name} pauses until {group.paused_until_ms} ms")

    # Inside.

    def _group(self, name: str, now_ms: float) -> GroupState:
        group = self._groups.get(name)
        if group is None:
            # Groups are written again spread over the period, not all in one round.
            first_ms = min(FIRST_WRITTEN_AGAIN_MS, WRITTEN_AGAIN_MS)
            again_ms = now_ms + first_ms * (500 + crc32(name.encode()) % 500) / 1000
            group = self._groups[name] = GroupState(written_again_at_ms=again_ms)
        return group

    def _check_write(self, group: GroupState, key: TopicPartition, offset: GroupOffset, link: Circumstances) -> None:
        copy, before, at_target = link.copy_of(key), group.carried.get(key), group.at_target.get(key)
        if copy is None or not copy.is_ours:
            self._break(f"f: {key} is another daemon's")
        elif not copy.log_start_offset <= offset.offset <= copy.log_end_offset:
            self._break(f"a: {offset.offset} is not within {copy.log_start_offset} to {copy.log_end_offset} of {key}")
        if group.is_active:
            self._break(f"c: the group has members at the target, and {key} would be written")
        is_reset = before is not None and group.at_source[key].offset < before.offset
        if at_target is not None and offset.offset < at_target.offset and not is_reset and not link.is_routed:
            self._break(f"b: {key} would go back from {at_target.offset} to {offset.offset}")

    def _notice_losses(self, group: GroupState, link: Circumstances) -> None:
        """Forget offsets of copies that ended below their earlier end: such a copy may have been
        deleted, with its groups' offsets.
        """
        for key in group.at_source:
            copy = link.copy_of(key)
            if copy is None or not copy.is_ours:
                continue
            if copy.losses > self._losses.get(key, 0):
                # Only once for each loss; afterwards the new copy counts.
                self._forget_at_target(key.__eq__)
            self._losses[key] = copy.losses

    def _forget_at_target(self, is_meant: Callable[[TopicPartition], bool]) -> None:
        for group in self._groups.values():
            for key in [key for key in group.at_target if is_meant(key)]:
                del group.at_target[key]

    def _forget_partitions_of_others(self, group: GroupState, link: Circumstances) -> None:
        """Another daemon carries these partitions by now, so their offsets at the target are
        unknown here.
        """
        for key in {*group.carried, *group.at_target, *group.target_ahead}:
            copy = link.copy_of(key)
            if copy is not None and not copy.is_ours:
                group.forget(key)

    def _break(self, what: str) -> None:
        lines = [
            f"{name} {key}: source {source}, carried {carried}, target {at_target} -> {written}"
            for name, key, source, carried, at_target, written in self._story
        ]
        raise InvariantBroken(f"{what}; story: {' | '.join(lines)}")


def _lacking(group: GroupState, link: Circumstances) -> set[TopicPartition]:
    """Carried offsets that the source lacks, of partitions that this daemon mirrors, if the target
    keeps offsets.
    """
    if not link.is_kept_at_target:
        return set()
    return {
        key
        for key in group.carried.keys() - group.at_source.keys()
        if (copy := link.copy_of(key)) is not None and copy.is_ours
    }
