"""Compares the state of two sites beside their records, as part of `antipode reconcile`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from rich.markup import escape

from cli.shared.output import console
from cli.shared.sites import open_environment, site_clients
from runtime.clock import SystemClock
from runtime.process import OperationalFailure
from wire.rules.links import matches

if TYPE_CHECKING:
    from cli.spark.proof.sides import Sides
    from dr.proof.surroundings import SurroundingsReport

SHOWN_MAX = 20


def compare_surroundings(sides: Sides, environment: Path | None, *, settle_timeout_ms: int) -> SurroundingsReport:
    """Compare them; a question without an answer becomes a note, since the records have their own
    verdict.
    """
    from dr.proof.surroundings import SurroundingsReport

    try:
        return asyncio.run(_compared(sides, environment, settle_timeout_ms))
    except OperationalFailure as failure:
        return SurroundingsReport(differences=(), notes=(f"not compared beside the records: {failure}",))


async def _compared(sides: Sides, environment: Path | None, settle_timeout_ms: int) -> SurroundingsReport:
    from dr.proof.surroundings import ComparedSites, compare_beside_records
    from dr.sites.observation import LinkObserver

    sites = ComparedSites(
        source_site=sides.source_site,
        target_site=sides.target_site,
        source_bootstrap=sides.source,
        target_bootstrap=sides.target,
    )

    def is_wanted(topic: str) -> bool:
        return matches(topic, whitelist=sides.topic_whitelist, blacklist=sides.topic_blacklist)

    clock = SystemClock()
    if not sides.link:
        return await compare_beside_records(sites, is_wanted, clock, settle_timeout_ms=settle_timeout_ms)
    assert environment is not None
    async with site_clients(open_environment(environment).agents()) as clients:
        observer = LinkObserver(
            sides.link, target=clients[sides.target_site], source=clients[sides.source_site], clock=clock
        )
        return await compare_beside_records(
            sites, is_wanted, clock, settle_timeout_ms=settle_timeout_ms, observer=observer
        )


def surroundings_document(found: SurroundingsReport) -> dict[str, Any]:
    """The JSON form."""
    return {
        "differences": [{**to_builtins(one), "kind": one.kind.value} for one in found.differences],
        "notes": list(found.notes),
    }


def print_surroundings(found: SurroundingsReport, sites: tuple[str, str]) -> None:
    """Print what differs, or that nothing does."""
    for one in found.differences[:SHOWN_MAX]:
        held = f"{sites[0]}: {one.source or 'nothing'}, {sites[1]}: {one.target or 'nothing'}"
        console.print(f"  [yellow]{one.kind.value}[/] {escape(f'{one.name}: {held}')}", highlight=False)
    if len(found.differences) > SHOWN_MAX:
        console.print(f"  and {len(found.differences) - SHOWN_MAX} more beside the records", markup=False)
    for note in found.notes:
        console.print(f"  {note}", highlight=False, markup=False)
    if not found.differences and not found.notes:
        console.print(
            "beside the records: topics, configs, groups' offsets, ACLs, quotas, users and quarantines are equal",
            highlight=False,
        )
