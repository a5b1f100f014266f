"""Runs of a failover whose process ends at a step."""

from __future__ import annotations

from dr.failover.execution import Progress


class RunEnded(Exception):
    """The operator's process ends here."""


def end_run_at(stop_at: str) -> Progress:
    """The progress of a run that ends when this step begins."""

    def progress(step: str, _: str) -> None:
        if step == stop_at:
            raise RunEnded(step)

    return progress
