"""`antipode quarantine`: records that were removed from logs of a site and kept: list, show,
export, delete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.consume import WithKeys, WithPlaces, shown_as
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster
from cli.shared.output import Output, OutputFormat, console, failures_as_messages, print_json
from runtime.process import OperationalFailure
from runtime.times import iso_time

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

app = typer.Typer(
    help="Records that were removed from logs and kept: ends of copies that `links reset` put away, and what replicas truncated.\n\n"
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
    topic: Annotated[str | None, typer.Option("--topic", help="Entries of this topic alone.")] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Everything that the brokers of the site keep: which offsets of what, since when and why.

    Example: antipode quarantine list --topic orders --output json
    """
    with failures_as_messages():
        entries = ask_cluster(bootstrap_server, lambda client: _entries(client, broker), is_site_local=True)
    found = [entry for entry in entries if topic is None or entry["topic"] == topic]
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
    """Print the records of an entry, as `antipode consume` does, so that `antipode produce` can
    take those that are wanted back.

    Example: antipode quarantine show 0.cut.orders-3 --offsets
    """
    from wire.batches.record_batch import InvalidBatch
    from wire.batches.records import decode_records

    with failures_as_messages():
        entry, content = ask_cluster(bootstrap_server, lambda client: _whole(client, name, broker), is_site_local=True)
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
    to: Annotated[Path, typer.Option("--to", help="The file to write; it must not be there yet.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    broker: OneBroker = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Write the batches of an entry, unchanged, into a file, which Kafka's dump tool reads.

    Example: antipode quarantine export 0.cut.orders-3 --to 00000000000000000000.log
    """
    with failures_as_messages():
        entry, content = ask_cluster(bootstrap_server, lambda client: _whole(client, name, broker), is_site_local=True)
        try:
            with to.open("xb") as file:
                file.write(content)
        except OSError as error:
            raise OperationalFailure(f"--to {to}: {error.strerror}") from error
    if output is OutputFormat.JSON:
        print_json({**entry, "file": str(to)})
    else:
        console.print(f"{len(content):,} bytes of {entry['topic']}-{entry['partition']} are in {to}", markup=False)


@app.command()
def delete(
    name: Name,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    broker: OneBroker = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, delete nothing.")] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Give an entry up: its records are gone then. Export it first if anybody may want them.

    Example: antipode quarantine delete 0.cut.orders-3 --dry-run
    """
    with failures_as_messages():
        entry = ask_cluster(bootstrap_server, lambda client: _one(client, name, broker), is_site_local=True)
        if not is_dry_run:
            place = f"{entry['topic']}-{entry['partition']}, offsets {entry['first_offset']} to {entry['end_offset']}"
            if not is_sure:
                typer.confirm(f"Delete what is kept of {place}?", abort=True, err=True)
            ask_cluster(bootstrap_server, lambda client: _delete(client, entry), is_site_local=True)
    if output is OutputFormat.JSON:
        print_json({**entry, "is_deleted": not is_dry_run})
    else:
        console.print(f"{name} {'would be' if is_dry_run else 'is'} deleted", markup=False)


async def _entries(client: KafkaClient, broker: int | None) -> list[dict[str, Any]]:
    from wire.protocol.quarantine_messages import LIST

    nodes = sorted((await client.metadata([])).brokers) if broker is None else [broker]
    found = []
    for node in nodes:
        response = await _ask(client, node, LIST, "")
        found += [{"broker": node, **_fields(entry)} for entry in response.entries]
    return found


async def _one(client: KafkaClient, name: str, broker: int | None) -> dict[str, Any]:
    """The entry of that name. OperationalFailure when there is none, or more than one."""
    found = [entry for entry in await _entries(client, broker) if entry["name"] == name]
    if not found:
        raise OperationalFailure(f"nothing is kept under the name {name!r}: `antipode quarantine list` shows all")
    if len(found) > 1:
        brokers = ", ".join(str(entry["broker"]) for entry in found)
        raise OperationalFailure(f"brokers {brokers} keep entries of the name {name!r}: say which with --broker")
    return found[0]


async def _whole(client: KafkaClient, name: str, broker: int | None) -> tuple[dict[str, Any], bytes]:
    """The entry of that name, and its batches."""
    entry = await _one(client, name, broker)
    return entry, b"".join([piece async for piece in _pieces(client, entry)])


async def _pieces(client: KafkaClient, entry: dict[str, Any]) -> AsyncIterator[bytes]:
    from wire.protocol.quarantine_messages import READ

    position = 0
    while position < entry["size_bytes"]:
        piece = (await _ask(client, entry["broker"], READ, entry["name"], position)).records
        if not piece:
            raise OperationalFailure(f"{entry['name']} ends at {position} of {entry['size_bytes']} bytes")
        yield bytes(piece)
        position += len(piece)


async def _delete(client: KafkaClient, entry: dict[str, Any]) -> None:
    from wire.protocol.quarantine_messages import DELETE

    await _ask(client, entry["broker"], DELETE, entry["name"])


async def _ask(client: KafkaClient, node: int, action: int, name: str, position: int = 0) -> Any:
    from wire.protocol.quarantine_messages import QUARANTINE

    values = {"action": action, "name": name, "position": position}
    response = await (await client.connection(node)).call(QUARANTINE, values)
    if response.error_code:
        raise OperationalFailure(f"broker {node}: {response.error_message or response.error_code.name}")
    return response


def _fields(entry: Any) -> dict[str, Any]:
    names = ("name", "kind", "topic", "topic_id", "partition", "first_offset", "end_offset", "size_bytes", "at_ms")
    return {field: getattr(entry, field) for field in (*names, "reason", "origin_site", "link", "link_epoch")}
