"""`antipode brokers`: lists the brokers of a site, including missing ones, and unregisters a broker
that will not return.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.administration import reassignment
from cli.shared.failures import failures_as_messages
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster
from cli.shared.output import Output, OutputFormat, console, error_console, print_json, print_table
from runtime.process import OperationalFailure
from wire.rules.topic_config_kinds import INT_MAX

if TYPE_CHECKING:
    from wire.client.cluster_metadata import ClusterMetadata
    from wire.client.raw_client import KafkaClient

app = typer.Typer(
    help="Brokers of the site to which the command connects.\n\nExample: antipode brokers list --bootstrap-server 127.0.0.1:9092",
    no_args_is_help=True,
)


@app.command("list")
def list_all(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP, output: Output = OutputFormat.TEXT) -> None:
    """List each broker with its address, the number of partitions that it leads, and its number of
    replicas. A broker that is not registered is listed too while it has replicas.

    Example: antipode brokers list -b 127.0.0.1:9092 --output json
    """
    with failures_as_messages():
        known = ask_cluster(
            bootstrap_server, lambda client: reassignment.site_metadata(client, None), is_site_local=True
        )
    rows = broker_rows(known)
    if output is OutputFormat.JSON:
        print_json(rows)
        return
    print_table(
        "",
        ("broker", "address", "registered", "leads", "replicas", "in sync"),
        [tuple(row.values()) for row in rows],
    )


def broker_rows(known: ClusterMetadata) -> list[dict[str, Any]]:
    """One row for each broker that is registered or that a partition names as a replica."""
    partitions = [partition for topic in known.topics.values() for partition in topic.partitions.values()]
    leads = Counter(partition.leader_id for partition in partitions)
    replicas = Counter(node for partition in partitions for node in partition.replicas)
    in_sync = Counter(node for partition in partitions for node in partition.isr)
    return [
        {
            "broker": node,
            "address": str(known.brokers[node].address) if node in known.brokers else "",
            "is_registered": node in known.brokers,
            "leads": leads[node],
            "replicas": replicas[node],
            "in_sync": in_sync[node],
        }
        for node in sorted({*known.brokers, *replicas})
    ]


@app.command()
def unregister(
    broker: Annotated[
        int, typer.Argument(help="Node id of a broker that is stopped and never comes back.", min=0, max=INT_MAX)
    ],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Give up a broker that never comes back: deletions of topics stop waiting for it. The command
    is refused while the broker is registered.

    Its replicas of other topics stay assigned to it; `antipode reassign plan` moves them. If the
    broker returns after all, it serves like any other, and deletes its logs of deleted topics.

    Example: antipode brokers unregister 1003 --dry-run
    """
    with failures_as_messages():
        known = ask_cluster(
            bootstrap_server, lambda client: reassignment.site_metadata(client, None), is_site_local=True
        )
        if broker in known.brokers:
            raise OperationalFailure(
                f"broker {broker} is registered: stop it first, and wait until its session has ended"
            )
        left = sorted(
            f"{topic.name}-{index}"
            for topic in known.topics.values()
            for index, partition in topic.partitions.items()
            if broker in partition.replicas
        )
        if not is_dry_run:
            if not is_sure:
                typer.confirm(f"Give up broker {broker} and what only its disks hold?", abort=True, err=True)
            ask_cluster(bootstrap_server, lambda client: _unregister(client, broker), is_site_local=True)
    if is_dry_run and not left:
        error_console.print(
            f"no partition has a replica at broker {broker}: the command is refused then, except while a deletion of a "
            "topic waits for this broker, which only the controller knows",
            markup=False,
        )
    if output is OutputFormat.JSON:
        print_json({"broker": broker, "is_dry_run": is_dry_run, "partitions_still_assigned": left})
        return
    console.print(f"broker {broker} {'would be' if is_dry_run else 'is'} given up", markup=False)
    if left:
        console.print(
            f"{len(left)} partitions still name it as a replica, {left[0]} first: `antipode reassign plan` moves them"
        )


async def _unregister(client: KafkaClient, broker: int) -> None:
    problem = await client.unregister_broker(broker)
    if problem:
        raise OperationalFailure(f"broker {broker} is not given up: {problem}")
