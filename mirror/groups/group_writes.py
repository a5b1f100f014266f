"""Writes the decided offsets of groups at the target: of each group one decision at a time, of all
groups at once. `group_sync.py` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet

from kio.schema.errors import ErrorCode

from mirror.groups.core.group_offsets import GroupOffsets
from mirror.groups.core.group_state import GroupDecision
from mirror.groups.group_report import listed
from mirror.groups.metrics import CheckpointMetrics
from mirror.link.core.committed_offsets import removal_of
from mirror.link.group_ports import GroupPort
from mirror.link.link_watch import LinkView
from mirror.link.ports import Unreachable
from runtime.clock import Clock
from wire.protocol.ids import TopicPartition


class GroupWrites:
    """The writes of one daemon. `offsets` learns what the target has taken and refused."""

    def __init__(
        self, offsets: GroupOffsets, target: GroupPort, *, metrics: CheckpointMetrics | None, clock: Clock
    ) -> None:
        self._offsets = offsets
        self._target = target
        self._metrics = metrics
        self._clock = clock
        self._writing: dict[str, asyncio.Task[None]] = {}

    @property
    def under_way(self) -> AbstractSet[str]:
        """Groups whose offsets are being written."""
        return self._writing.keys()

    def begin(self, decision: GroupDecision, link: LinkView, *, asked_ms: float) -> None:
        """Write the decision about a group that has no write under way."""
        task = asyncio.get_running_loop().create_task(self._write_and_end(decision, link, asked_ms))
        self._writing[decision.group] = task

    async def settle(self) -> None:
        """Wait until no write is under way."""
        writing = tuple(self._writing.values())
        try:
            await asyncio.gather(*writing)
        finally:
            for name in [name for name, task in self._writing.items() if task.done()]:
                del self._writing[name]

    def cancel(self) -> None:
        """End all writes. The target may have taken them, so it is read before the next ones."""
        if self._writing:
            self._offsets.forget_target()
        for task in self._writing.values():
            task.cancel()
        # Not for `settle`: a task that awaits a cancelled one is cancelled too.
        self._writing.clear()

    async def _write_and_end(self, decision: GroupDecision, link: LinkView, asked_ms: float) -> None:
        await self._write(decision, link, asked_ms)
        self._writing.pop(decision.group, None)

    async def _write(self, decision: GroupDecision, link: LinkView, asked_ms: float) -> None:
        """Send the decision's writes, then its removals: one request cannot hold both."""
        name = decision.group
        refused: dict[TopicPartition, ErrorCode] = {}
        removed = {key: removal_of(at) for key, at in decision.removed.items()}
        for offsets in ({**decision.refreshed, **decision.writes}, removed):
            if not offsets:
                continue
            try:
                outcomes = await self._target.commit(name, offsets, link=link.name, link_epoch=link.epoch)
            except Unreachable as error:
                self._offsets.fail(name, str(error), self._clock.monotonic_ms())
                return
            found = {key: outcomes.get(key, ErrorCode.unknown_server_error) for key in offsets}
            refused |= {key: code for key, code in found.items() if code is not ErrorCode.none}
        self._offsets.written(decision, refused)
        if self._metrics is not None:
            for key in (decision.writes.keys() | decision.refreshed.keys()) - refused.keys():
                self._metrics.observe(name, key, asked_ms=asked_ms)
        if refused:
            reasons = ", ".join(listed(f"{key} {code.name}" for key, code in refused.items()))
            reason = f"the target refuses offset commits: {reasons}"
            self._offsets.fail(name, reason, self._clock.monotonic_ms())
        else:
            self._offsets.succeed(name)
