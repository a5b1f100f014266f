"""Brings consumer groups' offsets along: reads them at the source, clamps them to what is mirrored,
writes them at the target.

One round an interval, in few requests however many groups there are: on a long line a round trip
for each would be too many. A group with members at the target is left alone, and so is every offset
that `mirror/link/core/group_offsets.py` would not move. What the source had is remembered only once
it has been carried, so that a failed write is tried again.

Where groups may work at the target (all links but those that route clients), what the target has is
read anew before anything is written over it: a group that was there meanwhile keeps its place. One
that stays ahead of a source that may have been reset is told (`target_ahead`).

Offsets live as long as at the source: what was carried is written again now and then, before a
target that lets offsets expire by themselves would forget it, and what the source has forgotten for
a while is forgotten at the target. Whatever is in the way of one group or of one broker is told,
and holds up nobody else.

While the source is fenced, for a failover, the target is read anew each round and gets exactly what
the source has. After each round the target hears as of when everything of this daemon's part of the
link is carried, for the account of a failover, and what cannot be.
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

REST_SHARE = 0.2
"""Of the interval, which is rested at least: rounds that take long do not follow each other without
a pause.
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
"""How long a group must be behind at the source, on a link whose target's clients are all sent
there, until that is believed: it was reset while nobody looked. Elsewhere it may be ahead because
it has members at the target now and then.
"""

PROBLEM_PAUSE_MS: Final = 1_000
PROBLEM_PAUSE_MS_MAX: Final = 30_000
"""Rest of a group that could not be asked or written, doubled each time, so that its timeouts do
not slow down the others' rounds.
"""

PROBLEMS_LOGGED: Final = 10
"""Groups that one line of the log names."""

ALL_GROUPS: Final = "all groups"
"""Under this name `problems` says why nothing was carried in the last round."""

PARTITIONS_REPORTED: Final = 5
"""Partitions that the reason of one group names."""

REPORTED_AHEAD: Final = (Stay.UNKNOWN, Stay.MOVED_ON)
"""Where the target stays ahead of a source that may want it to go back."""

_log = get_logger("mirror.groups")

_Offsets = Mapping[PartitionKey, GroupOffset]


