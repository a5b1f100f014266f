"""Brings consumer groups' offsets along: reads them at the source, clamps them to what is mirrored, writes them at the target.

One round an interval. A group with members at the target is left alone, and so is every offset that `core/offsets.py` would
not move. What the source had is remembered only once it has been carried, so that a failed write is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kio.schema.errors import ErrorCode

from mirror.board import FlowBoard
from mirror.core.flow_events import LinkRole
from mirror.core.offsets import GroupOffset, TargetRange, offset_to_commit
from mirror.core.partitions import PartitionKey
from mirror.link_watch import LinkStanding
from mirror.ports import GroupPort, Unreachable
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.links import carries_group

ACTIVE_STATES = frozenset({"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})

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
        self.synced_at_ms = -1
        self.committed_offsets = 0

    async def run(self) -> None:
        """Carry offsets each interval until cancelled."""
        while True:
            try:
                await self.round()
                self._tell("")
            except Unreachable as error:
                self._tell(str(error))
            await asyncio.sleep(self._interval_s)

    async def round(self) -> None:
        """Carry once. Unreachable when a site does not answer; what was carried before it failed stays carried."""
        link = self._link()
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self._at_target.clear()
            return
        groups = [group for group in await self._source.groups() if carries_group(link.record, group)]
        states = await self._target.groups() if groups else {}
        for group in groups:
            offsets = self._carriable(await self._source.offsets(group))
            if offsets:
                await self._carry(group, offsets, is_active=states.get(group, "") in ACTIVE_STATES, link=link)
        self.synced_at_ms = self._clock.now_ms()

    def _carriable(self, offsets: Mapping[PartitionKey, GroupOffset]) -> dict[PartitionKey, GroupOffset]:
        """Those of partitions that are mirrored and whose target log is known."""
        return {
            key: offset
            for key, offset in offsets.items()
            if key in self._board
            and self._board.row(key).is_ours
            and self._board.row(key).facts.progress.target_log_end_offset >= 0
        }

    async def _carry(
        self, group: str, offsets: Mapping[PartitionKey, GroupOffset], *, is_active: bool, link: LinkStanding
    ) -> None:
        if any((group, key) not in self._at_target for key in offsets):
            found = await self._target.offsets(group)
            self._at_target |= {(group, key): offset for key, offset in found.items()}
        wanted: dict[PartitionKey, GroupOffset] = {}
        for key, offset in offsets.items():
            commit = offset_to_commit(
                source=offset,
                source_before=self._carried.get((group, key)),
                target_committed=self._at_target.get((group, key)),
                target=self._range(key),
                is_active_at_target=is_active,
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
