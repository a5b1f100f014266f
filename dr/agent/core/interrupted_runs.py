"""Decides whether a failover that the site's agents began by themselves has lost its process after
the raise of the epoch. Pure; `dr/agent/failover_watch.py` looks and acts.

A process that carries a run out repeats its report. If the report stays the same for a while, no
process continues the run, independently of the hosts' clocks. It may also have died in the pause
after a run that a step ended, before it began the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

from dr.failover.core.recorded_run import REFUSED, RUNNING, RunRecord
from dr.failover.core.steps import Step
from wire.control.cluster_pb2 import LinkRecord

RUNS_MAX: Final = 10
"""Runs that agents begin to finish a raised epoch; after them a person has to decide."""


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
        newest = next(_newest_first(runs), None)
        if newest is None or not _is_left(newest, runs, record):
            self._seen.pop(record.name, None)
            return False
        known = self._seen.get(record.name)
        if known is None or known[0] != newest:
            self._seen[record.name] = newest, now_ms
            return False
        return now_ms - known[1] >= self._silent_after_ms


def _newest_first(runs: Sequence[str]) -> Iterator[RunRecord]:
    """The runs up to one that cannot be read: it is of another release."""
    for text in reversed(runs):
        try:
            yield RunRecord.from_json(text)
        except (ValueError, TypeError):
            return


def _is_left(newest: RunRecord, runs: Sequence[str], record: LinkRecord) -> bool:
    """True if the run, or the next one after it, is due."""
    if newest.outcome == RUNNING:
        return _is_of_raise(newest, record)
    refused = takewhile(lambda run: run.outcome == REFUSED and _may_have_raised(run, record), _newest_first(runs))
    return 0 < sum(1 for _ in refused) < RUNS_MAX


def _may_have_raised(run: RunRecord, record: LinkRecord) -> bool:
    """True if an ended run was of agents and may have raised the record's epoch. Agents repeat no
    other one: a run of a person may have raised that epoch after theirs was refused.
    """
    if not _is_of_raise(run, record):
        return False
    steps = {step.get("step") for step in run.steps}
    # the answer to the raise may be lost, and the run then ends with the epoch before
    is_answer_lost = Step.RAISE in steps and not steps & {Step.GIVE_BACK, Step.HAND_BACK}
    return run.epoch == record.epoch or is_answer_lost


def _is_of_raise(run: RunRecord, record: LinkRecord) -> bool:
    # the report may be from before or after the raise
    is_of_epoch = run.to_site == record.active_site and run.epoch in (record.epoch - 1, record.epoch)
    return is_of_epoch and bool(run.policy.get("needs_lost_source"))
