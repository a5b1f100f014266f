"""`antipode quotas`: shows and changes the quotas of users, client ids and addresses. A change
applies to all brokers of the site.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster, raise_refusal, settings
from cli.shared.output import Output, OutputFormat, console, print_json, print_table

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient
    from wire.rules.client_quotas import QuotaEntity

app = typer.Typer(
    help="Quotas of users, client ids and addresses. The mirror of an exact link carries them to the standby.\n\n"
    "Example: antipode quotas set --client-id reports consumer_byte_rate=1048576",
    no_args_is_help=True,
)

User = Annotated[str | None, typer.Option("--user", help="A user; connections without a login are ANONYMOUS.")]
AnyUser = Annotated[bool, typer.Option("--any-user", help="Each user without a separate quota.")]
Client = Annotated[str | None, typer.Option("--client-id", help="A client id; with a user, that user's client.")]
AnyClient = Annotated[bool, typer.Option("--any-client", help="Each client id without a separate quota.")]
Address = Annotated[str | None, typer.Option("--ip", help="An address that connections come from.")]
AnyAddress = Annotated[bool, typer.Option("--any-ip", help="Each address without a separate quota.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check whether the change is possible, and change nothing.")]

DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
QUOTAS_HELP = (
    "key=value; keys: producer_byte_rate, consumer_byte_rate (bytes a second and broker), request_percentage (of a broker's event loop), "
    "controller_mutation_rate (partitions a second), for addresses connection_creation_rate."
)


def _entity(
    user: str | None, is_any_user: bool, client_id: str | None, is_any_client: bool, ip: str | None, is_any_ip: bool
) -> QuotaEntity:
    parts: list[tuple[str, str | None]] = []
    for kind, name, is_any, option in (
        ("user", user, is_any_user, "user"),
        ("client-id", client_id, is_any_client, "client"),
        ("ip", ip, is_any_ip, "ip"),
    ):
        if name is not None and is_any:
            raise usage_error(f"--any-{option} and a name of one contradict each other")
        if name is not None or is_any:
            parts.append((kind, name))
    if not parts:
        raise usage_error("say whose quotas: --user, --any-user, --client-id, --any-client, --ip or --any-ip")
    return tuple(parts)


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"any {kind}" if name is None else f"{kind} {name}" for kind, name in entity)


@app.command(name="list")
def list_quotas(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP, output: Output = OutputFormat.TEXT) -> None:
    """All quotas of the site.

    Example: antipode quotas list --output json
    """
    with failures_as_messages():
        found = ask_cluster(bootstrap_server, _all_quotas, is_site_local=True)
    rows = sorted((_text(entity), key, value) for entity, values in found.items() for key, value in values.items())
    if output is OutputFormat.JSON:
        print_json([{"entity": dict(entity), "quotas": values} for entity, values in found.items()])
    else:
        print_table("quotas", ("for", "quota", "value"), [(who, key, f"{value:g}") for who, key, value in rows])


@app.command(name="set")
def set_quotas(
    quotas: Annotated[list[str], typer.Argument(help=QUOTAS_HELP)],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    user: User = None,
    is_any_user: AnyUser = False,
    client_id: Client = None,
    is_any_client: AnyClient = False,
    ip: Address = None,
    is_any_ip: AnyAddress = False,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Set quotas. Quotas that the command does not name stay.

    Example: antipode quotas set --any-client producer_byte_rate=10485760 request_percentage=50
    """
    entity = _entity(user, is_any_user, client_id=client_id, is_any_client=is_any_client, ip=ip, is_any_ip=is_any_ip)
    values = settings(quotas, "quota")
    _check_keys(entity, values)
    ops = [{"key": key, "value": _number(key, text), "remove": False} for key, text in values.items()]
    _alter(bootstrap_server, entity, ops, is_dry_run=is_dry_run, output=output)


