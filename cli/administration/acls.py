"""`antipode acls`: shows and changes ACLs of topics, groups and the cluster, with the options of
Kafka's own tool.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster
from cli.shared.output import Output, OutputFormat, console, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wire.client.raw_client import KafkaClient
    from wire.rules.acls import Acl, AclFilter, Operation, ResourceType

app = typer.Typer(
    help="ACLs of a site: the operations that each principal may do, and from where. A mirror carries them to an exact link's standby.\n\n"
    "Example: antipode acls add --allow-principal User:reports --consumer --topic orders --group reports",
    no_args_is_help=True,
)


class Pattern(StrEnum):
    """The way in which names of resources match."""

    LITERAL = "literal"
    PREFIXED = "prefixed"
    ANY = "any"
    MATCH = "match"


Topics = Annotated[list[str] | None, typer.Option("--topic", help="A topic; * for every topic.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="A consumer group; * for every group.")]
Transactions = Annotated[list[str] | None, typer.Option("--transactional-id", help="A transactional id.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Named = Annotated[
    Pattern,
    typer.Option(
        "--resource-pattern-type",
        help="literal: exactly the name; prefixed: all names that begin so. For list and remove also any, and match: "
        "every ACL that concerns the name.",
    ),
]
Principals = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-principal", help="The principal that is allowed, in the form User:name; User:* for everyone."
    ),
]
Denied = Annotated[
    list[str] | None,
    typer.Option("--deny-principal", help="The principal that is denied, even if another ACL allows it."),
]
AllowHosts = Annotated[
    list[str] | None, typer.Option("--allow-host", help="The address from which it applies; without it every address.")
]
DenyHosts = Annotated[list[str] | None, typer.Option("--deny-host", help="As --allow-host, for --deny-principal.")]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", help="Read, Write, Create, Delete, Alter, Describe, ClusterAction ... or All."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


@app.command(name="list")
def list_acls(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Transactions = None,
    cluster: Cluster = False,
    resource_pattern_type: Named = Pattern.LITERAL,
    principal: Annotated[list[str] | None, typer.Option("--principal", help="Only ACLs of this principal.")] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List the ACLs of the site: all, or those of some resources and principals.

    Example: antipode acls list --topic orders --resource-pattern-type match
    """
    from wire.client.requests.acl_requests import describe_acls

    filters = _filters(_resources(topic, group, transactional_id, cluster), resource_pattern_type, principal)

    async def found(client: KafkaClient) -> set[Acl]:
        return {acl for wanted in filters for acl in await describe_acls(client, wanted)}

    with failures_as_messages():
        acls = ask_cluster(bootstrap_server, found)
    _show(sorted(acls), output, "ACLs")


@app.command()
def add(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    allow_principal: Principals = None,
    deny_principal: Denied = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    producer: Annotated[
        bool,
        typer.Option(
            "--producer", help="The operations that a producer needs: Write, Describe and Create of the topics."
        ),
    ] = False,
    consumer: Annotated[
        bool,
        typer.Option(
            "--consumer", help="The operations that a consumer needs: Read and Describe of topics, Read of the group."
        ),
    ] = False,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="With --producer: IdempotentWrite of the cluster.")
    ] = False,
    mirror: Annotated[
        bool,
        typer.Option(
            "--mirror",
            help="Add all rights that an exact link's mirror needs at a site, in both directions; takes no resource option.",
        ),
    ] = False,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Transactions = None,
    cluster: Cluster = False,
    resource_pattern_type: Named = Pattern.LITERAL,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Add ACLs. An ACL that exists already stays as it is.

    Example: antipode acls add --allow-principal User:alice --producer --topic orders
    """
    from wire.client.requests.acl_requests import create_acls, describe_acls
    from wire.rules.acls import (
        WILDCARD,
        AccessEntry,
        Acl,
        AclFilter,
        PatternType,
        Permission,
        ResourcePattern,
        refusal_of_acl,
    )
    from wire.rules.mirror_rights import IN_BOTH_DIRECTIONS

    if resource_pattern_type not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise usage_error(f"--resource-pattern-type {resource_pattern_type} cannot be added; use literal or prefixed")
    if not allow_principal and not deny_principal:
        raise usage_error("name the principals: --allow-principal or --deny-principal")
    resources = _resources(topic, group, transactional_id, cluster)
    wanted = list(IN_BOTH_DIRECTIONS) if mirror else []
    if resources or not mirror:
        wanted += _chosen(resources, operation, is_producer=producer, is_consumer=consumer, is_idempotent=idempotent)
    pattern_type = PatternType[resource_pattern_type.name]
    entries = [
        (principal, host, permission)
        for principals, hosts, permission in (
            (allow_principal, allow_host, Permission.ALLOW),
            (deny_principal, deny_host, Permission.DENY),
        )
        for principal in principals or ()
        for host in hosts or ("*",)
    ]
    acls = {
        Acl(
            ResourcePattern(kind, name, PatternType.LITERAL if _is_cluster(kind) or name == WILDCARD else pattern_type),
            AccessEntry(who, host, done, permission),
        )
        for kind, name, done in wanted
        for who, host, permission in entries
    }
    for acl in acls:
        if (refusal := refusal_of_acl(acl)) is not None:
            raise usage_error(refusal)

    async def added(client: KafkaClient) -> set[Acl]:
        new = acls - await describe_acls(client, AclFilter())
        if new and not dry_run:
            await create_acls(client, new)
        return new

    with failures_as_messages():
        new = ask_cluster(bootstrap_server, added)
    _show(sorted(new), output, "would be added" if dry_run else "added")


@app.command()
def remove(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Transactions = None,
    cluster: Cluster = False,
    resource_pattern_type: Named = Pattern.LITERAL,
    allow_principal: Principals = None,
    deny_principal: Denied = None,
    operation: Operations = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Remove ACLs of the named resources: all of them, or only those of some principals and
    operations.

    Example: antipode acls remove --topic orders --allow-principal User:alice --dry-run
    """
    from wire.client.requests.acl_requests import delete_acls, describe_acls
    from wire.rules.acls import Permission

    resources = _resources(topic, group, transactional_id, cluster)
    if not resources:
        raise usage_error("name the resources: --topic, --group, --transactional-id or --cluster")
    filters = _filters(resources, resource_pattern_type, None)
    if allow_principal or deny_principal:
        filters = [
            wanted._replace(principal=who, permission=permission)
            for wanted in filters
            for principals, permission in ((allow_principal, Permission.ALLOW), (deny_principal, Permission.DENY))
            for who in principals or ()
        ]
    if operation:
        filters = [wanted._replace(operation=done) for wanted in filters for done in map(_operation, operation)]

    async def removed(client: KafkaClient) -> set[Acl]:
        if dry_run:
            return {acl for wanted in filters for acl in await describe_acls(client, wanted)}
        return await delete_acls(client, filters)

    with failures_as_messages():
        gone = ask_cluster(bootstrap_server, removed)
    _show(sorted(gone), output, "would be removed" if dry_run else "removed")


