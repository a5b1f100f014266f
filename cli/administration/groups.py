"""`antipode groups`: shows consumer groups with members, offsets and lag, and resets or deletes
their offsets.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.shared.failures import failures_as_messages
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, Cluster, answer_of, ask_cluster, connect
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from cli.shared.topic_calls import offsets_at, parse_at, parse_offset
from runtime.process import OperationalFailure
from wire.protocol.ids import NO_OFFSET

app = typer.Typer(
    help="Consumer groups of a cluster. A linked group's offsets are at both sites; these commands show the active one's.\n\n"
    "Example: antipode groups describe shipping --bootstrap-server 127.0.0.1:9092",
    no_args_is_help=True,
)

Group = Annotated[str, typer.Argument(help="Name of the group.")]
Sure = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
OFFSET_PREFIX = "offset:"
FORGOTTEN = "DEAD"
"""The state that Kafka reports for an unknown group."""


@app.command("list")
def list_all(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP, output: Output = OutputFormat.TEXT) -> None:
    """Every group and its state.

    Example: antipode groups list --output json
    """
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        found = answer_of(cluster.client.list_consumer_groups, "groups cannot be listed")
        if found.errors:
            raise OperationalFailure(f"not every broker lists its groups: {'; '.join(map(str, found.errors))}")
    rows = sorted((group.group_id, group.state.name.lower()) for group in found.valid)
    if output is OutputFormat.JSON:
        print_json([{"group": name, "state": state} for name, state in rows])
    else:
        print_table("", ("group", "state"), rows)


@app.command()
def describe(
    group: Group, bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP, output: Output = OutputFormat.TEXT
) -> None:
    """Show a group's members and, for each partition, its committed offset, the log end offset and
    the lag in records.

    Example: antipode groups describe shipping
    """
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        description = answer_of(lambda: cluster.client.describe_consumer_groups([group])[group], f"group {group}")
        rows = _positions(cluster, bootstrap_server, group, _owners(description))
        if description.state.name == FORGOTTEN and not rows:
            raise OperationalFailure(f"group {group} is not there: `antipode groups list` shows those that are")
    document = {
        "group": group,
        "state": description.state.name.lower(),
        "members": [
            {"member_id": member.member_id, "client_id": member.client_id, "host": member.host}
            for member in description.members
        ],
        "partitions": rows,
    }
    if output is OutputFormat.JSON:
        print_json(document)
        return
    lag = sum(row["lag"] for row in rows if row["lag"] is not None)
    title = f"{group}  {document['state']}, {len(description.members)} members, {lag:,} records behind"
    columns = ("topic", "partition", "committed", "end offset", "lag", "member")
    print_table(title, columns, [tuple("" if value is None else value for value in row.values()) for row in rows])


@app.command("reset-offsets")
def reset_offsets(
    group: Group,
    topic: Annotated[str, typer.Option(help="The topic whose offsets are moved.")],
    to: Annotated[str, typer.Option(help="earliest, latest, Unix milliseconds, a time, or offset:NUMBER.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_executed: Annotated[
        bool, typer.Option("--execute", help="Move the offsets; without this option the command only prints the plan.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Change the committed offsets of a group in a topic. The group must have no members.

    Example: antipode groups reset-offsets shipping --topic orders --to 2026-01-31T12:00:00Z
    --execute
    """
    at = parse_target(to)
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        wanted = _targets(cluster, topic, at)
        if is_executed:
            _commit(cluster, group, topic, wanted)
    if output is OutputFormat.JSON:
        print_json(
            {
                "group": group,
                "topic": topic,
                "is_executed": is_executed,
                "offsets": {str(k): v for k, v in wanted.items()},
            }
        )
        return
    print_table(f"{group} in {topic}", ("partition", "new offset"), sorted(wanted.items()))
    console.print("the offsets are moved" if is_executed else "nothing is changed: add --execute to do it")


@app.command()
def delete(
    group: Group,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_sure: Sure = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Delete a group and its offsets. The group must have no members.

    Example: antipode groups delete shipping --yes
    """
    if not is_sure:
        typer.confirm(f"Delete group {group} and its offsets?", abort=True, err=True)
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        answer_of(lambda: cluster.client.delete_consumer_groups([group])[group], f"group {group} cannot be deleted")
    if output is OutputFormat.JSON:
        print_json({"group": group})
    else:
        console.print(f"group {group} is deleted", markup=False)


def parse_target(text: str) -> str | int | tuple[int]:
    """Parse `--to`: a keyword, Unix ms, or a one-tuple with an offset. A usage error lists the
    accepted forms.
    """
    if text.startswith(OFFSET_PREFIX):
        return (parse_offset("--to", text, prefix=OFFSET_PREFIX),)
    return parse_at("--to", text)


def _targets(cluster: Cluster, topic: str, at: str | int | tuple[int]) -> dict[int, int]:
    starts, ends = offsets_at(cluster, topic, "earliest"), offsets_at(cluster, topic, "latest")
    if isinstance(at, tuple):
        return {partition: min(max(at[0], starts[partition]), ends[partition]) for partition in ends}
    found = offsets_at(cluster, topic, at)
    # No record has this time or a later one, so the group continues at the end of the log.
    return {partition: ends[partition] if offset == NO_OFFSET else offset for partition, offset in found.items()}


def _commit(cluster: Cluster, group: str, topic: str, wanted: dict[int, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(topic, partition, offset) for partition, offset in sorted(wanted.items())]
    asked = [ConsumerGroupTopicPartitions(group, places)]
    moved = answer_of(
        lambda: cluster.client.alter_consumer_group_offsets(asked)[group], f"offsets of group {group} cannot be moved"
    )
    refused = [
        f"{place.topic}-{place.partition}: {place.error.str()}" for place in moved.topic_partitions if place.error
    ]
    if refused:
        raise OperationalFailure(f"offsets of group {group} cannot be moved: {'; '.join(refused)}")


def _owners(description: Any) -> dict[tuple[str, int], str]:
    return {
        (place.topic, place.partition): member.client_id
        for member in description.members
        if member.assignment is not None
        for place in member.assignment.topic_partitions
    }


def _positions(
    cluster: Cluster, bootstrap_server: str, group: str, owners: dict[tuple[str, int], str]
) -> list[dict[str, Any]]:
    # not librdkafka's admin client: it ends the process when the coordinator has moved (librdkafka
    # #5040)
    found = ask_cluster(bootstrap_server, lambda client: client.committed(group))
    committed = {place: fetched.offset for place, fetched in found.items()}
    ends = {topic: offsets_at(cluster, topic, "latest") for topic in {topic for topic, _ in (*committed, *owners)}}
    rows = []
    for topic, partition in sorted({*committed, *owners}):
        offset = committed.get((topic, partition), NO_OFFSET)
        end = ends[topic].get(partition)
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "committed": offset if offset >= 0 else None,
                "end_offset": end,
                "lag": end - offset if end is not None and offset >= 0 else None,
                "member": owners.get((topic, partition)),
            }
        )
    return rows
