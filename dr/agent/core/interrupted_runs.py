"""Decides whether a failover that the site's agents began by themselves has lost its process after
the raise of the epoch. Pure; `dr/agent/failover_watch.py` looks and acts.

A process that carries a run out repeats its report. If the report stays the same for a while, no
process continues the run, independently of the hosts' clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from dr.failover.core.recorded_run import RUNNING, RunRecord
from wire.control.cluster_pb2 import LinkRecord


class InterruptedRuns:
    """The last reports of a site's runs, as one agent has seen them. A run whose report stays the
    same for `silent_after_ms` has lost its process.
    """

    def __init__(self, silent_after_ms: float) -> None:
        self._silent_after_ms = silent_after_ms
        self._seen: dict[str, tuple[RunRecord, float]] = {}

    def is_due(self, record: LinkRecord, runs: Sequence[str], *, now_ms: float) -> bool:
        """True if an agent has to continue the newest of the stored runs of a link whose record
        makes this site active in an epoch that is not open yet. Agents continue no run of a person
        or an application.
        """
        newest = _newest(runs)
        if newest is None or not _is_unfinished(newest, record):
            self._seen.pop(record.name, None)
            return False
        known = self._seen.get(record.name)
        if known is None or known[0] != newest:
            self._seen[record.name] = newest, now_ms
            return False
        return now_ms - known[1] >= self._silent_after_ms


def _newest(runs: Sequence[str]) -> RunRecord | None:
    try:
        return RunRecord.from_json(runs[-1]) if runs else None
    except (ValueError, TypeError):
        return None  # of another release


def _is_unfinished(run: RunRecord, record: LinkRecord) -> bool:
    # the report may be from before or after the raise
    is_of_epoch = run.to_site == record.active_site and run.epoch in (record.epoch - 1, record.epoch)
    is_automatic = bool(run.policy.get("needs_lost_source"))
    return run.outcome == RUNNING and is_automatic and is_of_epoch
