"""Carries consumer groups' offsets: asks both ends for the facts by which `core/group_offsets.py`
decides, and writes the decisions.

A round covers all groups in few requests: on a long connection, a round trip for each group would
take too long. Where the source's `__consumer_offsets` can be followed, commits arrive as they are
written there, and a round reads no offsets at the source: it does so at the start, each
FULL_READ_MS, and after every event that may have broken the order of the commits. Elsewhere, and
while the source is fenced, each round reads all offsets.

After each round the mirror reports to the target the time up to which it has carried every offset
of its part of the link, and the offsets that it could not carry, for a failover's account of loss.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from mirror.flow.board import FlowBoard
from mirror.groups.carried_before import CarriedBefore
from mirror.groups.circumstances import circumstances
from mirror.groups.core.group_offsets import GroupOffsets
from mirror.groups.core.group_state import Circumstances, Offsets
from mirror.groups.group_report import AccessState, GroupReport, listed
from mirror.groups.group_writes import GroupWrites
from mirror.groups.metrics import CheckpointMetrics
from mirror.groups.rounds import RoundProblem
from mirror.groups.source_commits import SourceCommits
from mirror.link.core.link_roles import LinkRole
from mirror.link.group_ports import GroupPort, GroupStates, OffsetsTail
from mirror.link.link_watch import LinkView
from mirror.link.ports import Unreachable
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.rules.links import carries_group
from wire.rules.sync_reports import ALL_SLOTS

ACTIVE_STATES = frozenset({"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})

PAUSE_SHARE = 0.2
"""The shortest pause between rounds, as a share of the interval: long rounds do not follow each
other without a pause.
"""

FULL_READ_MS: Final = 60_000
"""Interval (ms) at which all offsets are read, although the source's commits are followed."""

RECHECK_SOON_MS: Final = 1_000.0
"""After the last commit, how long groups whose commit is ahead of its copy are checked each
RECHECK_MS: the records of a commit are usually in flight.
"""

RECHECK_MS: Final = 10.0
"""Delay (ms) before a group is checked again whose commit is ahead of its copy: records and commits
come by different connections. Doubled while nothing happens, up to the interval.
"""

_log = get_logger("mirror.groups")


