"""`antipode links check`: shows what a failover at this moment would lose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from cli.links.mirrors import Name
from cli.shared.failures import failures_as_messages, print_error
from cli.shared.output import Output, OutputFormat, console, error_console, print_json, print_table
from cli.shared.sites import Agents, EnvironmentFile, SiteOptions, agents, site_clients
from runtime.process import ExitCode

if TYPE_CHECKING:
    from dr.links.core.readiness import Readiness


def check(
    name: Name,
    lag_max: Annotated[
        int, typer.Option("--max-lag", help="The accepted number of missing records over all topics.", min=0)
    ] = 0,
    groups_age_ms_max: Annotated[
        int,
        typer.Option(
            "--max-group-age-ms",
            help="Accept groups that are behind if all offsets were carried within this time.",
            min=0,
        ),
    ] = 0,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show what would be missing, by topic and group, if the active site were lost at this moment.
    Changes nothing.

    Shows too whether releases differ, which topics the standby's controller refuses, and whether a
    mirror reports; --output json has every check. Exit code 1 when a failover would lose more than
    the options allow, or when the loss is not known because a site does not answer. Under load
    records are always on their way: set --max-lag and --max-group-age-ms to the loss that you can
    accept.

    Example: antipode links check a-b --max-lag 1000 --max-group-age-ms 2000
    """
    with failures_as_messages():
        known = agents(environment, site)
        found = asyncio.run(_checked(name, known))
    is_ready = found.is_ready(lag_records_max=lag_max, groups_age_ms_max=groups_age_ms_max)
    if output is OutputFormat.JSON:
        checks = [{**to_builtins(one), "outcome": one.outcome.value} for one in found.checks]
        print_json(
            {**to_builtins(found), "checks": checks, "missing_records": found.missing_records, "is_ready": is_ready}
        )
    else:
        _print_readiness(found, is_ready=is_ready)
    raise typer.Exit(ExitCode.DONE if is_ready else ExitCode.FAILED)


async def _checked(name: str, known: Agents) -> Readiness:
    from dr.links.readiness import check_readiness

    async with site_clients(known) as clients:
        return await check_readiness(name, list(clients.values()))


def _print_readiness(found: Readiness, *, is_ready: bool) -> None:
    from dr.links.core.link_preflight import Outcome

    if found.topics:
        topics = [(one.topic, len(one.partitions), one.missing_records) for one in found.topics]
        print_table("", ("topic", "partitions behind", "records missing"), topics)
    if found.groups:
        print_table("", ("group", "offsets missing"), [(one.group, one.missing_offsets) for one in found.groups])
    for problem in found.problems:
        print_error(problem)
    for one in found.checks:
        if one.outcome is not Outcome.OK:
            error_console.print(f"{one.check}: {one.detail}", soft_wrap=True, markup=False, highlight=False)
    carried = "it is not known when" if found.groups_age_ms < 0 else f"{found.groups_age_ms} ms ago"
    verdict = (
        "nothing that counts would be lost" if is_ready else "a failover now would lose something, or it is not known"
    )
    console.print(
        f"{verdict}: {found.missing_records} records and offsets of {len(found.groups)} groups are not at {found.standby} "
        f"(all offsets were there {carried})",
        highlight=False,
        soft_wrap=True,
    )
