"""`antipode elect`: elects the preferred replicas as leaders, or any live replica of a partition
without a leader.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.administration import reassignment
from cli.administration.reassignment_plan import UnusablePlan, parse_partitions
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster
from cli.shared.output import Output, OutputFormat, print_json, print_table
from runtime.process import ExitCode
from wire.protocol.ids import NO_NODE, TopicPartition

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

NOT_NEEDED = "ELECTION_NOT_NEEDED"


class ElectionKind(enum.StrEnum):
    """The replicas that may be elected."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def elect(
    kind: Annotated[
        ElectionKind,
        typer.Argument(
            help="preferred: the first replica, if it is in sync; unclean: any live replica where no replica leads; loses records."
        ),
    ],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    topic: Annotated[str | None, typer.Option("--topic", help="The partitions of this topic.")] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", help="Only this partition of the topic; may be given again.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--plan", help="The partitions that this JSON file names.", exists=True, dir_okay=False),
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="All partitions of the site.")] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Elect new leaders at the site to which the command connects. Exit code 1 when one could not
    be elected.

    Example: antipode elect preferred --topic orders --dry-run
    """
    if (topic is not None) + (file is not None) + is_all != 1 or (partition and topic is None):
        raise usage_error("say which partitions: --topic (and --partition), --plan, or --all")
    named = _named(file)
    if kind is ElectionKind.UNCLEAN and not is_sure and not is_dry_run:
        typer.confirm("Elect replicas that may lack acknowledged records?", abort=True, err=True)
    with failures_as_messages():
        rows = ask_cluster(
            bootstrap_server,
            lambda client: _elect(client, kind, topic, partition, named, is_dry_run=is_dry_run),
            is_site_local=True,
        )
    if output is OutputFormat.JSON:
        print_json({"kind": str(kind), "is_dry_run": is_dry_run, "partitions": rows})
    else:
        columns = ("topic", "partition", "leader before", "outcome")
        print_table(
            "" if rows else "every partition has the wanted leader", columns, [tuple(row.values()) for row in rows]
        )
    if any(row["outcome"] not in ("elected", "would be elected") for row in rows):
        raise typer.Exit(ExitCode.FAILED)


def _named(file: Path | None) -> list[TopicPartition] | None:
    if file is None:
        return None
    try:
        return parse_partitions(file.read_text(encoding="utf-8"))
    except (UnusablePlan, UnicodeDecodeError) as error:
        raise usage_error(f"{file} is not usable: {error}") from error


async def _elect(
    client: KafkaClient,
    kind: ElectionKind,
    topic: str | None,
    partitions: Sequence[int] | None,
    named: Sequence[TopicPartition] | None,
    *,
    is_dry_run: bool,
) -> list[dict[str, Any]]:
    topics = [topic] if topic is not None else None if named is None else sorted({place.topic for place in named})
    metadata = await reassignment.site_metadata(client, topics)
    asked = named if partitions is None or topic is None else [TopicPartition(topic, index) for index in partitions]
    replicas = reassignment.assignment(metadata, asked)
    leaders = {place: metadata.leader_of(*place) for place in replicas}
    wanted = sorted(place for place in replicas if _is_needed(kind, leaders[place], replicas[place]))
    if is_dry_run:
        outcomes = dict.fromkeys(wanted, "would be elected")
    else:
        found = await reassignment.elect(client, wanted, is_unclean=kind is ElectionKind.UNCLEAN) if wanted else []
        outcomes = {
            outcome.place: f"{outcome.error}: {outcome.message}" if outcome.error else "elected"
            for outcome in found
            if outcome.error != NOT_NEEDED
        }
    return [
        {"topic": place.topic, "partition": place.partition, "leader_before": leaders[place], "outcome": outcome}
        for place, outcome in sorted(outcomes.items())
    ]


def _is_needed(kind: ElectionKind, leader: int, replicas: Sequence[int]) -> bool:
    if kind is ElectionKind.UNCLEAN:
        return leader == NO_NODE
    return leader != replicas[0]
