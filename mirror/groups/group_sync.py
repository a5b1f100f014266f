"""Carries consumer groups' offsets: reads them at the source, limits them to mirrored records,
writes them at the target.

One round an interval, in few requests however many groups there are: on a long line a round trip
for each would be too many. A group with members at the target is left alone, and so is every offset
that `mirror/link/core/group_offsets.py` would not move. A source offset is remembered only after it
has been carried, so that a failed write is tried again.

Where groups may work at the target (all links but those that route clients), the target's offsets
are read again before anything is written over them: a group that was active there meanwhile keeps
its position. `target_ahead` lists groups that stay ahead of a source at which they may have been
reset.

Offsets live as long as at the source: carried offsets are written again now and then, before a
target that expires offsets by itself would remove them, and offsets that the source has not had for
a while are removed at the target. Every problem of one group or of one broker is reported in
`problems`, and delays no other group.

While the source is fenced, for a failover, the target is read again each round and gets exactly the
source's offsets. After each round the mirror reports to the target since when every offset of this
daemon's part of the link is carried, and which are not; a failover's account of loss uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from kio.schema.errors import ErrorCode

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_state import FlowState
from mirror.groups.metrics import CheckpointMetrics
from mirror.link.core.group_offsets import REMOVED, GroupOffset, Stay, TargetRange, offset_to_commit
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.partitions import PartitionKey
from mirror.link.core.slots import slot_of
from mirror.link.link_watch import LinkView
from mirror.link.ports import GroupPort, GroupReading, Unreachable
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.rules.links import carries_group, carries_topic
from wire.rules.sync_reports import ALL_SLOTS, SyncReport

ACTIVE_STATES = frozenset({"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})

COMMITS_AT_ONCE = 5
"""As many requests as a connection has under way."""

PAUSE_SHARE = 0.2
"""The shortest pause between rounds, as a share of the interval: long rounds do not follow each
other without a pause.
"""

WRITTEN_AGAIN_MS: Final = 3_600_000
"""How old an offset grows at the target while it stays at the source: far less than the shortest
sensible retention.
"""

FORGOTTEN_AFTER_MS: Final = 60_000
"""How long the source must have been without an offset: a topic's deletion takes its offsets along,
and must have been noticed first.
"""

BEHIND_BELIEVED_AFTER_MS: Final = 10_000
"""How long a group must be behind at the source, on a link that routes all clients there, before
the mirror takes that for a reset. On other links the group may be ahead because it has members at
the target now and then.
"""

PROBLEM_PAUSE_MS: Final = 1_000
PROBLEM_PAUSE_MS_MAX: Final = 30_000
"""Rest of a group that could not be asked or written, doubled each time, so that its timeouts do
not slow down the others' rounds.
"""

PROBLEMS_LOGGED: Final = 10
"""Groups that one line of the log names."""

ALL_GROUPS: Final = "all groups"
"""The key of `problems` under which the last round's own failure is listed."""

PARTITIONS_REPORTED: Final = 5
"""Partitions that the reason of one group names."""

REPORTED_AHEAD: Final = (Stay.UNKNOWN, Stay.MOVED_ON)
"""Where the target stays ahead of a source that may want it to go back."""

_log = get_logger("mirror.groups")

_Offsets = Mapping[PartitionKey, GroupOffset]


@dataclass(slots=True)
class _Group:
    """The state of one group."""

    written_again_at_ms: float
    # The source's offsets when they were carried last, and the target's offsets.
    carried: dict[PartitionKey, GroupOffset] = field(default_factory=dict)
    at_target: dict[PartitionKey, GroupOffset] = field(default_factory=dict)
    # Since when the source is without an offset that was carried.
    missing_since_ms: dict[PartitionKey, float] = field(default_factory=dict)
    # Since when the source has been behind the target.
    behind_since_ms: dict[PartitionKey, float] = field(default_factory=dict)
    # Partitions in which the group has moved at the target by itself since both ends agreed.
    moved_at_target: set[PartitionKey] = field(default_factory=set)
    # Partitions in which the target stays ahead for an unproven cause, and that cause.
    target_ahead: dict[PartitionKey, str] = field(default_factory=dict)
    paused_until_ms: float = 0.0
    pause_ms: int = 0


