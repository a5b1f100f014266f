"""The reports that a mirror sends beside its batches: the target's progress to the source, and
partitions without new records to the target. A link has each of them only if the site that receives
it is one of Antipode.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mirror.flow.board import FlowBoard
from mirror.flow.reporting.idle_reports import IdleReports
from mirror.flow.reporting.standby_reports import StandbyReports
from mirror.link.link_watch import LinkView
from mirror.link.ports import ProgressPort, ReportPort
from wire.protocol.ids import TopicPartition


class LinkReports:
    """The reports of one mirror; `workers` run until they are cancelled, then `close`."""

    def __init__(
        self, board: FlowBoard, *, progress: ProgressPort | None, idle: ReportPort | None, link: Callable[[], LinkView]
    ) -> None:
        self._progress = None if progress is None else StandbyReports(board, progress, link)
        self._idle = None if idle is None else IdleReports(board, idle, link)

    @property
    def workers(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The tasks that send the reports, by name."""
        found: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        if self._progress is not None:
            found["standby-reports"] = self._progress.run
        if self._idle is not None:
            found["idle-reports"] = self._idle.run
        return found

    def acknowledged(self, key: TopicPartition) -> None:
        """The target has acknowledged more of a partition."""
        if self._progress is not None:
            self._progress.acknowledged(key)

    def acknowledged_idle(self, key: TopicPartition) -> None:
        """The target has acknowledged a report about this partition alone, and had no news."""
        if self._idle is not None:
            self._idle.acknowledged(key)

    async def close(self) -> None:
        """Drop the connections."""
        for reports in (self._progress, self._idle):
            if reports is not None:
                await reports.close()
