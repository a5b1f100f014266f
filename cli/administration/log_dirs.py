"""`antipode log-dirs`: shows the log directories of brokers with their logs, and moves logs between
the directories of a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.clients.consume import WithKeys, WithPlaces
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from cli.shared.record_output import shown_as
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

app = typer.Typer(
    help="Log directories of brokers: their replicas and free space, and moves between directories of one broker.\n\n"
    "Example: antipode log-dirs describe --bootstrap-server 127.0.0.1:9092",
    no_args_is_help=True,
)

DESCRIBE_LOG_DIRS, ALTER_REPLICA_LOG_DIRS = 35, 34


@app.command()
def describe(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    broker: Annotated[list[int] | None, typer.Option("--broker", help="Only this node id; may be given again.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="The logs of this topic, one by one.")] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show every log directory with its number of logs, their size and the free space; with
    --topic, the logs of that topic.

    Example: antipode log-dirs describe --topic orders --output json
    """
    with failures_as_messages():
        directories = ask_cluster(bootstrap_server, lambda client: directories_of(client, broker))
    logs = [log for directory in directories for log in directory.pop("logs") if topic is None or log["topic"] == topic]
    if topic is not None:
        columns = ("broker", "directory", "topic", "partition", "bytes", "offsets behind", "is coming")
        _show(output, logs, columns)
    else:
        _show(output, directories, ("broker", "directory", "state", "logs", "bytes", "free bytes", "capacity"))


@app.command()
def move(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: Annotated[int, typer.Argument(help="Number of the partition.", min=0)],
    to: Annotated[str, typer.Option("--to", help="Path of the log directory, as in the broker's log.dirs.")],
    broker: Annotated[int, typer.Option("--broker", help="Node id of the broker that holds the log.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check whether the move could begin; change nothing.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Move a partition's log to another directory of the same broker. Clients write and read it
    meanwhile.

    The command returns when the move has begun; `log-dirs describe --topic` shows the progress.

    Example: antipode log-dirs move orders 3 --broker 1001 --to disk2/kafka
    """
    with failures_as_messages():
        ask_cluster(bootstrap_server, lambda client: _move(client, broker, topic, partition, to, is_dry_run=is_dry_run))
    if output is OutputFormat.JSON:
        print_json({"topic": topic, "partition": partition, "broker": broker, "to": to, "is_begun": not is_dry_run})
    else:
        console.print(f"the log of {topic}-{partition} {'can move' if is_dry_run else 'moves'} to {to}", markup=False)


@app.command("show-truncated")
def show_truncated(
    file: Annotated[Path, typer.Argument(help="A file 0.cut.TOPIC-PARTITION.log of a log directory.", exists=True)],
    has_keys: WithKeys = False,
    shows_offsets: WithPlaces = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print the records that a follower truncated from its log because its leader has another
    history.

    The format is that of `antipode consume`, so that `antipode produce` can write the wanted
    records again.

    Example: antipode log-dirs show-truncated disk1/kafka/0.cut.orders-3.log --offsets
    """
    from broker.log.dropped.truncated_names import TRUNCATED_PREFIX
    from wire.batches.record_batch import InvalidBatch
    from wire.batches.records import decode_records

    name = file.name.removeprefix(TRUNCATED_PREFIX).removesuffix(".log")
    topic, _, partition = name.rpartition("-")
    if not file.name.startswith(TRUNCATED_PREFIX) or not topic or not partition.isdecimal():
        raise usage_error(
            f"{file.name} is not the name of such a file: accepted is {TRUNCATED_PREFIX}TOPIC-PARTITION.log"
        )
    show = shown_as(output, has_keys=has_keys, shows_offsets=shows_offsets)
    with failures_as_messages():
        try:
            for record in decode_records(file.read_bytes()):
                show((topic, int(partition)), record)
        except (InvalidBatch, OSError) as error:
            raise OperationalFailure(f"{file}: {error}") from error


def _show(output: OutputFormat, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    if output is OutputFormat.JSON:
        print_json(rows)
    else:
        print_table("", columns, [tuple(row.values()) for row in rows])


async def directories_of(client: KafkaClient, brokers: Sequence[int] | None) -> list[dict[str, Any]]:
    """The log directories of these brokers, or of all, each with its logs."""
    metadata = await client.metadata([])
    wanted = sorted(metadata.brokers) if brokers is None else brokers
    found = []
    for node in wanted:
        response = await (await client.connection(node)).call(DESCRIBE_LOG_DIRS, {"topics": None})
        found += [_directory(node, result) for result in response.results]
    return found


def _directory(node: int, result: Any) -> dict[str, Any]:
    logs = [
        {
            "broker": node,
            "directory": result.log_dir,
            "topic": topic.name,
            "partition": partition.partition_index,
            "bytes": partition.partition_size,
            "offsets_behind": partition.offset_lag,
            "is_coming": partition.is_future_key,
        }
        for topic in result.topics
        for partition in topic.partitions
    ]
    return {
        "broker": node,
        "directory": result.log_dir,
        "state": "offline" if result.error_code else "online",
        "log_count": len(logs),
        "bytes": sum(log["bytes"] for log in logs),
        "free_bytes": result.usable_bytes,
        "capacity_bytes": result.total_bytes,
        "logs": logs,
    }


async def _move(client: KafkaClient, node: int, topic: str, partition: int, path: str, *, is_dry_run: bool) -> None:
    await _check_move(client, node, topic, partition, path)
    if is_dry_run:
        return
    wanted = {"dirs": [{"path": path, "topics": [{"name": topic, "partitions": [partition]}]}]}
    response = await (await client.connection(node)).call(ALTER_REPLICA_LOG_DIRS, wanted)
    error = response.results[0].partitions[0].error_code
    if error:
        raise OperationalFailure(f"the log of {topic}-{partition} cannot move to {path}: {error.name}")


async def _check_move(client: KafkaClient, node: int, topic: str, partition: int, path: str) -> None:
    directories = await directories_of(client, [node])
    online = [directory["directory"] for directory in directories if directory["state"] == "online"]
    if path.rstrip("/") not in online:
        raise OperationalFailure(f"broker {node} has no log directory {path} online; it has {', '.join(online)}")
    here = {(log["topic"], log["partition"]) for directory in directories for log in directory["logs"]}
    if (topic, partition) not in here:
        raise OperationalFailure(f"broker {node} has no log of {topic}-{partition}")