class GroupSync:
    """One task."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: GroupPort,
        target: GroupPort,
        link: Callable[[], LinkView],
        clock: Clock,
        interval_ms: int,
        metrics: CheckpointMetrics | None = None,
        daemon: str = "",
        slots: Callable[[], frozenset[int]] = lambda: ALL_SLOTS,
        other_problems: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`daemon` is the name that people know this one by, `slots` its part of the link."""
        self._daemon = daemon
        self._slots = slots
        self._other_problems = other_problems
        self._metrics = metrics
        self._board = board
        self._source = source
        self._target = target
        self._link = link
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._groups: dict[str, _Group] = {}
        # How often each copy had lost its end when the target's group offsets were last read.
        self._losses: dict[PartitionKey, int] = {}
        self._problem = ""
        self._problems: dict[str, str] = {}
        # By the monotonic clock, as all times here: setting the machine's clock changes no age.
        self._stale_since_ms: dict[str, float] = {}
        self._synced_ms: float | None = None
        self._reported_ahead: set[str] = set()
        self._is_whole = True
        self._asked_ms = 0.0
        self.committed_offsets = 0

    @property
    def problems(self) -> Mapping[str, str]:
        """Groups (and brokers that do not list theirs) that the last rounds could not carry, and
        why.
        """
        return self._problems

    @property
    def stale_since_ms(self) -> Mapping[str, int]:
        """Of what is in `problems`: since when (Unix ms) its offsets at the target may not be those
        of the source.
        """
        return {name: self._unix_ms(since_ms) for name, since_ms in self._stale_since_ms.items()}

    @property
    def synced_at_ms(self) -> int:
        """When groups were last looked through (Unix ms), -1 before that."""
        return -1 if self._synced_ms is None else self._unix_ms(self._synced_ms)

    def _unix_ms(self, monotonic_ms: float) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic_ms() - monotonic_ms)

    @property
    def target_ahead(self) -> Mapping[str, str]:
        """Groups that stay further on at the target than at the source, where they may have been
        reset, and why.
        """
        return {
            name: "; ".join(_listed(f"{key}: {reason}" for key, reason in group.target_ahead.items()))
            for name, group in self._groups.items()
            if group.target_ahead
        }

    def forget(self, topic: str) -> None:
        """Forget the target's offsets of the topic, whose copy was made anew."""
        self._forget_where(lambda key: key.topic == topic)

    def _forget_where(self, is_meant: Callable[[PartitionKey], bool]) -> None:
        for group in self._groups.values():
            for key in [key for key in group.at_target if is_meant(key)]:
                del group.at_target[key]

    def _forget_truncated(self) -> None:
        """Forget offsets of copies that ended below their earlier end: such a copy may have been
        deleted, with its groups' offsets.
        """
        losses = {key: row.facts.target_losses for key, row in self._board.our_rows()}
        lost = {key for key, count in losses.items() if count > self._losses.get(key, 0)}
        if lost:
            self._forget_where(lost.__contains__)
        self._losses = losses

    async def run(self) -> None:
        """Carry offsets each interval until cancelled."""
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                await self.round()
                self._note_problem("")
            except Unreachable as error:
                self._note_problem(str(error))
                self._show({**self._problems, ALL_GROUPS: str(error)}, whole_until_ms=self._whole_until_ms(began_ms))
                with contextlib.suppress(Unreachable):
                    await self._report_to_target(self._link(), self._covered())
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(self._interval_s - took_s, self._interval_s * PAUSE_SHARE))

    async def round(self) -> None:
        """Carry once. Unreachable when a site does not answer at all; what is in the way of single
        groups is in `problems`.
        """
        link = self._link()
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self._groups.clear()
            self._problems.clear()
            self._stale_since_ms = {}
            await self._report_to_target(link, self._slots())
            return
        began_at_ms, began_ms, covered = self._clock.now_ms(), self._clock.monotonic_ms(), self._covered()
        self._is_whole = True
        if link.role is LinkRole.DRAINING:
            for group in self._groups.values():
                group.at_target.clear()
                group.paused_until_ms = 0.0
        listed = await self._source.groups()
        problems = dict(listed.problems)
        due = self._due({name for name in listed.by_group if carries_group(link.record, name)}, problems)
        if due:
            await self._carry(due, link, problems)
        self._show(problems, whole_until_ms=self._whole_until_ms(began_ms))
        self._log_ahead()
        self._synced_ms = self._clock.monotonic_ms()
        is_carried = self._is_whole and not problems
        synced_at_ms, took_ms = (began_at_ms if is_carried else 0), round(self._clock.monotonic_ms() - began_ms)
        await self._report_to_target(link, covered & self._covered(), synced_at_ms=synced_at_ms, synced_ms_ago=took_ms)

    def _covered(self) -> frozenset[int]:
        """The part of the link of which this daemon can speak: what it has, but for partitions that
        it has not taken up yet.
        """
        return self._slots() - {slot_of(key) for key, row in self._board.rows() if not row.is_ours}

    async def _report_to_target(
        self, link: LinkView, slots: frozenset[int], *, synced_at_ms: int = 0, synced_ms_ago: int | None = None
    ) -> None:
        """Report what this daemon has carried of its part; a daemon without a part knows nothing of
        the rest, and reports nothing.
        """
        if slots and link.role is not LinkRole.GONE:
            report = SyncReport(
                daemon=self._daemon,
                slots=slots,
                synced_at_ms=synced_at_ms,
                synced_ms_ago=synced_ms_ago,
                problems={**self._problems, **self._other_problems()},
                is_resting=link.role is LinkRole.TURNED,
            )
            await self._target.send_report(report, link=link.name, link_epoch=link.epoch)

    async def _carry(self, due: list[str], link: LinkView, problems: dict[str, str]) -> None:
        """Bring the target up to what the source has of these groups; what is in the way is added
        to `problems`.
        """
        self._asked_ms = self._clock.monotonic_ms()
        read, states = await asyncio.gather(self._source.offsets_of(due), self._target.groups())
        problems |= states.problems
        self._pause(read.problems, problems)
        self._forget_truncated()
        for group in self._groups.values():
            self._forget_partitions_of_others(group)
        carriable = {name: self._carriable(offsets, link) for name, offsets in read.by_group.items()}
        active = {name for name, state in states.by_group.items() if state in ACTIVE_STATES}
        await self._read_at_target(carriable, link, problems, active=active)
        permits = asyncio.Semaphore(COMMITS_AT_ONCE)

        async def write(name: str, requested: _Offsets, gone: _Offsets) -> None:
            async with permits:
                try:
                    refused = await self._commit(name, requested, carriable[name], link) if requested else {}
                    refused |= await self._commit(name, gone, {}, link) if gone else {}
                except Unreachable as error:
                    self._pause({name: str(error)}, problems)
                    return
            if refused:
                reasons = ", ".join(_listed(f"{key} {reason}" for key, reason in refused.items()))
                self._pause({name: f"the target refuses offset commits: {reasons}"}, problems)

        writes = []
        for name, offsets in carriable.items():
            from_target = read.from_target.get(name, ())
            requested = self._to_write(name, offsets, link, is_active=name in active, from_target=from_target)
            gone = [] if name in active else self._gone(self._groups[name], read.by_group[name])
            if requested or gone:
                writes.append(write(name, requested, dict.fromkeys(gone, REMOVED)))
        await asyncio.gather(*writes)
        for name in due:
            if name not in problems:
                self._groups[name].pause_ms = 0
                if name not in read.by_group:
                    problems[name] = "its coordinator at the source is moving or loading"

    def _due(self, listed: set[str], problems: dict[str, str]) -> list[str]:
        """The groups to ask about: the source's, and those that it no longer has, without those
        that pause (their problem persists).
        """
        now_ms = self._clock.monotonic_ms()
        for name in listed - self._groups.keys():
            again_ms = now_ms + WRITTEN_AGAIN_MS * (crc32(name.encode()) % 1000) / 1000
            self._groups[name] = _Group(written_again_at_ms=again_ms)
        for name in [name for name, group in self._groups.items() if name not in listed and not group.carried]:
            del self._groups[name]
        if self._metrics is not None:
            self._metrics.forget_all_but(self._groups)
        due: list[str] = []
        for name, group in self._groups.items():
            if group.paused_until_ms <= now_ms:
                due.append(name)
            elif name in self._problems:
                problems[name] = self._problems[name]
        return due

    def _pause(self, failed: Mapping[str, str], problems: dict[str, str]) -> None:
        problems |= failed
        now_ms = self._clock.monotonic_ms()
        for name in failed:
            group = self._groups[name]
            group.pause_ms = min(max(PROBLEM_PAUSE_MS, 2 * group.pause_ms), PROBLEM_PAUSE_MS_MAX)
            group.paused_until_ms = now_ms + group.pause_ms
            group.at_target.clear()  # the failed request may have been carried out

    async def _read_at_target(
        self,
        carriable: dict[str, dict[PartitionKey, GroupOffset]],
        link: LinkView,
        problems: dict[str, str],
        *,
        active: Container[str],
    ) -> None:
        """Read the unknown offsets at the target; a group whose offsets the target does not report
        waits for the next round.
        """
        unknown = [
            name
            for name, offsets in carriable.items()
            if name not in active and self._is_target_unknown(self._groups[name], offsets, link)
        ]
        carried = {name: offsets for name, offsets in carriable.items() if name not in active and name not in unknown}
        unknown += await self._target.outgrown(carried)
        if not unknown:
            return
        found = await self._target.offsets_of(unknown)
        self._pause(found.problems, problems)
        for name in unknown:
            if name in found.by_group:
                self._take_from_target(name, carriable[name], found)
            else:
                self._is_whole = False
                del carriable[name]

    def _is_target_unknown(self, group: _Group, offsets: _Offsets, link: LinkView) -> bool:
        if not offsets.keys() <= group.at_target.keys():
            return True
        if link.record.is_routed:
            return False  # only this mirror commits there
        is_written_again = self._clock.monotonic_ms() >= group.written_again_at_ms
        return is_written_again or any(group.carried.get(key) != offset for key, offset in offsets.items())

    def _take_from_target(self, name: str, offsets: _Offsets, found: GroupReading) -> None:
        """Store the target's offsets, and whether the group has moved there since both
        ends agreed.
        """
        group, at_target, last_in_sync = self._groups[name], found.by_group[name], found.last_in_sync.get(name, {})
        for key in offsets:
            before, now = group.at_target.pop(key, None), at_target.get(key)
            if now is None:
                continue
            group.at_target[key] = now
            if before == now:
                continue
            seen = last_in_sync.get(key)
            if seen is not None and seen.is_unmoved:
                group.carried[key] = GroupOffset(seen.source_offset)
                group.moved_at_target.discard(key)
            elif seen is not None:
                group.carried.setdefault(key, GroupOffset(seen.source_offset))
                group.moved_at_target.add(key)
            elif before is not None:
                group.moved_at_target.add(key)

    def _carriable(self, offsets: _Offsets, link: LinkView) -> dict[PartitionKey, GroupOffset]:
        """Those of partitions that are mirrored by this daemon and whose target log is known."""
        found: dict[PartitionKey, GroupOffset] = {}
        for key, offset in offsets.items():
            row = self._board.row(key) if key in self._board else None
            if row is not None and row.is_ours and row.facts.progress.target_log_end_offset >= 0:
                found[key] = offset
            elif (row is None or row.is_ours) and carries_topic(link.record, key.topic):
                self._is_whole = False
        return found

    def _to_write(
        self,
        name: str,
        offsets: _Offsets,
        link: LinkView,
        *,
        is_active: bool,
        from_target: Container[PartitionKey],
    ) -> dict[PartitionKey, GroupOffset]:
        now_ms, group = self._clock.monotonic_ms(), self._groups[name]
        is_written_again = now_ms >= group.written_again_at_ms
        requested: dict[PartitionKey, GroupOffset] = {}
        in_sync: dict[PartitionKey, GroupOffset] = {}
        group.target_ahead.clear()
        for key, offset in offsets.items():
            outcome = offset_to_commit(
                source=offset,
                source_before=group.carried.get(key),
                target_committed=group.at_target.get(key),
                target=self._range(key),
                is_active_at_target=is_active,
                has_moved_at_target=not link.record.is_routed and key in group.moved_at_target,
                is_from_target=key in from_target,
                is_final=link.record.is_routed
                and (link.role is LinkRole.DRAINING or self._is_behind_for_long(group, key, offset, now_ms)),
            )
            if isinstance(outcome, GroupOffset):
                requested[key] = outcome
                continue
            if is_written_again and not is_active and key in group.at_target:
                requested[key] = group.at_target[key]
            if outcome is Stay.IN_SYNC and group.carried.get(key) != offset:
                group.moved_at_target.discard(key)
                in_sync[key] = group.at_target[key]
            if outcome in (Stay.IN_SYNC, Stay.AHEAD) or (outcome is Stay.UNKNOWN and link.record.is_routed):
                group.carried[key] = offset
            elif outcome in REPORTED_AHEAD:
                group.target_ahead[key] = f"{offset.offset} at the source; {outcome.value}"
        if is_written_again:
            group.written_again_at_ms = now_ms + WRITTEN_AGAIN_MS
        if in_sync:
            self._target.note_in_sync(name, in_sync)
        return requested

    def _is_behind_for_long(self, group: _Group, key: PartitionKey, offset: GroupOffset, now_ms: float) -> bool:
        at_target = group.at_target.get(key)
        if at_target is None or offset.offset >= at_target.offset:
            group.behind_since_ms.pop(key, None)
            return False
        return now_ms - group.behind_since_ms.setdefault(key, now_ms) >= BEHIND_BELIEVED_AFTER_MS

    def _gone(self, group: _Group, at_source: _Offsets) -> list[PartitionKey]:
        """Offsets that were carried and that the source has been without for long enough, of
        partitions that are mirrored.
        """
        now_ms = self._clock.monotonic_ms()
        for key in [key for key in group.missing_since_ms if key in at_source]:
            del group.missing_since_ms[key]
        gone: list[PartitionKey] = []
        for key in [key for key in group.carried if key not in at_source]:
            since_ms = group.missing_since_ms.setdefault(key, now_ms)
            if key not in self._board:
                self._forget_partition(group, key)
            elif now_ms - since_ms >= FORGOTTEN_AFTER_MS and self._is_mirrored(key):
                gone.append(key)
        return gone

    def _is_mirrored(self, key: PartitionKey) -> bool:
        row = self._board.row(key)
        return row.is_ours and row.facts.state is FlowState.MIRRORING

    def _forget_partitions_of_others(self, group: _Group) -> None:
        """Another daemon carries these groups by now, so their offsets at the target are unknown
        here.
        """
        for key in {*group.carried, *group.at_target, *group.target_ahead}:
            if key in self._board and not self._board.row(key).is_ours:
                self._forget_partition(group, key)

    def _forget_partition(self, group: _Group, key: PartitionKey) -> None:
        for known in (
            group.carried,
            group.at_target,
            group.missing_since_ms,
            group.behind_since_ms,
            group.target_ahead,
        ):
            known.pop(key, None)
        group.moved_at_target.discard(key)

    async def _commit(
        self, name: str, requested: Mapping[PartitionKey, GroupOffset], source: _Offsets, link: LinkView
    ) -> dict[str, str]:
        """Write them; the partitions whose offsets the target refuses, and why."""
        outcomes = await self._target.commit(name, requested, link=link.name, link_epoch=link.epoch)
        group = self._groups[name]
        refused: dict[str, str] = {}
        for key, offset in requested.items():
            outcome = outcomes.get(key, ErrorCode.unknown_server_error)
            if outcome is not ErrorCode.none:
                group.at_target.pop(key, None)
                refused[str(key)] = outcome.name
            elif offset is REMOVED:
                self._forget_partition(group, key)
            else:
                group.carried[key] = source[key]
                group.at_target[key] = offset
                group.moved_at_target.discard(key)
                self.committed_offsets += 1
                if self._metrics is not None:
                    self._metrics.observe(name, key, asked_ms=self._asked_ms)
        return refused

    def _range(self, key: PartitionKey) -> TargetRange:
        facts = self._board.row(key).facts
        return TargetRange(
            log_start_offset=facts.target_log_start_offset, log_end_offset=facts.progress.target_log_end_offset
        )

    def _whole_until_ms(self, began_ms: float) -> float:
        return began_ms if self._synced_ms is None else self._synced_ms

    def _show(self, problems: Mapping[str, str], *, whole_until_ms: float) -> None:
        new = {name: reason for name, reason in problems.items() if name not in (*self._problems, ALL_GROUPS)}
        if new:
            first = dict(list(new.items())[:PROBLEMS_LOGGED])
            _log.warning("cannot mirror the offsets of some groups", groups=len(new), first=first)
        self._problems = dict(problems)
        self._stale_since_ms = {name: self._stale_since_ms.get(name, whole_until_ms) for name in problems}

    def _log_ahead(self) -> None:
        left = self.target_ahead
        new = {name: reason for name, reason in left.items() if name not in self._reported_ahead}
        if new:
            first = dict(list(new.items())[:PROBLEMS_LOGGED])
            _log.warning("groups stay ahead of the source at the target", groups=len(new), first=first)
        self._reported_ahead = set(left)

    def _note_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("cannot mirror group offsets", reason=problem)
        self._problem = problem


def _listed(reasons: Iterable[str]) -> list[str]:
    """The first ones, and how many more there are."""
    listed = sorted(reasons)
    more = len(listed) - PARTITIONS_REPORTED
    return listed if more <= 0 else [*listed[:PARTITIONS_REPORTED], f"and {more} more"]