def _is_cluster(kind: ResourceType) -> bool:
    from wire.rules.acls import ResourceType

    return kind is ResourceType.CLUSTER


def _resources(
    topics: list[str] | None, groups: list[str] | None, transactions: list[str] | None, is_cluster: bool
) -> list[tuple[ResourceType, str]]:
    from wire.rules.acls import CLUSTER_NAME, ResourceType

    named = [
        (kind, name)
        for kind, names in (
            (ResourceType.TOPIC, topics),
            (ResourceType.GROUP, groups),
            (ResourceType.TRANSACTIONAL_ID, transactions),
        )
        for name in names or ()
    ]
    return [*named, (ResourceType.CLUSTER, CLUSTER_NAME)] if is_cluster else named


def _operation(name: str) -> Operation:
    from wire.rules.acls import Operation, camel_case

    accepted = {camel_case(one).lower(): one for one in Operation if one is not Operation.ANY}
    found = accepted.get(name.replace("_", "").lower())
    if found is None:
        names = ", ".join(camel_case(one) for one in accepted.values())
        raise usage_error(f"--operation {name!r} does not exist; accepted: {names}")
    return found


def _chosen(
    resources: Sequence[tuple[ResourceType, str]],
    operations: list[str] | None,
    *,
    is_producer: bool,
    is_consumer: bool,
    is_idempotent: bool,
) -> list[tuple[ResourceType, str, Operation]]:
    """The operations chosen for each resource; --producer and --consumer mean the same as in
    Kafka's tool.
    """
    from wire.rules.acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceType, camel_case

    chosen: list[tuple[ResourceType, str, Operation]] = []
    for kind, name in resources:
        done = set(map(_operation, operations or ()))
        if is_producer and kind is ResourceType.TOPIC:
            done |= {Operation.WRITE, Operation.DESCRIBE, Operation.CREATE}
        if is_producer and kind is ResourceType.TRANSACTIONAL_ID:
            done |= {Operation.WRITE, Operation.DESCRIBE}
        if is_consumer and kind is ResourceType.TOPIC:
            done |= {Operation.READ, Operation.DESCRIBE}
        if is_consumer and kind is ResourceType.GROUP:
            done.add(Operation.READ)
        unknown = done - OPERATIONS[kind] - {Operation.ALL}
        if unknown:
            accepted = ", ".join(camel_case(one) for one in sorted(OPERATIONS[kind] | {Operation.ALL}))
            raise usage_error(
                f"--operation {camel_case(min(unknown))} is not usable for {camel_case(kind)}: accepted are {accepted}"
            )
        chosen += [(kind, name, one) for one in sorted(done)]
    if is_producer and is_idempotent:
        chosen.append((ResourceType.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE))
    if not chosen:
        raise usage_error("name the permission and the resource: --operation, --producer or --consumer, and a resource")
    return chosen


def _filters(
    resources: Sequence[tuple[ResourceType, str]], pattern: Pattern, principals: list[str] | None
) -> list[AclFilter]:
    from wire.rules.acls import AclFilter, PatternType

    wanted = [AclFilter(kind, name, PatternType[pattern.name]) for kind, name in resources] or [AclFilter()]
    return [one._replace(principal=who) for one in wanted for who in principals or (None,)]


def _show(acls: Sequence[Acl], output: OutputFormat, title: str) -> None:
    from wire.rules.acls import camel_case

    rows = [
        {
            "resource_type": camel_case(pattern.resource_type),
            "resource_name": pattern.name,
            "pattern_type": camel_case(pattern.pattern_type),
            "principal": entry.principal,
            "host": entry.host,
            "operation": camel_case(entry.operation),
            "permission": camel_case(entry.permission),
        }
        for pattern, entry in acls
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
    elif rows:
        print_table(title, tuple(rows[0]), [tuple(row.values()) for row in rows])
    else:
        console.print(f"{title}: none", markup=False)
