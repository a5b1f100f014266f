"""The sync reports of one link's mirror at this broker: the last report of each daemon, and the
reports' ages.

`wire/rules/sync_reports.py` defines a report. Ages run on this broker's monotonic clock from the
age that the daemon reported, so that a corrected wall clock changes none of them.
"""

from __future__ import annotations

from wire.rules.sync_reports import MIRROR_SLOTS, NEVER, ReceivedReport, SyncReport, counting


class ReceivedReports:
    """The reports of one link. Receipt times are monotonic ms."""

    def __init__(self) -> None:
        # When each part was last carried completely, by this broker's monotonic clock.
        self._synced_ms: list[float | None] = [None] * MIRROR_SLOTS
        self._received: dict[str, tuple[SyncReport, float]] = {}
        # When the last round over access rules began that carried all of them.
        self._access_synced_ms: float | None = None
        # The last two intervals between reports, by daemon; the shorter one counts after a long
        # pause.
        self._rounds_ms: dict[str, tuple[float, float]] = {}

    def ages_ms(self, now_ms: float) -> list[int]:
        """The age in ms of the newest complete report of each part, from any daemon; NEVER without
        a report.
        """
        return [NEVER if at_ms is None else max(0, round(now_ms - at_ms)) for at_ms in self._synced_ms]

    def take(self, report: SyncReport, now_ms: float, *, unix_ms: int) -> None:
        """A daemon has said this."""
        if report.synced_at_ms:
            ago_ms = max(0, unix_ms - report.synced_at_ms) if report.synced_ms_ago is None else report.synced_ms_ago
            for slot in report.slots:
                before_ms = self._synced_ms[slot]
                at_ms = now_ms - ago_ms
                self._synced_ms[slot] = at_ms if before_ms is None else max(at_ms, before_ms)
        if report.access is not None and report.access.round_ms_ago is not None:
            began_ms = now_ms - report.access.round_ms_ago
            self._access_synced_ms = max(began_ms, self._access_synced_ms or began_ms)
        if report.daemon in self._received:
            round_ms = now_ms - self._received[report.daemon][1]
            self._rounds_ms[report.daemon] = (self._rounds_ms.get(report.daemon, (0.0, round_ms))[1], round_ms)
        self._received[report.daemon] = (report, now_ms)
        counted = {one.daemon for one in self.counting_reports(now_ms)}
        self._received = {daemon: received for daemon, received in self._received.items() if daemon in counted}
        self._rounds_ms = {daemon: rounds for daemon, rounds in self._rounds_ms.items() if daemon in counted}

    def access_synced_ms_ago(self, now_ms: float) -> int | None:
        """The time in ms since the last round over access rules began that carried all of them;
        None without a report of one.
        """
        return None if self._access_synced_ms is None else max(0, round(now_ms - self._access_synced_ms))

    @property
    def round_ms(self) -> int:
        """The time between the reports of the slowest daemon, in ms; 0 before its second report."""
        return round(max((min(rounds) for rounds in self._rounds_ms.values()), default=0.0))

    def counting_reports(self, now_ms: float) -> list[ReceivedReport]:
        """The reports that count."""
        return counting(
            [
                ReceivedReport(report.daemon, report.slots, report.problems, now_ms - at_ms, report.access)
                for report, at_ms in self._received.values()
            ]
        )

    def resting_ms_ago(self, now_ms: float) -> int:
        """The time in ms since a daemon last reported that it is idle; NEVER if none did."""
        ages_ms = [round(now_ms - at_ms) for report, at_ms in self._received.values() if report.is_resting]
        return min(ages_ms, default=NEVER)

    def forget_reports(self) -> None:
        """The link has changed direction: earlier reports are invalid. How far groups and access
        rules were carried stays known.
        """
        self._received.clear()
        self._rounds_ms.clear()
