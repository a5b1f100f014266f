"""`antipode topics`: lists, describes, creates, grows, configures and deletes topics, and looks up
offsets.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cli.shared.failures import failures_as_messages, missing_topic, usage_error
from cli.shared.kafka_admin import (
    DEFAULT_BOOTSTRAP,
    BootstrapServer,
    ask_cluster,
    changed_topic,
    config_changes,
    connect,
    is_shown,
    refused_by_the_client,
    settings,
    topic_change_options,
)
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from cli.shared.topic_calls import (
    alter_configs,
    configs_of,
    delete_records_before,
    offsets_at,
    offsets_before,
    parse_at,
    partition_states,
    partitions_of,
)
from cli.shared.topic_filters import PartitionFilter, UnusableAssignment, parse_assignment
from runtime.process import OperationalFailure
from wire.rules.topic_config_kinds import INT_MAX
from wire.rules.topic_names import is_internal_topic

app = typer.Typer(
    help="Topics of a cluster. Give any broker of either site: a linked topic's leaders are those of its active site.\n\n"
    "Example: antipode topics list --bootstrap-server 127.0.0.1:9092",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Sure = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


UnderReplicated = Annotated[
    bool, typer.Option("--under-replicated", help="Only partitions with replicas that are not in sync.")
]
Unavailable = Annotated[bool, typer.Option("--unavailable", help="Only partitions without a leader.")]
AtMinIsr = Annotated[
    bool, typer.Option("--at-min-isr", help="Only partitions with at most min.insync.replicas replicas in sync.")
]
UnderMinIsr = Annotated[
    bool,
    typer.Option(
        "--under-min-isr",
        help="Only partitions without a leader, or with fewer replicas in sync than min.insync.replicas.",
    ),
]


@app.command("list")
def list_all(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    has_internal: Annotated[bool, typer.Option("--internal", help="Also internal topics.")] = False,
    under_replicated: UnderReplicated = False,
    unavailable: Unavailable = False,
    at_min_isr: AtMinIsr = False,
    under_min_isr: UnderMinIsr = False,
    topics_with_overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics on which configs are set.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List topics with their number of partitions and of partitions without a leader. An option
    limits the list to the topics that it describes.

    Example: antipode topics list -b 127.0.0.1:9092 --under-replicated --output json
    """
    asked = PartitionFilter(
        is_under_replicated=under_replicated,
        is_unavailable=unavailable,
        is_at_min_isr=at_min_isr,
        is_under_min_isr=under_min_isr,
    )
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        known = {
            name: topic for name, topic in sorted(cluster.topics.items()) if has_internal or not is_internal_topic(name)
        }
        rows = []
        for name, topic in known.items():
            states = partition_states(name, topic)
            if not asked.is_empty:
                in_force = configs_of(cluster, name, is_set_only=False) if asked.needs_configs else {}
                states = [state for state in states if asked.shows(state, in_force)]
            if states or asked.is_empty:
                row = {"topic": name, "partitions": len(states), "leaderless": sum(one.leader < 0 for one in states)}
                if topics_with_overrides and not (overrides := configs_of(cluster, name, is_set_only=True)):
                    continue
                rows.append({**row, "configs": overrides} if topics_with_overrides else row)
    if output is OutputFormat.JSON:
        print_json(rows)
        return
    columns = ("topic", "partitions", "leaderless", *(("configs",) if topics_with_overrides else ()))
    print_table(
        "", columns, [tuple(_text(cell) if isinstance(cell, dict) else cell for cell in row.values()) for row in rows]
    )