@app.command()
def remove(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    quotas: Annotated[list[str] | None, typer.Argument(help="Keys to remove; without any, all of them.")] = None,
    user: User = None,
    is_any_user: AnyUser = False,
    client_id: Client = None,
    is_any_client: AnyClient = False,
    ip: Address = None,
    is_any_ip: AnyAddress = False,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Take quotas away.

    Example: antipode quotas remove --client-id reports consumer_byte_rate
    """
    entity = _entity(user, is_any_user, client_id=client_id, is_any_client=is_any_client, ip=ip, is_any_ip=is_any_ip)
    _check_keys(entity, quotas or ())
    with failures_as_messages():
        held = sorted(ask_cluster(bootstrap_server, _all_quotas, is_site_local=True).get(entity, {}))
    ops = [{"key": key, "value": 0.0, "remove": True} for key in held if not quotas or key in quotas]
    _alter(bootstrap_server, entity, ops, is_dry_run=is_dry_run, output=output)


@app.command()
def describe(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    user: Annotated[str, typer.Option("--user", help="The client's user.")] = "ANONYMOUS",
    client_id: Annotated[str, typer.Option("--client-id", help="The client's id.")] = "",
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the quotas that apply to a client, and the entity that defines each of them.

    Example: antipode quotas describe --client-id reports
    """
    from broker.quotas.core.client_quotas import limit_of
    from wire.rules.client_quotas import CLIENT_KEYS

    with failures_as_messages():
        found = ask_cluster(bootstrap_server, _all_quotas, is_site_local=True)
    limits = {key: limit_of(found, key, user=user, client_id=client_id) for key in CLIENT_KEYS}
    holding = {key: limit for key, limit in limits.items() if limit is not None}
    if output is OutputFormat.JSON:
        print_json({key: {"value": limit.bound, "entity": dict(limit.entity)} for key, limit in holding.items()})
    else:
        rows = [(key, f"{limit.bound:g}", _text(limit.entity)) for key, limit in holding.items()]
        print_table(f"user {user}, client-id {client_id}", ("quota", "value", "that of"), rows)


def _check_keys(entity: QuotaEntity, keys: Iterable[str]) -> None:
    """A usage error for a quota that such an entity cannot have."""
    from wire.rules.client_quotas import CLIENT_KEYS, CONNECTION_CREATION_RATE, IP

    accepted = (CONNECTION_CREATION_RATE,) if entity[0][0] == IP else CLIENT_KEYS
    for key in keys:
        if key not in accepted:
            raise usage_error(f"quota {key!r} is not usable for {_text(entity)}: accepted are {', '.join(accepted)}")


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise usage_error(f"{key}={text} is not usable: accepted is a number") from error


def _alter(
    bootstrap_server: str,
    entity: QuotaEntity,
    ops: list[dict[str, Any]],
    *,
    is_dry_run: bool,
    output: OutputFormat,
) -> None:
    with failures_as_messages():
        if ops:
            ask_cluster(
                bootstrap_server,
                lambda client: _ask_to_alter(client, entity, ops, is_dry_run=is_dry_run),
                is_site_local=True,
            )
    is_changed = bool(ops) and not is_dry_run
    if output is OutputFormat.JSON:
        print_json({"entity": dict(entity), "ops": ops, "is_changed": is_changed})
    elif not ops:
        console.print(f"{_text(entity)} has no such quotas", markup=False)
    else:
        console.print(f"quotas of {_text(entity)} {'are' if is_changed else 'can be'} changed", markup=False)


async def _all_quotas(client: KafkaClient) -> dict[QuotaEntity, dict[str, float]]:
    from wire.client.requests.answer_checks import lowest_connection

    connection = await lowest_connection(client)
    answer = await connection.call(DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
    raise_refusal(answer, "quotas cannot be listed")
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: float(value.value) for value in entry.values
        }
        for entry in answer.entries or ()
    }


async def _ask_to_alter(
    client: KafkaClient, entity: QuotaEntity, ops: list[dict[str, Any]], *, is_dry_run: bool
) -> None:
    from wire.client.requests.answer_checks import lowest_connection

    connection = await lowest_connection(client)
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    asked = {"entries": [{"entity": named, "ops": ops}], "validate_only": is_dry_run}
    (result,) = (await connection.call(ALTER_CLIENT_QUOTAS, asked)).entries
    raise_refusal(result, f"quotas of {_text(entity)} cannot be changed")