@dataclass(slots=True)
class _Group:
    """What is known of one group."""

    written_again_at_ms: float
    # What the source had when it was carried last, and what the target has.
    carried: dict[PartitionKey, GroupOffset] = field(default_factory=dict)
    at_target: dict[PartitionKey, GroupOffset] = field(default_factory=dict)
    # Since when the source is without an offset that was carried.
    missing_since_ms: dict[PartitionKey, float] = field(default_factory=dict)
    # Since when the source has been behind the target.
    behind_since_ms: dict[PartitionKey, float] = field(default_factory=dict)
    # Where the group has moved at the target by itself since both stood alike.
    moved_at_target: set[PartitionKey] = field(default_factory=set)
    # Where the target stays ahead and nobody can say that it should, and why.
    target_ahead: dict[PartitionKey, str] = field(default_factory=dict)
    paused_until_ms: float = 0.0
    throttle_time_ms: int = 0


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
    ) -> None:
        """`daemon` is the name that people know this one by, `slots` its part of the link."""
        self._daemon = daemon
        self._slots = slots
        self._metrics = metrics
        self._board = board
        self._source = source
        self._target = target
        self._link = link
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._groups: dict[str, _Group] = {}
        # How often copies had lost their ends when it was last known what the target has of groups
        # there.
        self._losses: dict[PartitionKey, int] = {}
        self._problem = ""
        self._problems: dict[str, str] = {}
        # By the monotonic clock, as all times here: who puts the machine's right changes no age.
        self._stale_since_ms: dict[str, float] = {}
        self._synced_ms: float | None = None
        self._reported_ahead: set[str] = set()
        self._is_whole = True
        self._asked_ms = 0.0
        self.committed_offsets = 0

    @property
    def problems(self) -> Mapping[str, str]:
        """Groups (and brokers that do not tell theirs) which the last rounds could not carry, and
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
        """The topic's copy was made anew: nobody knows what the target has of it."""
        self._forget_where(lambda key: key.topic == topic)

    def _forget_where(self, is_meant: Callable[[PartitionKey], bool]) -> None:
        for group in self._groups.values():
            for key in [key for key in group.at_target if is_meant(key)]:
                del group.at_target[key]

    def _forget_what_is_lost(self) -> None:
        """Of copies that ended below what they had: perhaps they were put away, and their groups'
        offsets with them.
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
                self._tell("")
            except Unreachable as error:
                self._tell(str(error))
                self._show({**self._problems, ALL_GROUPS: str(error)}, whole_until_ms=self._whole_until_ms(began_ms))
                with contextlib.suppress(Unreachable):
                    await self._report_to_target(self._link(), self._covered())
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(self._interval_s - took_s, self._interval_s * REST_SHARE))

    async def round(self) -> None:
        """Carry once. Unreachable when a site does not answer at all; what is in the way of single
        groups is in `problems`.
        """
        link = self._link()
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self._groups.clear()
            self._problems.clear()
            self._stale_since_ms = {}
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
        self._report_ahead()
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
        """Say what this daemon has done for its part; who has none does not know whether anybody
        carries anything.
        """
        if slots and link.role in (LinkRole.MIRRORING, LinkRole.DRAINING):
            word = SyncReport(
                daemon=self._daemon,
                slots=slots,
                synced_at_ms=synced_at_ms,
                synced_ms_ago=synced_ms_ago,
                problems=self._problems,
            )
            await self._target.send_report(word, link=link.name, link_epoch=link.epoch)

    async def _carry(self, due: list[str], link: LinkView, problems: dict[str, str]) -> None:
        """Bring the target up to what the source has of these groups; what is in the way is added
        to `problems`.
        """
        self._asked_ms = self._clock.monotonic_ms()
        read, states = await asyncio.gather(self._source.offsets_of(due), self._target.groups())
        problems |= states.problems
        self._rest(read.problems, problems)
        self._forget_what_is_lost()
        for group in self._groups.values():
            self._leave_to_others(group)
        carriable = {name: self._carriable(offsets, link) for name, offsets in read.by_group.items()}
        active = {name for name, state in states.by_group.items() if state in ACTIVE_STATES}
        await self._read_at_target(carriable, link, problems, active=active)
        turns = asyncio.Semaphore(COMMITS_AT_ONCE)

        async def write(name: str, wanted: _Offsets, gone: _Offsets) -> None:
            async with turns:
                try:
                    refused = await self._commit(name, wanted, carriable[name], link) if wanted else {}
                    refused |= await self._commit(name, gone, {}, link) if gone else {}
                except Unreachable as error:
                    self._rest({name: str(error)}, problems)
                    return
            if refused:
                reported = ", ".join(_listed(f"{key} {reason}" for key, reason in refused.items()))
                self._rest({name: f"the target refuses offset commits: {reported}"}, problems)

        writes = []
        for name, offsets in carriable.items():
            from_target = read.from_target.get(name, ())
            wanted = self._to_write(name, offsets, link, is_active=name in active, from_target=from_target)
            gone = [] if name in active else self._gone(self._groups[name], read.by_group[name])
            if wanted or gone:
                writes.append(write(name, wanted, dict.fromkeys(gone, REMOVED)))
        await asyncio.gather(*writes)
        for name in due:
            if name not in problems:
                self._groups[name].throttle_time_ms = 0
                if name not in read.by_group:
                    problems[name] = "its coordinator at the source is moving or loading"

    def _due(self, listed: set[str], problems: dict[str, str]) -> list[str]:
        """The groups to ask about: the source's, those that it has no more, and none that rests
        (its problem stands).
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

    def _rest(self, failed: Mapping[str, str], problems: dict[str, str]) -> None:
        problems |= failed
        now_ms = self._clock.monotonic_ms()
        for name in failed:
            group = self._groups[name]
            group.throttle_time_ms = min(max(PROBLEM_PAUSE_MS, 2 * group.throttle_time_ms), PROBLEM_PAUSE_MS_MAX)
            group.paused_until_ms = now_ms + group.throttle_time_ms
            group.at_target.clear()  # what was written before the failure, nobody knows

    async def _read_at_target(
        self,
        carriable: dict[str, dict[PartitionKey, GroupOffset]],
        link: LinkView,
        problems: dict[str, str],
        *,
        active: Container[str],
    ) -> None:
        """What the target has of groups of which that is not known; where it does not say, the
        group waits for the next round.
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
        self._rest(found.problems, problems)
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
            return False  # nobody else commits there
        is_written_again = self._clock.monotonic_ms() >= group.written_again_at_ms
        return is_written_again or any(group.carried.get(key) != offset for key, offset in offsets.items())

    def _take_from_target(self, name: str, offsets: _Offsets, found: GroupReading) -> None:
        """Take what the target has, and whether the group has moved there since both stood
        alike.
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
        wanted: dict[PartitionKey, GroupOffset] = {}
        alike: dict[PartitionKey, GroupOffset] = {}
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
                and (link.role is LinkRole.DRAINING or self._is_lastingly_behind(group, key, offset, now_ms)),
            )
            if isinstance(outcome, GroupOffset):
                wanted[key] = outcome
                continue
            if is_written_again and not is_active and key in group.at_target:
                wanted[key] = group.at_target[key]
            if outcome is Stay.ALIKE and group.carried.get(key) != offset:
                group.moved_at_target.discard(key)
                alike[key] = group.at_target[key]
            if outcome in (Stay.ALIKE, Stay.AHEAD) or (outcome is Stay.UNKNOWN and link.record.is_routed):
                group.carried[key] = offset
            elif outcome in REPORTED_AHEAD:
                group.target_ahead[key] = f"{offset.offset} at the source; {outcome.value}"
        if is_written_again:
            group.written_again_at_ms = now_ms + WRITTEN_AGAIN_MS
        if alike:
            self._target.note_in_sync(name, alike)
        return wanted

    def _is_lastingly_behind(self, group: _Group, key: PartitionKey, offset: GroupOffset, now_ms: float) -> bool:
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
                self._lose(group, key)
            elif now_ms - since_ms >= FORGOTTEN_AFTER_MS and self._is_mirrored(key):
                gone.append(key)
        return gone

    def _is_mirrored(self, key: PartitionKey) -> bool:
        row = self._board.row(key)
        return row.is_ours and row.facts.state is FlowState.MIRRORING

    def _leave_to_others(self, group: _Group) -> None:
        """What another daemon carries by now: nobody here knows any more what the target has of
        it.
        """
        for key in {*group.carried, *group.at_target, *group.target_ahead}:
            if key in self._board and not self._board.row(key).is_ours:
                self._lose(group, key)

    def _lose(self, group: _Group, key: PartitionKey) -> None:
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
        self, name: str, wanted: Mapping[PartitionKey, GroupOffset], source: _Offsets, link: LinkView
    ) -> dict[str, str]:
        """Write them; the partitions whose offsets the target refuses, and why."""
        outcomes = await self._target.commit(name, wanted, link=link.name, link_epoch=link.epoch)
        group = self._groups[name]
        refused: dict[str, str] = {}
        for key, offset in wanted.items():
            outcome = outcomes.get(key, ErrorCode.unknown_server_error)
            if outcome is not ErrorCode.none:
                group.at_target.pop(key, None)
                refused[str(key)] = outcome.name
            elif offset is REMOVED:
                self._lose(group, key)
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

    def _report_ahead(self) -> None:
        left = self.target_ahead
        new = {name: reason for name, reason in left.items() if name not in self._reported_ahead}
        if new:
            first = dict(list(new.items())[:PROBLEMS_LOGGED])
            _log.warning("groups stay ahead of the source at the target", groups=len(new), first=first)
        self._reported_ahead = set(left)

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("cannot mirror group offsets", reason=problem)
        self._problem = problem


def _listed(reported: Iterable[str]) -> list[str]:
    """The first ones, and how many more there are."""
    listed = sorted(reported)
    more = len(listed) - PARTITIONS_REPORTED
    return listed if more <= 0 else [*listed[:PARTITIONS_REPORTED], f"and {more} more"]
