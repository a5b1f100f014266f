"""Brings consumer groups' offsets along: reads them at the source, clamps them to what is mirrored, writes them at the target.

One round an interval, in few requests however many groups there are: on a long line a round trip for each would be too many. A group with
members at the target is left alone, and so is every offset that `core/offsets.py` would not move. What the source had is remembered only
once it has been carried, so that a failed write is tried again. While the source is fenced, for a failover, the target is read anew each
round and gets exactly what the source has. The target hears as of when everything is carried, for the account of a failover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from mirror.board import FlowBoard
from mirror.core.flow_events import LinkRole
from mirror.core.offsets import GroupOffset, TargetRange, offset_to_commit
from mirror.core.partitions import PartitionKey
from mirror.link_watch import LinkStanding
from mirror.ports import GroupPort, Unreachable
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.links import carries_group, carries_topic

ACTIVE_STATES = frozenset({"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})

COMMITS_AT_ONCE = 5
"""As many requests as a connection has under way."""

REST_SHARE = 0.2
"""Of the interval, which is rested at least: rounds that take long do not follow each other without a pause."""

_log = get_logger("mirror.groups")

_Carried = tuple[str, PartitionKey]


class GroupSync:
    """One task."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: GroupPort,
        target: GroupPort,
        link: Callable[[], LinkStanding],
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._board = board
        self._source = source
        self._target = target
        self._link = link
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._carried: dict[_Carried, GroupOffset] = {}
        self._at_target: dict[_Carried, GroupOffset] = {}
        self._problem = ""
        self._is_whole = True
        self.synced_at_ms = -1
        self.committed_offsets = 0

    async def run(self) -> None:
        """Carry offsets each interval until cancelled."""
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                await self.round()
                self._tell("")
            except Unreachable as error:
                self._tell(str(error))
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(self._interval_s - took_s, self._interval_s * REST_SHARE))

    async def round(self) -> None:
        """Carry once. Unreachable when a site does not answer; what was carried before it failed stays carried."""
        link = self._link()
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self._at_target.clear()
            return
        began_at_ms = self._clock.now_ms()
        groups = [group for group in await self._source.groups() if carries_group(link.record, group)]
        self._is_whole = True
        if link.role is LinkRole.DRAINING:
            self._at_target.clear()
        if groups:
            found, states = await asyncio.gather(self._source.offsets_of(groups), self._target.groups())
            self._is_whole = found.keys() >= set(groups)
            carriable = {group: self._carriable(offsets, link) for group, offsets in found.items()}
            await self._read_at_target(carriable)
            turns = asyncio.Semaphore(COMMITS_AT_ONCE)

            async def carry(group: str, offsets: Mapping[PartitionKey, GroupOffset]) -> None:
                async with turns:
                    is_active = states.get(group, "") in ACTIVE_STATES
                    await self._carry(group, offsets, is_active=is_active, link=link)

            await _all(carry(group, offsets) for group, offsets in carriable.items() if offsets)
        self.synced_at_ms = self._clock.now_ms()
        if self._is_whole:
            await self._target.tell_synced(link=link.name, link_epoch=link.epoch, synced_at_ms=began_at_ms)

    async def _read_at_target(self, carriable: dict[str, dict[PartitionKey, GroupOffset]]) -> None:
        """What the target has of groups of which that is not known; where it does not say, the group waits for the next round."""
        unknown = [
            group for group, offsets in carriable.items() if any((group, key) not in self._at_target for key in offsets)
        ]
        if not unknown:
            return
        found = await self._target.offsets_of(unknown)
        for group in unknown:
            if group in found:
                self._at_target |= {(group, key): offset for key, offset in found[group].items()}
            else:
                self._is_whole = False
                del carriable[group]

    def _carriable(
        self, offsets: Mapping[PartitionKey, GroupOffset], link: LinkStanding
    ) -> dict[PartitionKey, GroupOffset]:
        """Those of partitions that are mirrored by this daemon and whose target log is known."""
        found: dict[PartitionKey, GroupOffset] = {}
        for key, offset in offsets.items():
            row = self._board.row(key) if key in self._board else None
            if row is not None and row.is_ours and row.facts.progress.target_log_end_offset >= 0:
                found[key] = offset
            elif (row is None or row.is_ours) and carries_topic(link.record, key.topic):
                self._is_whole = False
        return found

    async def _carry(
        self, group: str, offsets: Mapping[PartitionKey, GroupOffset], *, is_active: bool, link: LinkStanding
    ) -> None:
        wanted: dict[PartitionKey, GroupOffset] = {}
        for key, offset in offsets.items():
            commit = offset_to_commit(
                source=offset,
                source_before=self._carried.get((group, key)),
                target_committed=self._at_target.get((group, key)),
                target=self._range(key),
                is_active_at_target=is_active,
                is_final=link.role is LinkRole.DRAINING and link.record.is_routed,
            )
            if commit is not None:
                wanted[key] = commit
            elif not is_active:
                self._carried[group, key] = offset
        if wanted:
            await self._commit(group, wanted, offsets, link)

    async def _commit(
        self,
        group: str,
        wanted: Mapping[PartitionKey, GroupOffset],
        source: Mapping[PartitionKey, GroupOffset],
        link: LinkStanding,
    ) -> None:
        outcomes = await self._target.commit(group, wanted, link=link.name, link_epoch=link.epoch)
        refused: dict[str, str] = {}
        for key, offset in wanted.items():
            outcome = outcomes.get(key, ErrorCode.unknown_server_error)
            if outcome is ErrorCode.none:
                self._carried[group, key] = source[key]
                self._at_target[group, key] = offset
                self.committed_offsets += 1
            else:
                self._at_target.pop((group, key), None)
                refused[str(key)] = outcome.name
        if refused:
            self._is_whole = False
            _log.warning("the target refuses group offsets", group=group, refused=refused)

    def _range(self, key: PartitionKey) -> TargetRange:
        facts = self._board.row(key).facts
        return TargetRange(
            log_start_offset=facts.target_log_start_offset, log_end_offset=facts.progress.target_log_end_offset
        )

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("group offsets cannot be carried", reason=problem)
        self._problem = problem


async def _all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all, then raise what the first of them raised: what others carried stays carried."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
