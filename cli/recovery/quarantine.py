"""`antipode quarantine`: records that were removed from logs of a site and kept: list, show,
export, replay, delete.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.clients.consume import WithKeys, WithPlaces
from cli.recovery.quarantined import entries
from cli.recovery.quarantined.exported import ExportFormat, write_log, write_records
from cli.recovery.quarantined.replay import Replay, ReplayPlan
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster, client_of
from cli.shared.output import Output, OutputFormat, console, print_json, progress_bar, report_progress
from cli.shared.record_output import shown_as
from runtime.process import OperationalFailure
from runtime.times import iso_time

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

app = typer.Typer(
    help="Records that were removed from logs and kept: ends of copies that `links reset` removed, and records that replicas truncated.\n\n"
    "Example: antipode quarantine list --bootstrap-server 127.0.0.1:9092",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="An entry's name, as `antipode quarantine list` has it.")]
OneBroker = Annotated[
    int | None, typer.Option("--broker", help="Only this node id, where several brokers have an entry of that name.")
]


@app.command("list")
def list_entries(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    broker: OneBroker = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only entries of this topic.")] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List all entries in the quarantine of the site's brokers, with their offsets, times and
    reasons.

    Example: antipode quarantine list --topic orders --output json
    """
    with failures_as_messages():
        kept = ask_cluster(bootstrap_server, lambda client: entries.entries(client, broker), is_site_local=True)
    found = [entry for entry in kept if topic is None or entry["topic"] == topic]
    if output is OutputFormat.JSON:
        print_json(found)
        return
    if not found:
        console.print("nothing is kept")
    for entry in found:
        # a name is copied into the next command: no table may break it
        console.print(entry["name"], markup=False, highlight=False, soft_wrap=True)
        place = f"{entry['topic']}-{entry['partition']}, offsets {entry['first_offset']} to {entry['end_offset']}"
        origin = f" of site {entry['origin_site']}, link {entry['link']}" if entry["link"] else ""
        console.print(
            f"  {entry['kind']}: {place}, {entry['size_bytes']:,} bytes{origin}, at broker {entry['broker']} since "
            f"{iso_time(entry['at_ms'])}: {entry['reason']}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


@app.command()
def show(
    name: Name,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    broker: OneBroker = None,
    has_keys: WithKeys = False,
    shows_offsets: WithPlaces = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print the records of an entry in the format of `antipode consume`, so that `antipode produce`
    can write the wanted records again.

    Example: antipode quarantine show 0.cut.orders-3 --offsets
    """
    from wire.batches.record_batch import InvalidBatch
    from wire.batches.records import decode_records

    with failures_as_messages():
        entry, content = ask_cluster(
            bootstrap_server, lambda client: entries.whole(client, name, broker), is_site_local=True
        )
        shown = shown_as(output, has_keys=has_keys, shows_offsets=shows_offsets)
        try:
            for record in decode_records(content):
                if record.offset >= entry["first_offset"]:
                    shown((entry["topic"], entry["partition"]), record)
        except InvalidBatch as error:
            raise OperationalFailure(f"{name}: {error}") from error


@app.command()
def export(
    name: Name,
    to: Annotated[Path, typer.Option("--to", help="The file to write; it must not exist.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    broker: OneBroker = None,
    form: Annotated[
        ExportFormat,
        typer.Option("--as", help="log: the unchanged batches; json-lines or parquet: the records for other programs."),
    ] = ExportFormat.LOG,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Write an entry into a file: the unchanged batches, which Kafka's dump tool can read, or its
    records as JSON lines or Parquet.

    Example: antipode quarantine export 0.cut.orders-3 --to orders-3.parquet --as parquet
    """
    with failures_as_messages():
        try:
            if form is ExportFormat.LOG:
                entry, content = ask_cluster(
                    bootstrap_server, lambda client: entries.whole(client, name, broker), is_site_local=True
                )
                write_log(content, to)
            else:
                entry = _export_records(name, to, bootstrap_server, broker, form)
        except OSError as error:
            raise OperationalFailure(f"--to {to}: {error.strerror}") from error
    if output is OutputFormat.JSON:
        print_json({**entry, "file": str(to)})
    elif form is not ExportFormat.LOG:
        console.print(
            f"{entry['records']:,} records of {entry['topic']}-{entry['partition']} are in {to}", markup=False
        )
    else:
        console.print(f"{len(content):,} bytes of {entry['topic']}-{entry['partition']} are in {to}", markup=False)


def _export_records(
    name: str, to: Path, bootstrap_server: str, broker: int | None, form: ExportFormat
) -> dict[str, Any]:
    """Write the entry's records; the entry with their number."""

    async def write(client: KafkaClient) -> dict[str, Any]:
        entry = await entries.one(client, name, broker)
        return {**entry, "records": await write_records(entries.batches(client, entry), entry, to, form)}

    return ask_cluster(bootstrap_server, write, is_site_local=True)


@app.command()
def replay(
    name: Annotated[str | None, typer.Argument(help="An entry's name; or give --link.")] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    to: Annotated[
        str | None, typer.Option("--to", help="Brokers of the active site; by default those that keep the entry.")
    ] = None,
    link: Annotated[str | None, typer.Option("--link", help="Every entry of this link instead of one.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Another topic than the one of the records.")] = None,
    broker: OneBroker = None,
    with_aborted: Annotated[bool, typer.Option("--with-aborted", help="Records of aborted transactions too.")] = False,
    with_open: Annotated[bool, typer.Option("--with-open", help="Records of open transactions too.")] = False,
    may_repeat: Annotated[
        bool, typer.Option("--again", help="Also where an earlier replay may have been removed from the log since.")
    ] = False,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be written, write nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Write the records of an entry to the active site. A second run writes no record again.

    A record keeps its key, value, headers and time, and gets headers that name its origin. Records
    of aborted or open transactions are not written; the command counts them. See
    docs/failover.md.

    Example: antipode quarantine replay 0.cut.orders-3 --to b1:9092 --dry-run
    """
    if (name is None) == (link is None):
        raise usage_error("give either the name of an entry or --link")
    plan = ReplayPlan(
        to=to or bootstrap_server,
        topic=topic,
        with_aborted=with_aborted,
        with_open=with_open,
        may_repeat=may_repeat,
        is_dry_run=is_dry_run,
    )
    with failures_as_messages():
        replays = asyncio.run(_replayed(plan, bootstrap_server, name=name, link=link, broker=broker))
    if output is OutputFormat.JSON:
        print_json([one.document() for one in replays])
    for one in replays if output is OutputFormat.TEXT else ():
        found = one.document()
        console.print(
            f"{found['name']}: {found['replayed']:,} records {'would go' if is_dry_run else 'are written'} to {found['to_topic']}, "
            f"{found['present']:,} were there; left out: {found['aborted']:,} of aborted and {found['open']:,} of open transactions, "
            f"{found['markers']:,} markers",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


async def _replayed(
    plan: ReplayPlan, bootstrap_server: str, *, name: str | None, link: str | None, broker: int | None
) -> list[Replay]:
    from wire.client.client_errors import KafkaClientError

    try:
        async with client_of(bootstrap_server, is_site_local=True) as client, client_of(plan.to) as active:
            if name is not None:
                wanted = [await entries.one(client, name, broker)]
            else:
                kept = [entry for entry in await entries.entries(client, broker) if entry["link"] == link]
                wanted = sorted(kept, key=lambda entry: (entry["topic"], entry["partition"], entry["first_offset"]))
            replays = [Replay(entry, plan) for entry in wanted]
            for one in replays:
                report_progress(f"{one.entry['name']}: {one.entry['size_bytes']:,} bytes")
                described = (await active.metadata([one.topic])).topics.get(one.topic)
                if described is None or one.entry["partition"] not in described.partitions:
                    raise OperationalFailure(f"--to {plan.to} has no partition {one.topic}-{one.entry['partition']}")
                with progress_bar(one.entry["size_bytes"], of_bytes=True) as advance:
                    await one.run(client, topic_id=str(described.topic_id or ""), advance=advance)
            return replays
    except KafkaClientError as error:
        raise OperationalFailure(str(error)) from error


@app.command()
def delete(
    name: Name,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    broker: OneBroker = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be deleted; delete nothing.")] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Delete an entry with its records. Export it first if its records may still be needed.

    Example: antipode quarantine delete 0.cut.orders-3 --dry-run
    """
    with failures_as_messages():
        entry = ask_cluster(bootstrap_server, lambda client: entries.one(client, name, broker), is_site_local=True)
        if not is_dry_run:
            place = f"{entry['topic']}-{entry['partition']}, offsets {entry['first_offset']} to {entry['end_offset']}"
            if not is_sure:
                typer.confirm(f"Delete the records that are kept of {place}?", abort=True, err=True)
            ask_cluster(bootstrap_server, lambda client: entries.delete(client, entry), is_site_local=True)
    if output is OutputFormat.JSON:
        print_json({**entry, "is_deleted": not is_dry_run})
    else:
        console.print(f"{name} {'would be' if is_dry_run else 'is'} deleted", markup=False)
