"""A request of each API, the error of a client without rights, and the rights with which it
succeeds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from wire.client.raw_client import KafkaClient
from wire.rules.acls import (
    CLUSTER_NAME,
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

ADMIN, ALICE = "admin", "alice"
SHOWN, HIDDEN = "shown", "hidden"
TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
SECOND = dt.timedelta(seconds=1)


def allowing(operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME, *, user: str = ALICE) -> Acl:
    """An ACL that allows the user one operation."""
    pattern = ResourcePattern(kind, name, PatternType.LITERAL)
    return Acl(pattern, AccessEntry(f"User:{user}", "*", operation, Permission.ALLOW))


class Request(NamedTuple):
    """A request, the error of a client without rights, and each set of rights that suffices."""

    api_key: int
    values: Mapping[str, Any]
    error: ErrorCode
    rights: Sequence[tuple[Acl, ...]]
    version: int | None = None


def rights_for(operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> tuple[Acl, ...]:
    """The ACLs that allow Alice one operation."""
    return (allowing(operation, kind, name),)


NO_TOPIC, NO_GROUP = ErrorCode.topic_authorization_failed, ErrorCode.group_authorization_failed
NO_CLUSTER, NO_TXN = ErrorCode.cluster_authorization_failed, ErrorCode.transactional_id_authorization_failed
_PARTITIONS = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1, "offset": 0}]
_ALTER_CLUSTER = [rights_for(Operation.ALTER, CLUSTER)]
_RESOURCE = {"resource_type": 2, "resource_name": SHOWN, "configs": (), "configuration_keys": None}
REQUESTS = [
    Request(
        2,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": SECOND,
            "topics": [{"name": SHOWN, "partitions": _PARTITIONS}],
        },
        NO_TOPIC,
        [rights_for(Operation.DESCRIBE, TOPIC, SHOWN), rights_for(Operation.READ, TOPIC, SHOWN)],
    ),
    Request(
        2,
        {
            "replica_id": -2,
            "isolation_level": 0,
            "timeout": SECOND,
            "topics": [{"name": SHOWN, "partitions": _PARTITIONS}],
        },
        NO_CLUSTER,
        [rights_for(Operation.CLUSTER_ACTION, CLUSTER)],
    ),
    Request(
        9,
        {"groups": [{"group_id": "g", "topics": None}], "require_stable": False},
        NO_GROUP,
        [rights_for(Operation.DESCRIBE, GROUP, "g")],
        8,
    ),
    Request(10, {"key_type": 0, "coordinator_keys": ["g"]}, NO_GROUP, [rights_for(Operation.DESCRIBE, GROUP, "g")]),
    Request(10, {"key_type": 1, "coordinator_keys": ["t"]}, NO_TXN, [rights_for(Operation.DESCRIBE, TXN, "t")]),
    Request(
        12,
        {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None},
        NO_GROUP,
        [rights_for(Operation.READ, GROUP, "g")],
    ),
    Request(
        15,
        {"groups": ["g"], "include_authorized_operations": False},
        NO_GROUP,
        [rights_for(Operation.DESCRIBE, GROUP, "g")],
    ),
    Request(
        19,
        {
            "topics": [
                {"name": "made", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
            ],
            "timeout": SECOND,
            "validate_only": True,
        },
        NO_TOPIC,
        [rights_for(Operation.CREATE, TOPIC, "made"), rights_for(Operation.CREATE, CLUSTER)],
    ),
    Request(
        20,
        {"topics": [{"name": "none", "topic_id": None}], "timeout": SECOND},
        NO_TOPIC,
        [rights_for(Operation.DELETE, TOPIC, "none")],
    ),
    Request(
        21,
        {"topics": [{"name": SHOWN, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout": SECOND},
        NO_TOPIC,
        [rights_for(Operation.DELETE, TOPIC, SHOWN)],
    ),
    Request(
        22,
        {"transactional_id": None, "transaction_timeout": SECOND, "producer_id": -1, "producer_epoch": -1},
        NO_CLUSTER,
        [rights_for(Operation.IDEMPOTENT_WRITE, CLUSTER), rights_for(Operation.WRITE, TOPIC, "any")],
    ),
    Request(
        22,
        {"transactional_id": "t", "transaction_timeout": SECOND, "producer_id": -1, "producer_epoch": -1},
        NO_TXN,
        [rights_for(Operation.WRITE, TXN, "t")],
    ),
    Request(
        23,
        {
            "replica_id": -1,
            "topics": [
                {"topic": SHOWN, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
            ],
        },
        NO_TOPIC,
        [rights_for(Operation.DESCRIBE, TOPIC, SHOWN), rights_for(Operation.CLUSTER_ACTION, CLUSTER)],
    ),
    Request(
        25,
        {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "group_id": "g"},
        NO_TXN,
        [(*rights_for(Operation.WRITE, TXN, "t"), *rights_for(Operation.READ, GROUP, "g"))],
    ),
    Request(
        26,
        {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "committed": True},
        NO_TXN,
        [rights_for(Operation.WRITE, TXN, "t")],
    ),
    Request(
        29,
        {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        },
        NO_CLUSTER,
        [rights_for(Operation.DESCRIBE, CLUSTER), rights_for(Operation.ALTER, CLUSTER)],
    ),
    Request(
        32,
        {"resources": [_RESOURCE], "include_synonyms": False, "include_documentation": False},
        NO_TOPIC,
        [rights_for(Operation.DESCRIBE_CONFIGS, TOPIC, SHOWN), rights_for(Operation.ALTER_CONFIGS, TOPIC, SHOWN)],
    ),
    Request(
        32,
        {
            "resources": [{**_RESOURCE, "resource_type": 4, "resource_name": "1"}],
            "include_synonyms": False,
            "include_documentation": False,
        },
        NO_CLUSTER,
        [rights_for(Operation.DESCRIBE_CONFIGS, CLUSTER)],
    ),
    Request(
        32,
        {
            "resources": [{**_RESOURCE, "resource_type": 32, "resource_name": "g"}],
            "include_synonyms": False,
            "include_documentation": False,
        },
        NO_GROUP,
        [rights_for(Operation.DESCRIBE_CONFIGS, GROUP, "g")],
    ),
    Request(
        44,
        {"resources": [_RESOURCE], "validate_only": True},
        NO_TOPIC,
        [rights_for(Operation.ALTER_CONFIGS, TOPIC, SHOWN)],
    ),
    Request(35, {"topics": None}, NO_CLUSTER, [rights_for(Operation.DESCRIBE, CLUSTER)]),
    Request(
        37,
        {"topics": [{"name": SHOWN, "count": 2, "assignments": None}], "timeout": SECOND, "validate_only": True},
        NO_TOPIC,
        [rights_for(Operation.ALTER, TOPIC, SHOWN)],
    ),
    Request(42, {"groups_names": ["g"]}, NO_GROUP, [rights_for(Operation.DELETE, GROUP, "g")]),
    Request(43, {"election_type": 0, "topic_partitions": (), "timeout": SECOND}, NO_CLUSTER, _ALTER_CLUSTER),
    Request(45, {"timeout": SECOND, "allow_replication_factor_change": True, "topics": ()}, NO_CLUSTER, _ALTER_CLUSTER),
    Request(46, {"timeout": SECOND, "topics": None}, NO_CLUSTER, [rights_for(Operation.DESCRIBE, CLUSTER)]),
    Request(47, {"group_id": "g", "topics": ()}, NO_GROUP, [rights_for(Operation.DELETE, GROUP, "g")]),
    Request(48, {"components": (), "strict": False}, NO_CLUSTER, [rights_for(Operation.DESCRIBE_CONFIGS, CLUSTER)]),
    Request(50, {"users": None}, NO_CLUSTER, [rights_for(Operation.DESCRIBE, CLUSTER)]),
    Request(
        61,
        {"topics": [{"name": SHOWN, "partition_indexes": [0]}]},
        NO_TOPIC,
        [rights_for(Operation.READ, TOPIC, SHOWN)],
    ),
    Request(64, {"broker_id": 99}, NO_CLUSTER, _ALTER_CLUSTER),
    Request(
        65,
        {"transactional_ids": ["t"]},
        NO_TXN,
        (),  # one that is not there has no time that kio could read
    ),
    Request(
        68,
        {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": SECOND,
            "subscribed_topic_names": [SHOWN],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": (),
        },
        NO_GROUP,
        [(*rights_for(Operation.READ, GROUP, "g"), *rights_for(Operation.DESCRIBE, TOPIC, SHOWN))],
    ),
    Request(
        69,
        {"group_ids": ["g"], "include_authorized_operations": False},
        NO_GROUP,
        [(*rights_for(Operation.DESCRIBE, GROUP, "g"), *rights_for(Operation.DESCRIBE, TOPIC, SHOWN))],
    ),
    Request(74, {"resource_types": ()}, NO_CLUSTER, [rights_for(Operation.DESCRIBE_CONFIGS, CLUSTER)]),
    Request(
        75,
        {"topics": [{"name": SHOWN}], "response_partition_limit": 10, "cursor": None},
        NO_TOPIC,
        [rights_for(Operation.DESCRIBE, TOPIC, SHOWN)],
    ),
]

REFUSALS = {NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TXN}


def errors_in(value: object) -> set[ErrorCode]:
    """Every refusal in a response that is due to a missing right."""
    if isinstance(value, ErrorCode):
        return {value} & REFUSALS
    if isinstance(value, tuple):
        return {error for item in value for error in errors_in(item)}
    if hasattr(value, "__dataclass_fields__"):
        return {error for name in value.__dataclass_fields__ for error in errors_in(getattr(value, name))}
    return set()


async def ask(client: KafkaClient, request: Request) -> set[ErrorCode]:
    """Send the request; the refusals in its response."""
    connection = await client.connection(1)
    return errors_in(await connection.call(request.api_key, request.values, version=request.version))
