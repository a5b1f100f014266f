"""`antipode links`: lists, describes, confirms and deletes links; its other commands have a module
each.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cli.links.alter import alter
from cli.links.check import check
from cli.links.complete import complete
from cli.links.create import create
from cli.links.link_output import (
    description_document,
    fields_of,
    print_description,
    print_record,
    status_document,
    status_row,
)
from cli.links.link_status import status
from cli.links.mirrors import (
    MirrorAddress,
    Name,
    describe_mirror,
    pause,
    print_mirror,
    reset,
    resume,
    verify,
)
from cli.links.reinstate import reinstate
from cli.links.restore import restore
from cli.links.site_calls import with_clients
from cli.links.translate_offset import translate_offset
from cli.shared.failures import usage_error
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from cli.shared.sites import EnvironmentFile, SiteOptions, agents
from runtime.process import ExitCode

app = typer.Typer(
    help="Links: the topics and groups of one site of which the other site holds an exact copy, and which site is active.\n\n"
    "Example: antipode links list --environment out/sites/environment.json",
    no_args_is_help=True,
)

app.command()(create)
app.command()(alter)
app.command()(status)
app.command()(complete)
app.command()(check)
app.command()(pause)
app.command()(resume)
app.command()(verify)
app.command()(reset)
app.command()(reinstate)
app.command()(restore)
app.command()(translate_offset)


@app.command("list")
def list_all(environment: EnvironmentFile = None, site: SiteOptions = None, output: Output = OutputFormat.TEXT) -> None:
    """List every link as each site stores it. The passive site adds the age of its mirror's last
    report (mirror_report_age_ms -1: no report yet).

    Example: antipode links list --site a=127.0.0.1:9190 --site b=127.0.0.1:9290
    """
    from dr.links.administration import list_links

    entries = with_clients(agents(environment, site), lambda clients: list_links(list(clients.values())))
    if output is OutputFormat.JSON:
        print_json([status_document(entry) for entry in entries])
        return
    rows = [status_row(entry) for entry in entries]
    columns = (
        "link",
        "seen by",
        "active",
        "epoch",
        "phase",
        "sync",
        "confirmed",
        "peer",
        "mirror",
        "whitelist",
        "blacklist",
    )
    print_table("", columns, rows)


@app.command()
def describe(
    name: Name,
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show one link at each site: its record, and the log of every partition. With --mirror, show
    the view of its mirror daemon.

    Example: antipode links describe a-b --output json
    """
    from dr.links.administration import describe_link

    if mirror is not None:
        reply = describe_mirror(name, mirror, environment)
        if output is OutputFormat.JSON:
            described = fields_of(reply)
            described["partitions"] = [fields_of(item) for item in reply.partitions]
            described["refused_changes"] = [fields_of(item) for item in reply.refused_changes]
            described["groups_stale_since_ms"] = dict(reply.groups_stale_since_ms)
            if reply.HasField("transactions"):
                described["transactions"] = fields_of(reply.transactions)
            print_json(described)
        else:
            print_mirror(reply)
        return
    entries = with_clients(agents(environment, site), lambda clients: describe_link(name, list(clients.values())))
    if output is OutputFormat.JSON:
        print_json([description_document(entry) for entry in entries])
    else:
        for entry in entries:
            print_description(entry)
    # One site is enough: after a disaster the other one does not answer.
    if all(entry.description is None for entry in entries):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def confirm(
    name: Name,
    at: Annotated[str, typer.Option("--at", help="The site whose stored record is the right one.")],
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Confirm a site's link record while its peer does not answer. Do this only if the other site
    was not promoted.

    Example: antipode links confirm a-b --at a
    """
    from dr.links.administration import confirm_link

    known = agents(environment, site)
    if at not in known:
        raise usage_error(f"--at {at!r}: accepted is one of {', '.join(sorted(known))}")
    if not is_sure:
        typer.confirm(f"Is it certain that no other site was promoted for link {name}?", abort=True, err=True)
    record = with_clients(known, lambda clients: confirm_link(name, clients[at]))
    print_record(
        record, f"link {name} is confirmed at {at}: {record.active_site} is active in epoch {record.epoch}", output
    )


@app.command()
def delete(
    name: Name,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    may_skip_unreachable: Annotated[
        bool, typer.Option("--skip-unreachable", help="Delete it at a site that answers; the other site follows later.")
    ] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Delete a link at every site. All topics stay; the copies of the standby become ordinary
    topics.

    Example: antipode links delete a-b --yes
    """
    from dr.links.administration import delete_link

    known = agents(environment, site)
    if not is_sure:
        typer.confirm(f"Delete link {name} at {', '.join(sorted(known))}?", abort=True, err=True)
    gone = with_clients(
        known, lambda clients: delete_link(name, list(clients.values()), may_skip_unreachable=may_skip_unreachable)
    )
    if output is OutputFormat.JSON:
        print_json({"deleted_at": gone})
    else:
        console.print(f"link {name} is gone at {', '.join(gone)}", markup=False)
