"""`antipode switchover`: move a link's active role to its standby, as planned work: nothing is
lost, and both sites must answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.recovery.failover import (
    DrainTimeout,
    DryRun,
    JournalFile,
    LinkName,
    NewActiveSite,
    UnavailabilityMax,
    move,
    show_move,
)
from cli.shared.failures import usage_error
from cli.shared.output import Output, OutputFormat, report_progress
from cli.shared.sites import Agents, EnvironmentFile, SiteOptions, agents
from cli.shared.times import parse_time
from runtime.clock import SystemClock
from runtime.times import iso_time

if TYPE_CHECKING:
    from dr.failover.core.steps import FailoverPolicy

PROGRESS_MS = 60_000
"""Interval (ms) at which a command that waits for its time reports this."""


def switchover(
    link: LinkName,
    to: NewActiveSite,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    at: Annotated[
        str | None, typer.Option("--at", help="Begin at this time, such as 2026-11-23T02:00:00Z; until then wait.")
    ] = None,
    drain_timeout_ms: DrainTimeout = 30_000,
    unavailability_max_ms: UnavailabilityMax = 5_000,
    is_dry_run: DryRun = False,
    journal: JournalFile = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Move the active role to the standby with both sites alive: prepare, stop writers, check that
    the fence holds, drain, promote.

    Refused, with writers continuing, if a site does not answer, no mirror runs, the standby does
    not follow closely, or the last records and group offsets do not arrive within
    --unavailability-max-ms. Use `antipode failover` for a site that is lost.

    A switchover may be interrupted; any operator can run it again. Exit code 1 when it was refused.

    Example: antipode switchover a-b --to b --at 2026-11-23T02:00:00Z
    """
    from dr.failover.core.steps import FailoverPolicy

    known = agents(environment, site)
    policy = FailoverPolicy(
        drain_timeout_ms=drain_timeout_ms, unavailability_max_ms=unavailability_max_ms, is_switchover=True
    )
    if at is not None:
        at_ms = _later("--at", at)
        if not is_dry_run:
            _wait_until(at_ms, link, to, known, policy)
    show_move(move(link, to, known, policy, is_dry_run=is_dry_run, journal=journal), output)


def _later(option: str, text: str) -> int:
    at_ms = parse_time(option, text)
    if at_ms <= SystemClock().now_ms():
        raise usage_error(f"{option} {text!r} is in the past: accepted is a time to come")
    return at_ms


def _wait_until(at_ms: int, link: str, to: str, known: Agents, policy: FailoverPolicy) -> None:
    """Wait for the time; the reasons for which a switchover would be refused now are reported
    immediately, and then each minute.
    """
    clock = SystemClock()
    while (left_ms := at_ms - clock.now_ms()) > 0:
        planned = move(link, to, known, policy, is_dry_run=True, journal=None)
        would = f"would be refused now: {planned.reason}" if planned.outcome == "refused" else "could begin now"
        report_progress(f"switchover of {link} to {to} begins at {iso_time(at_ms)}, in {left_ms // 1000} s; it {would}")
        time.sleep(min(PROGRESS_MS, max(0, at_ms - clock.now_ms())) / 1000)
