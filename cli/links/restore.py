"""`antipode links restore`: stores a link again at a site that has lost its ZooKeeper data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from cli.links.link_output import checks_document, print_checks
from cli.links.mirrors import MirrorAddress, Name, known_mirrors
from cli.links.site_calls import with_clients
from cli.shared.failures import print_error, usage_error
from cli.shared.output import Output, OutputFormat, console, print_json
from cli.shared.sites import EnvironmentFile, SiteOptions, agents
from runtime.process import ExitCode

if TYPE_CHECKING:
    from dr.links.administration import CheckedLink
    from dr.sites.site_client import SiteClient


def restore(
    name: Name,
    at: Annotated[str, typer.Option("--at", help="The site that has lost its data.")],
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    mirror: MirrorAddress = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Check both sites and store nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Store a link again at a site that was built anew after it lost its ZooKeeper data.

    The site gets the other site's record and is a standby; the mirror copies everything to it. The
    other site must be the active one. The checks are those of `antipode links create`. Exit code 1
    when one of them refuses.

    Example: antipode links restore a-b --at a --site a=a1:9190 --site b=b1:9190
    """
    known = agents(environment, site)
    if at not in known:
        raise usage_error(f"--at {at!r}: accepted is one of {', '.join(sorted(known))}")
    daemons = known_mirrors(name, mirror, environment)
    checked = with_clients(known, lambda clients: _restored(name, clients, at, daemons, is_dry_run=is_dry_run))
    if output is OutputFormat.JSON:
        print_json(checks_document(checked))
    else:
        print_checks(checked, is_dry_run=is_dry_run)
    if checked.problems:
        print_error(f"link {name} cannot be restored at {at}: {'; '.join(checked.problems)}")
        raise typer.Exit(ExitCode.FAILED)
    if output is not OutputFormat.JSON:
        done, record = "can be stored" if is_dry_run else "is stored", checked.record
        console.print(
            f"link {name} {done} again at {at}: {record.active_site} is active in epoch {record.epoch}", markup=False
        )


async def _restored(
    name: str, clients: dict[str, SiteClient], at: str, daemons: Mapping[str, str], *, is_dry_run: bool
) -> CheckedLink:
    from dr.links.restoration import check_restoration, restore_link

    checked = await check_restoration(name, clients, at=at, mirror=daemons.get(at) or daemons.get("", ""))
    if not is_dry_run and not checked.problems:
        await restore_link(checked, clients[at])
    return checked