@app.command()
def describe(
    topic: Topic,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    under_replicated: UnderReplicated = False,
    unavailable: Unavailable = False,
    at_min_isr: AtMinIsr = False,
    under_min_isr: UnderMinIsr = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show a topic's partitions with leaders and offsets (-1: no leader), and the configs that are
    set on it.

    Example: antipode topics describe orders --under-replicated
    """
    asked = PartitionFilter(
        is_under_replicated=under_replicated,
        is_unavailable=unavailable,
        is_at_min_isr=at_min_isr,
        is_under_min_isr=under_min_isr,
    )
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        found = partitions_of(cluster, topic)
        if not asked.is_empty:
            in_force = configs_of(cluster, topic, is_set_only=False)
            shown = [
                state.partition
                for state in partition_states(topic, cluster.topics[topic])
                if asked.shows(state, in_force)
            ]
            found = {index: found[index] for index in shown}
        configs = configs_of(cluster, topic, is_set_only=True)
        led = [index for index, partition in found.items() if partition.leader >= 0]
        ends = dict.fromkeys(found, -1) | offsets_at(cluster, topic, "latest", partitions=led)
        starts = dict.fromkeys(found, -1) | offsets_at(cluster, topic, "earliest", partitions=led)
    rows = [
        {
            "partition": index,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isrs),
            "start_offset": starts[index],
            "end_offset": ends[index],
        }
        for index, partition in sorted(found.items())
    ]
    if output is OutputFormat.JSON:
        print_json({"topic": topic, "configs": configs, "partitions": rows})
        return
    columns = ("partition", "leader", "replicas", "isr", "start offset", "end offset")
    print_table(f"{topic}  {_text(configs)}", columns, [tuple(row.values()) for row in rows])


@app.command()
def create(
    topic: Topic,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    partitions: Annotated[
        int, typer.Option(help="Number of partitions; by default the cluster's.", min=-1, max=INT_MAX)
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Replicas of each partition; by default the cluster's.", min=-1, max=INT_MAX)
    ] = -1,
    replica_assignment: Annotated[
        str,
        typer.Option(
            help="Brokers of each partition, instead of the cluster's choice: commas separate partitions, colons replicas, "
            "as in 1:2,2:1."
        ),
    ] = "",
    config: Annotated[list[str] | None, typer.Option("--config", help="key=value; may be given again.")] = None,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Create a topic. At a linked site the active site creates it, and the mirror copies it to the
    standby.

    Example: antipode topics create orders --partitions 6 --config retention.ms=604800000
    """
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    places = _assignment(replica_assignment, partitions, replication_factor)
    configs = dict(settings(config, "--config"))
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        wanted = NewTopic(
            topic,
            num_partitions=len(places) if places else partitions,
            **({"replica_assignment": places} if places else {"replication_factor": replication_factor}),
            config=configs,
        )
        what = f"topic {topic} cannot be created"
        with refused_by_the_client(what):
            made = cluster.client.create_topics([wanted], validate_only=is_dry_run, **topic_change_options())
        for outcome in made.values():
            changed_topic(outcome, what, client=cluster.client, topic=topic)
        is_there = is_dry_run or is_shown(cluster.client, topic)
    if output is OutputFormat.JSON:
        print_json({"topic": topic, "is_dry_run": is_dry_run, "is_shown": is_there and not is_dry_run})
    else:
        later = "" if is_there else f"; no broker shows it yet: `antipode topics describe {topic}` shows it later"
        console.print(f"topic {topic} {'can be' if is_dry_run else 'is'} created{later}", markup=False)


def _assignment(text: str, partitions: int, replication_factor: int) -> list[list[int]]:
    """The replicas of each partition that --replica-assignment gives; none when it is not given."""
    if not text:
        return []
    if partitions != -1 or replication_factor != -1:
        raise usage_error("--replica-assignment excludes --partitions and --replication-factor: it says both")
    try:
        return parse_assignment(text)
    except UnusableAssignment as error:
        raise usage_error(f"--replica-assignment {text!r} is not usable: {error}") from error


@app.command("add-partitions")
def add_partitions(
    topic: Topic,
    total: Annotated[int, typer.Argument(help="The new total number of partitions.", min=1)],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Add partitions to a topic. Afterwards, new records of a key may go to another partition than
    before.

    Example: antipode topics add-partitions orders 12
    """
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

    with failures_as_messages():
        cluster = connect(bootstrap_server)
        what = f"topic {topic} cannot have {total} partitions"
        with refused_by_the_client(what):
            grown = cluster.client.create_partitions(
                [NewPartitions(topic, total)], validate_only=is_dry_run, **topic_change_options()
            )
        for outcome in grown.values():
            changed_topic(outcome, what, client=cluster.client, topic=topic)
    if output is OutputFormat.JSON:
        print_json({"topic": topic, "partitions": total, "is_dry_run": is_dry_run})
    else:
        console.print(f"topic {topic} {'can have' if is_dry_run else 'has'} {total} partitions", markup=False)


@app.command()
def configs(
    topic: Topic,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be given again.")] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="A key to remove, so that its default applies.")
    ] = None,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show a topic's configs, or change some of them.

    Example: antipode topics configs orders --set retention.ms=86400000 --unset segment.bytes
    """
    changed, removed = config_changes(set_, unset)
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        partitions_of(cluster, topic)
        if changed or removed:
            alter_configs(cluster, topic, changed, removed, is_dry_run=is_dry_run)
        found = configs_of(cluster, topic, is_set_only=False)
    if output is OutputFormat.JSON:
        print_json(found)
    else:
        print_table(topic, ("config", "value"), sorted(found.items()))


@app.command()
def offsets(
    topic: Topic,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    at: Annotated[
        str, typer.Option(help="earliest, latest, Unix milliseconds, or a time such as 2026-01-31T12:00:00Z.")
    ] = "latest",
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show, for each partition, the offset of the first record at or after a time; -1 when there is
    no such record.

    Example: antipode topics offsets orders --at 2026-01-31T12:00:00Z
    """
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        found = offsets_at(cluster, topic, parse_at("--at", at))
    if output is OutputFormat.JSON:
        print_json({str(partition): offset for partition, offset in sorted(found.items())})
    else:
        print_table(f"{topic} at {at}", ("partition", "offset"), sorted(found.items()))


@app.command()
def delete(
    topic: Topic,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_sure: Sure = False,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Delete a topic and its records. A standby's copy stays until the topic is deleted again
    through a broker of the standby.

    Example: antipode topics delete orders --yes
    """
    from kio.schema.errors import ErrorCode

    if not is_sure and not is_dry_run:
        typer.confirm(f"Delete topic {topic} and all its records?", abort=True, err=True)
    with failures_as_messages():
        if is_dry_run:
            partitions_of(connect(bootstrap_server), topic)
        else:
            # Not librdkafka: its version of the request has no error message in the response.
            (outcome,) = ask_cluster(bootstrap_server, lambda client: client.delete_topics([topic]))
            if outcome.error_code is ErrorCode.unknown_topic_or_partition:
                raise missing_topic(topic)
            if outcome.error_code:
                why = f"{outcome.error_code.name.upper()}: {outcome.error_message or 'the broker does not say why'}"
                raise OperationalFailure(f"topic {topic} cannot be deleted: {why}")
    if output is OutputFormat.JSON:
        print_json({"topic": topic, "is_dry_run": is_dry_run})
    else:
        console.print(f"topic {topic} {'would be' if is_dry_run else 'is'} deleted", markup=False)


@app.command("delete-records")
def delete_records(
    topic: Topic,
    before: Annotated[
        str,
        typer.Option(
            help="An offset (with --partition), latest, Unix milliseconds, or a time such as 2026-01-31T12:00:00Z."
        ),
    ],
    partition: Annotated[
        int | None, typer.Option("--partition", help="Only this partition; by default all.", min=0, max=INT_MAX)
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_sure: Sure = False,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Delete the records of a topic before an offset or a time. Nothing restores them.

    Example: antipode topics delete-records orders --before 2026-01-31T12:00:00Z --dry-run
    """
    with failures_as_messages():
        cluster = connect(bootstrap_server)
        wanted = offsets_before(cluster, topic, before, partition)
        if not is_dry_run:
            if not is_sure:
                typer.confirm(f"Delete records of {topic} before {before}?", abort=True, err=True)
            delete_records_before(cluster.client, topic, wanted)
    if output is OutputFormat.JSON:
        print_json(
            {"topic": topic, "is_deleted": not is_dry_run, "before": {str(key): value for key, value in wanted.items()}}
        )
    else:
        title = f"{topic}: records {'would be' if is_dry_run else 'are'} deleted"
        print_table(title, ("partition", "before offset"), sorted(wanted.items()))


def _text(configs: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in configs.items())
