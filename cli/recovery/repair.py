"""`antipode repair`: repairs the differences that a comparison of two sites has found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cli.links.mirrors import MirrorAddress, known_mirrors
from cli.shared.brokers import problems_of_sites
from cli.shared.failures import failures_as_messages
from cli.shared.lists import split_patterns
from cli.shared.output import Output, OutputFormat, console, print_json, print_table, report_progress
from cli.shared.sites import EnvironmentFile, needed_environment, open_environment, site_clients
from runtime.clock import SystemClock
from runtime.process import ExitCode, OperationalFailure

if TYPE_CHECKING:
    from dr.drill.environment import Environment
    from dr.repair.core.orders import Judged, Order
    from dr.repair.core.suspects import Suspect
    from dr.repair.execution import RepairReport, RepairRequest
    from wire.control.cluster_pb2 import LinkRecord

MIRROR_ANSWERS_WITHIN_S = 60


def repair(
    name: Annotated[str, typer.Argument(help="Name of the link.")],
    environment: EnvironmentFile = None,
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Topics: comma-separated regular expressions [default: the link's].")
    ] = "",
    findings: Annotated[
        Path | None,
        typer.Option(
            "--findings",
            help="The report.json of `antipode reconcile --out`: heal the ranges that it names. Without it, digests are compared first.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    trust: Annotated[
        str,
        typer.Option(
            "--trust",
            help="The active site: where either site could be right, its records are kept, and the copy is truncated.",
        ),
    ] = "",
    mirror: MirrorAddress = None,
    settle_timeout_ms: Annotated[
        int, typer.Option(help="How long to wait for the standby to reach the active site's present ends.", min=0)
    ] = 10_000,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the orders; change nothing.")] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Heal differences between the two sites of a link: write damaged batches again with the other
    site's bytes, and truncate a copy that has another history, so that the mirror copies the
    offsets again.

    Removed records go into quarantine (`antipode quarantine`). The active site's log is never
    truncated. Where either site could be right, nothing is done, and the reason is printed.
    Afterwards the digests of both sites are compared. Exit code 0 when the sites are equal, 1 when
    something is left.

    Example: antipode repair a-b --dry-run
    """
    with failures_as_messages():
        known = open_environment(needed_environment(environment))
        request = asyncio.run(_request(known, name))
        if away := asyncio.run(problems_of_sites(request.bootstraps)):
            raise OperationalFailure("; ".join(away.values()))
        changed = {
            "topic_whitelist": split_patterns("--topic", topic),
            "suspects": None if findings is None else _named_in(findings),
            "trusted_site": trust,
            "is_dry_run": is_dry_run,
            "settle_timeout_ms": settle_timeout_ms,
        }
        found = _repaired(request, changed, mirror_of(name, mirror, environment), is_sure=is_sure)
    _print(found, is_dry_run=is_dry_run, output=output)
    if not (found.is_healed or (is_dry_run and not found.refused)):
        raise typer.Exit(ExitCode.FAILED)