class GroupSync:
    """The task that carries groups' offsets."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: GroupPort,
        target: GroupPort,
        link: Callable[[], LinkView],
        clock: Clock,
        interval_ms: int,
        tail: OffsetsTail | None = None,
        metrics: CheckpointMetrics | None = None,
        daemon: str = "",
        slots: Callable[[], frozenset[int]] = lambda: ALL_SLOTS,
        access: Callable[[], AccessState] = AccessState,
    ) -> None:
        """`tail` is None where the source's commits are not followed; `daemon` is the name that
        people know this one by, `slots` its part of the link.
        """
        self.report = GroupReport(board, target, clock, daemon=daemon, slots=slots, access=access)
        self._metrics = metrics
        self._board = board
        self._source = source
        self._target = target
        self._link = link
        self._clock = clock
        self._interval_ms = interval_ms
        self._commits = None if tail is None else SourceCommits(tail)
        self._offsets = GroupOffsets()
        self._carried_before = CarriedBefore(self._offsets, target, clock)
        self._writes = GroupWrites(self._offsets, target, metrics=metrics, clock=clock)
        # The link under which the source's commits are followed.
        self._followed: LinkView | None = None
        # All offsets of all groups of the source were read in the last round.
        self._is_source_read = False
        self._read_in_full_ms = self._next_round_ms = 0.0
        self._recheck_ms = RECHECK_MS
        self._committed_ms = -math.inf
        # Groups that have committed again in the meantime.
        self._waiting_for_write: set[str] = set()
        # The target's list of groups for the round that is due, and the report of the last round:
        # both take round trips, and commits are carried meanwhile.
        self._listing: asyncio.Task[GroupStates] | None = None
        self._reporting: asyncio.Task[None] | None = None
        # A round has reported to the target that it carried every offset.
        self._is_whole_reported = False
        self._problem = RoundProblem(_log, "cannot mirror group offsets")

    @property
    def target_ahead(self) -> Mapping[str, str]:
        """Groups that stay further ahead at the target than at the source, where they may have been
        reset, and the reason.
        """
        return {
            name: "; ".join(listed(f"{key}: {reason}" for key, reason in ahead.items()))
            for name, ahead in self._offsets.target_ahead.items()
        }

    def forget(self, topic: str) -> None:
        """Forget the target's offsets of the topic, whose copy was made anew."""
        self._offsets.forget_topic(topic)

    async def run(self) -> None:
        """Carry offsets until cancelled."""
        try:
            await self._run()
        finally:
            self._writes.cancel()
            self._drop_listing()
            reporting, self._reporting = self._reporting, None
            if reporting is not None:
                reporting.cancel()

    async def _run(self) -> None:
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                is_following = await self._advance()
                self._problem.note("")
            except Unreachable as error:
                is_following = False
                self._problem.note(str(error))
                self.report.add_failure(str(error), began_ms=began_ms)
                with contextlib.suppress(Unreachable):
                    await self.report.send(self._link(), self.report.covered())
            took_ms = self._clock.monotonic_ms() - began_ms
            pause_ms = max(self._interval_ms - took_ms, self._interval_ms * PAUSE_SHARE)
            await asyncio.sleep(0 if is_following else pause_ms / 1000)

    async def round(self) -> None:
        """Read all offsets of the source and carry them. Raises Unreachable if a site does not
        answer at all; problems of single groups are in `problems`.
        """
        await self._settle_report()
        await self._writes.settle()
        link = self._link()
        # After a turn the groups commit at this site, so everything known from before is wrong.
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self._offsets.clear()
            self.report.clear()
            await self.report.send(link, self.report.slots())
            return
        began_at_ms, began_ms, covered = self._clock.now_ms(), self._clock.monotonic_ms(), self.report.covered()
        # The source is fenced, so its offsets are final: the target must get exactly these.
        if link.role is LinkRole.DRAINING:
            self._offsets.forget_target()
        listed = await self._source.groups()
        problems = dict(listed.problems)
        names = {name for name in listed.by_group if carries_group(link.record, name)}
        due = self._list(names, link)
        asked_ms = self._clock.monotonic_ms()
        read, states = await asyncio.gather(self._source.offsets_of(due), self._target.groups())
        problems |= states.problems
        self._offsets.target_states({name for name, state in states.by_group.items() if state in ACTIVE_STATES})
        for name, reason in read.problems.items():
            self._offsets.fail(name, reason, self._clock.monotonic_ms())
        for name, offsets in read.by_group.items():
            from_target = read.from_target.get(name, ())
            self._offsets.source_read(name, offsets, from_target=from_target, now_ms=asked_ms)
        for name in set(due) - read.by_group.keys() - read.problems.keys():
            self._offsets.wait(name, "its coordinator at the source is moving or loading")
        is_whole = await self._carry([name for name in due if name in read.by_group], link, asked_ms=asked_ms)
        await self._carried_before.adopt(states.by_group, link, lambda: self._circumstances(link))
        self._is_source_read = not listed.problems and self._offsets.are_read(names)
        self._end_round(problems, began_ms=began_ms)
        is_carried = is_whole and not self.report.problems
        self._is_whole_reported |= is_carried
        synced_at_ms, took_ms = (began_at_ms if is_carried else 0), round(self._clock.monotonic_ms() - began_ms)
        await self.report.send(link, covered & self.report.covered(), synced_at_ms=synced_at_ms, synced_ms_ago=took_ms)

    # Following the source's commits.

    async def _advance(self) -> bool:
        """Do one step; return True if the next step may follow at once, because it waits by
        itself.
        """
        link = self._link()
        if self._commits is None or link.role is not LinkRole.MIRRORING:
            self._follow_no_longer()
            await self.round()
            return False
        if self._is_full_read_due(self._commits, link):
            return await self._begin_to_follow(self._commits, link)
        await self._follow(self._commits, link)
        return True

    def _is_full_read_due(self, commits: SourceCommits, link: LinkView) -> bool:
        followed = self._followed
        is_same_link = followed is link or (
            followed is not None and followed.role is link.role and followed.record == link.record
        )
        is_recent = self._clock.monotonic_ms() - self._read_in_full_ms < FULL_READ_MS
        return not (commits.is_following and is_same_link and is_recent)

    async def _begin_to_follow(self, commits: SourceCommits, link: LinkView) -> bool:
        """Read everything once. The tail begins before that, and is read up to its end after it: a
        commit that the full read already had is read again, and a later one is read last.
        """
        self._followed = None
        self._drop_listing()
        is_following = commits.is_following
        if not is_following:
            self._offsets.forget_reads()
            is_following = await commits.begin()
        await self.round()
        if not is_following:
            return False
        changed = self._apply(await commits.read_to_end(), link)
        if not (commits.is_following and self._is_source_read):
            return False
        await self._carry(changed, link, asked_ms=self._clock.monotonic_ms())
        self._followed, self._read_in_full_ms = link, self._clock.monotonic_ms()
        self._next_round_ms, self._recheck_ms = self._read_in_full_ms + self._interval_ms, RECHECK_MS
        return True

    async def _follow(self, commits: SourceCommits, link: LinkView) -> None:
        """Carry the next commits, or examine all groups when a round is due."""
        now_ms = self._clock.monotonic_ms()
        wait_ms = self._next_round_ms - now_ms
        if wait_ms <= 0:
            wait_ms = RECHECK_MS
            if self._listing is None:
                self._listing = asyncio.create_task(self._target.groups())
                self._listing.add_done_callback(_retrieve)
        waiting = self._offsets.open_groups(now_ms)
        if waiting or self._waiting_for_write:
            wait_ms = min(wait_ms, self._recheck_ms)
        changes = await commits.read(max_wait_ms=wait_ms)
        came_ms = self._clock.monotonic_ms()
        changed = self._apply(changes, link)
        if self._listing is not None and self._listing.done():
            listing, self._listing = self._listing, None
            self._next_round_ms = came_ms + self._interval_ms
            await self._round_without_reading(commits, link, listing.result())
            return
        if changed:
            self._committed_ms = came_ms
        is_soon = came_ms - self._committed_ms < RECHECK_SOON_MS
        self._recheck_ms = RECHECK_MS if is_soon else min(2 * self._recheck_ms, self._interval_ms)
        due = {*changed, *waiting, *self._waiting_for_write}
        self._waiting_for_write = due & self._writes.under_way
        await self._begin_to_carry(self._offsets.ready(due - self._writes.under_way, came_ms), link, asked_ms=came_ms)
        if not self._is_whole_reported:
            # Until the target has a complete report, a planned failover waits.
            self._next_round_ms = came_ms

    async def _round_without_reading(self, commits: SourceCommits, link: LinkView, states: GroupStates) -> None:
        """Look at all groups, by the source's offsets as they are known; `states` are those of the
        target's groups.
        """
        await self._settle_report()
        await self._writes.settle()
        began_ms, covered = self._clock.monotonic_ms(), self.report.covered()
        complete_at_ms = commits.complete_at_ms
        due = self._list({name for name in self._offsets.at_source if carries_group(link.record, name)}, link)
        self._offsets.target_states({name for name, state in states.by_group.items() if state in ACTIVE_STATES})
        is_whole = await self._carry(due, link, asked_ms=began_ms)
        self._end_round(states.problems, began_ms=began_ms)
        is_carried = is_whole and not self.report.problems and complete_at_ms >= 0
        self._is_whole_reported |= is_carried
        synced_at_ms = self.report.unix_ms(complete_at_ms) if is_carried else 0
        ago_ms = round(self._clock.monotonic_ms() - complete_at_ms) if is_carried else 0
        slots = covered & self.report.covered()
        self._reporting = asyncio.create_task(
            self.report.send(link, slots, synced_at_ms=synced_at_ms, synced_ms_ago=ago_ms)
        )
        self._reporting.add_done_callback(_retrieve)

    async def _settle_report(self) -> None:
        """Wait for the report under way, so that no older one overtakes a newer one. Unreachable:
        it did not arrive.
        """
        reporting, self._reporting = self._reporting, None
        if reporting is not None:
            await reporting

    def _apply(self, changes: Mapping[str, Offsets], link: LinkView) -> list[str]:
        now_ms = self._clock.monotonic_ms()
        changed = [name for name in changes if carries_group(link.record, name)]
        for name in changed:
            self._offsets.source_changed(name, changes[name], now_ms)
        return changed

    def _drop_listing(self) -> None:
        """Forget the list of the target's groups: it describes an earlier moment, before the link
        changed sides or all offsets were read again.
        """
        listing, self._listing = self._listing, None
        if listing is not None:
            listing.cancel()

    def _follow_no_longer(self) -> None:
        self._followed = None
        self._drop_listing()
        if self._commits is not None and self._commits.is_following:
            self._commits.stop()

    # Carrying.

    def _list(self, names: Collection[str], link: LinkView) -> list[str]:
        due = self._offsets.list_groups(names, self._circumstances(link))
        if self._metrics is not None:
            self._metrics.forget_all_but(self._offsets)
        return due

    async def _carry(self, names: Collection[str], link: LinkView, *, asked_ms: float) -> bool:
        """Write the source's known offsets of these groups at the target; False if some groups
        could not be examined.
        """
        is_whole = await self._begin_to_carry(names, link, asked_ms=asked_ms)
        await self._writes.settle()
        return is_whole

    async def _begin_to_carry(self, names: Collection[str], link: LinkView, *, asked_ms: float) -> bool:
        """Decide, and start the writes: the next commits of the source are read at the same time.
        None of the groups has a write under way.
        """
        if not names:
            return True
        readable = await self._read_at_target(names, link)
        facts = self._circumstances(link)
        decisions = [self._offsets.decide(name, facts) for name in readable]
        for decision in decisions:
            self._offsets.apply(decision, facts)
            if decision.in_sync:
                self._target.note_in_sync(decision.group, decision.in_sync)
            if decision.writes or decision.refreshed or decision.removed:
                self._writes.begin(decision, link, asked_ms=asked_ms)
            else:
                self._offsets.succeed(decision.group)
        return len(readable) == len(names) and all(decision.is_whole for decision in decisions)

    async def _read_at_target(self, names: Collection[str], link: LinkView) -> list[str]:
        """Read the unknown offsets at the target; returns the groups that can be decided on: one
        whose offsets the target does not report waits for the next round.
        """
        facts = self._circumstances(link)
        unknown = [name for name in names if self._offsets.unknown_at_target(name, facts)]
        known = set(names).difference(unknown)
        carried = {name: self._offsets.carriable(name, facts) for name in known if not self._offsets.is_active(name)}
        unknown += await self._target.outgrown(carried)
        if not unknown:
            return list(names)
        found = await self._target.offsets_of(unknown)
        for name, reason in found.problems.items():
            self._offsets.fail(name, reason, self._clock.monotonic_ms())
        facts = self._circumstances(link)
        for name in unknown:
            if name in found.by_group and name in self._offsets:
                notes = found.last_in_sync.get(name, {})
                self._offsets.target_read(name, found.by_group[name], facts, notes=notes)
        unanswered = set(unknown) - found.by_group.keys()
        return [name for name in names if name not in unanswered and name in self._offsets]

    def _circumstances(self, link: LinkView) -> Circumstances:
        now_ms, is_kept = self._clock.monotonic_ms(), self._target.keeps_offsets
        return circumstances(self._board, link, now_ms=now_ms, is_kept_at_target=is_kept)

    def _end_round(self, problems: Mapping[str, str], *, began_ms: float) -> None:
        self.report.end_round({**problems, **self._offsets.problems}, self.target_ahead, began_ms=began_ms)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve the outcome, so that asyncio does not report it as lost when nothing awaits it."""
    if not task.cancelled():
        task.exception()
