"""`antipode configs`: shows the effective configs of a topic or broker and their sources, and
changes them at runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cli.shared.failures import failures_as_messages, missing_topic, usage_error
from cli.shared.kafka_admin import (
    DEFAULT_BOOTSTRAP,
    BootstrapServer,
    ask_cluster,
    config_changes,
    raise_refusal,
    refuse_unknown_configs,
)
from cli.shared.output import Output, OutputFormat, console, print_json, print_table

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

app = typer.Typer(
    help="Configs of topics and brokers. A change applies at once and stays after a restart.\n\n"
    "Example: antipode configs show --broker 1001",
    no_args_is_help=True,
)

Topic = Annotated[str | None, typer.Option("--topic", help="A topic's configs.")]
Broker = Annotated[int | None, typer.Option("--broker", help="One broker's configs, by its node id.")]
AllBrokers = Annotated[bool, typer.Option("--all-brokers", help="The configs that all brokers of the site share.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check whether the change is possible, and change nothing.")]

DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
_SOURCES = {
    1: "topic",
    2: "this broker, altered",
    3: "all brokers, altered",
    4: "properties file",
    5: "default",
}


class _Entity(NamedTuple):
    kind: str
    name: str

    @property
    def text(self) -> str:
        """The entity's name in messages."""
        if self.kind == "topic":
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


def _entity(topic: str | None, broker: int | None, is_all_brokers: bool) -> _Entity:
    chosen: list[_Entity] = [
        *([_Entity("topic", topic)] if topic is not None else ()),
        *([_Entity("broker", str(broker))] if broker is not None else ()),
        *([_Entity("broker", "")] if is_all_brokers else ()),
    ]
    if len(chosen) != 1:
        raise usage_error("name the resource: one of --topic, --broker and --all-brokers")
    return chosen[0]


@app.command()
def show(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    topic: Topic = None,
    broker: Broker = None,
    is_all_brokers: AllBrokers = False,
    is_everything: Annotated[bool, typer.Option("--defaults", help="Show defaults, too.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the configs in force and their sources.

    Example: antipode configs show --topic orders --defaults --output json
    """
    entity = _entity(topic, broker, is_all_brokers)
    with failures_as_messages():
        found = ask_cluster(bootstrap_server, lambda client: _describe(client, entity))
    rows = [row for row in found if is_everything or row["source"] != _SOURCES[5]]
    if output is OutputFormat.JSON:
        print_json(rows)
    else:
        columns = ("config", "value", "source", "changes while running")
        print_table(entity.text, columns, [tuple(row.values()) for row in rows])


@app.command()
def alter(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    topic: Topic = None,
    broker: Broker = None,
    is_all_brokers: AllBrokers = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be given again.")] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="A key to remove; the next source's value then applies.")
    ] = None,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Change configs of a topic or of brokers. Either every change is made or none.

    Example: antipode configs alter --all-brokers --set log.retention.ms=86400000 --unset
    log.segment.bytes
    """
    entity = _entity(topic, broker, is_all_brokers)
    if not (set_ or unset):
        raise usage_error("say what to change: --set key=value, --unset key, or both")
    with failures_as_messages():
        changed, removed = config_changes(set_, unset)
        ask_cluster(bootstrap_server, lambda client: _alter(client, entity, changed, removed, is_dry_run=is_dry_run))
    if output is OutputFormat.JSON:
        document = {"entity": entity.text, "set": changed, "unset": removed, "is_changed": not is_dry_run}
        print_json(document)
    else:
        console.print(f"configs of {entity.text} {'can be' if is_dry_run else 'are'} changed", markup=False)


def _resource(entity: _Entity) -> dict[str, Any]:
    return {"resource_type": TOPIC if entity.kind == "topic" else BROKER, "resource_name": entity.name}


async def _connection(client: KafkaClient, entity: _Entity) -> Any:
    """Configs of a broker come from that broker; any broker has the others."""
    metadata = await client.metadata([])
    is_own = entity.kind == "broker" and entity.name
    return await client.connection(int(entity.name) if is_own else min(metadata.brokers))


async def _describe(client: KafkaClient, entity: _Entity) -> list[dict[str, Any]]:
    connection = await _connection(client, entity)
    asked = {"resources": [{**_resource(entity), "configuration_keys": None}], "include_synonyms": False}
    (result,) = (await connection.call(DESCRIBE_CONFIGS, {**asked, "include_documentation": False})).results
    _raise_refusal(result, entity, f"configs of {entity.text} cannot be shown")
    return [
        {
            "config": entry.name,
            "value": entry.value,
            "source": _SOURCES.get(entry.config_source, str(entry.config_source)),
            "is_dynamic": not entry.read_only,
        }
        for entry in sorted(result.configs, key=lambda entry: str(entry.name))
    ]


async def _alter(
    client: KafkaClient, entity: _Entity, changed: dict[str, str], unset: list[str], *, is_dry_run: bool
) -> None:
    what = f"configs of {entity.text} cannot be changed"
    if unset:
        refuse_unknown_configs(unset, {row["config"] for row in await _describe(client, entity)}, what)
    connection = await _connection(client, entity)
    configs = [
        *({"name": name, "config_operation": SET, "value": value} for name, value in changed.items()),
        *({"name": name, "config_operation": DELETE, "value": None} for name in unset),
    ]
    asked = {"resources": [{**_resource(entity), "configs": configs}], "validate_only": is_dry_run}
    (result,) = (await connection.call(INCREMENTAL_ALTER_CONFIGS, asked)).responses
    _raise_refusal(result, entity, what)


def _raise_refusal(result: Any, entity: _Entity, what: str) -> None:
    """OperationalFailure if the broker's result is an error."""
    from kio.schema.errors import ErrorCode

    if result.error_code is ErrorCode.unknown_topic_or_partition:
        raise missing_topic(entity.name)
    raise_refusal(result, what)