def _named_in(file: Path) -> list[Suspect]:
    from dr.repair.core.suspects import of_document

    try:
        return of_document(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OperationalFailure(f"{file} {error}") from error


def _repaired(
    request: RepairRequest,
    changed: dict[str, Any],
    restart_mirror: Callable[[Sequence[str]], Awaitable[None]] | None,
    *,
    is_sure: bool,
) -> RepairReport:
    from dataclasses import replace

    from dr.repair.execution import repair as heal

    def confirm(orders: Sequence[Order]) -> None:
        if is_sure:
            return
        for one in orders:
            report_progress(_sentence(one))
        typer.confirm(f"Carry out {len(orders)} orders?", abort=True, err=True)

    return asyncio.run(
        heal(
            replace(request, **changed),
            SystemClock(),
            confirm=confirm,
            restart_mirror=restart_mirror,
            progress=report_progress,
        )
    )


async def _request(known: Environment, name: str) -> RepairRequest:
    from dr.links.administration import describe_link, governing_record
    from dr.repair.execution import RepairRequest

    known.link(name)
    async with site_clients(known.agents()) as clients:
        record: LinkRecord = governing_record(await describe_link(name, list(clients.values())))
    sites = {record.source_site, record.target_site}
    if missing := sorted(sites - known.sites.keys()):
        raise OperationalFailure(f"the environment has no site {missing[0]}, which link {name} names")
    return RepairRequest(record=record, bootstraps={site: known.sites[site].bootstrap_servers for site in sites})


def mirror_of(
    name: str, mirror: str | None, environment: Path | None
) -> Callable[[Sequence[str]], Awaitable[None]] | None:
    """A function that asks the mirror of a link to continue FAULTED copies whose own records are in
    quarantine; None if the mirror's address is unknown. The mirror notices the truncation of other
    copies by itself.
    """
    addresses = list(known_mirrors(name, mirror, environment).values())
    if not addresses:
        return None

    async def restart(topics: Sequence[str]) -> None:
        import re

        import grpc

        from runtime.grpc_server import open_channel
        from wire.control.mirror_pb2 import ReinstateCopiesRequest
        from wire.control.mirror_pb2_grpc import MirrorAdminStub

        topics_asked = [re.escape(one) for one in topics]
        for address in addresses:
            async with open_channel(address) as channel:
                stub = MirrorAdminStub(channel)  # type: ignore[no-untyped-call]
                try:
                    for is_plan in (True, False):
                        asked = ReinstateCopiesRequest(topics=topics_asked, link=name, is_dry_run=is_plan)
                        reply = await stub.ReinstateCopies(asked, timeout=MIRROR_ANSWERS_WITHIN_S)
                        if any(one.outcome == "planned" for one in reply.partitions):
                            report_progress(
                                "other copies of these topics are diverged too: see antipode links reinstate"
                            )
                            break
                except grpc.aio.AioRpcError as error:
                    report_progress(f"the mirror at {address} does not answer: {error.details()}")

    return restart


def _sentence(one: Judged) -> str:
    from dr.repair.core.orders import Refused, ReplaceBatch

    place = f"{one.topic}-{one.partition} offsets {one.first_offset} to {one.last_offset}"
    if isinstance(one, Refused):
        return f"{place}: {one.reason}"
    verb = (
        "write again with the bytes of site" if isinstance(one, ReplaceBatch) else "truncate and copy again from site"
    )
    return f"{place} at site {one.site}: {verb} {one.from_site}: {one.reason}"


def _print(found: RepairReport, *, is_dry_run: bool, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(_document(found, is_dry_run=is_dry_run))
        return
    entries = {one.order: one.entries for one in found.done}
    for order in found.orders:
        names = entries.get(order)
        state = "planned" if is_dry_run else "not done" if names is None else "done"
        console.print(f"  {state}: {_sentence(order)}", highlight=False, markup=False)
        for entry in names or ():
            console.print(f"    in quarantine: {entry}", highlight=False, markup=False, soft_wrap=True)
    for refusal in found.refused:
        console.print(f"  refused: {_sentence(refusal)}", highlight=False, markup=False)
    for problem in found.problems:
        console.print(f"  [red]problem:[/] {escape(problem)}", highlight=False)
    if found.proof is None:
        console.print(
            f"{len(found.orders)} orders planned, {len(found.refused)} refused", highlight=False, markup=False
        )
        return
    if found.proof.verdict != "equal":
        print_table(
            "",
            ("topic", "partition", "differences"),
            [(one.topic, one.partition, len(one.differences)) for one in found.proof.partitions if one.differences],
        )
        for problem in found.proof.problems:
            console.print(f"  [red]could not compare:[/] {escape(problem)}", highlight=False)
    colour = "green" if found.is_healed else "red"
    left_out = f"; {found.proof.left_out} partitions have no digests" if found.proof.left_out else ""
    console.print(
        f"[bold {colour}]{'healed' if found.is_healed else 'not healed'}[/]: {len(found.done)} of {len(found.orders)} orders "
        f"done, {len(found.refused)} refused; by digests the sites are {found.proof.verdict.value}{left_out}",
        highlight=False,
    )


def _document(found: RepairReport, *, is_dry_run: bool) -> dict[str, Any]:
    from dr.repair.core.orders import ReplaceBatch

    entries = {one.order: one.entries for one in found.done}

    def order(one: Order) -> dict[str, Any]:
        fields = {key: value for key, value in asdict(one).items() if key != "content"}
        return {
            "action": "replace" if isinstance(one, ReplaceBatch) else "truncate",
            **fields,
            "is_done": one in entries,
            "entries": list(entries.get(one, ())),
        }

    return {
        "active_site": found.active_site,
        "standby_site": found.standby_site,
        "is_dry_run": is_dry_run,
        "is_healed": found.is_healed,
        "orders": [order(one) for one in found.orders],
        "refused": [asdict(one) for one in found.refused],
        "problems": [*found.problems, *(() if found.proof is None else found.proof.problems)],
        "verdict": None if found.proof is None else found.proof.verdict.value,
    }
