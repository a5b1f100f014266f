"""What each API answers a principal without a right, and with exactly that right, at a real site.

Clients name their principal by their client id here: how a principal is authenticated is no matter
of the authorizer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kio.schema.errors import ErrorCode

from broker.dispatch import Dispatcher
from broker.handlers.access.table import BY_HANDLER, OPEN, RULES
from broker.handlers.registry import load_handlers
from broker.metadata.request_context import FORWARDED_CLIENT_ID
from broker.network.connection_owner import Frame
from broker.network.connections import Connection
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.sites.site_broker import SiteBroker
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient, NewTopic
from wire.client.requests.acl_requests import create_acls, delete_acls, exactly
from wire.client.requests.broker_requests import METADATA
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.link_messages import LINK_PROGRESS
from wire.protocol.messages.private import PRIVATE_NAMES
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords
from wire.protocol.streams.frames import parse_request_header
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
from wire.rules.principals import Principal

pytestmark = pytest.mark.integration

ADMIN, ALICE = "admin", "alice"
SHOWN, HIDDEN = "shown", "hidden"
TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
SECOND = dt.timedelta(seconds=1)


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SiteBroker]:
    handle = Dispatcher.handle

    def handle_by_name(dispatcher: Dispatcher, connection: Connection, frame: Frame) -> None:
        connection.principal = Principal("User", parse_request_header(frame).client_id or "")
        handle(dispatcher, connection, frame)

    monkeypatch.setattr(Dispatcher, "handle", handle_by_name)
    running = SiteBroker(
        zookeeper_connect,
        tmp_path / "log",
        authorizer_class_name="antipode.AclAuthorizer",
        super_users=f"User:{ADMIN}",
    )
    await running.start()
    yield running
    await running.stop()


def as_user(site: SiteBroker, name: str) -> KafkaClient:
    return KafkaClient(site.bootstrap, ConnectionOptions(client_id=name))


def allowing(operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME, *, user: str = ALICE) -> Acl:
    pattern = ResourcePattern(kind, name, PatternType.LITERAL)
    return Acl(pattern, AccessEntry(f"User:{user}", "*", operation, Permission.ALLOW))


class Request(NamedTuple):
    """A request, the error of a client without rights, and each set of rights that suffices."""

    api_key: int
    values: Mapping[str, Any]
    error: ErrorCode
    rights: Sequence[tuple[Acl, ...]]
    version: int | None = None


def _named(operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> tuple[Acl, ...]:
    return (allowing(operation, kind, name),)


NO_TOPIC, NO_GROUP = ErrorCode.topic_authorization_failed, ErrorCode.group_authorization_failed
NO_CLUSTER, NO_TXN = ErrorCode.cluster_authorization_failed, ErrorCode.transactional_id_authorization_failed
_PARTITIONS = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1, "offset": 0}]
_ALTER_CLUSTER = [_named(Operation.ALTER, CLUSTER)]
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
        [_named(Operation.DESCRIBE, TOPIC, SHOWN), _named(Operation.READ, TOPIC, SHOWN)],
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
        [_named(Operation.CLUSTER_ACTION, CLUSTER)],
    ),
    Request(
        9,
        {"groups": [{"group_id": "g", "topics": None}], "require_stable": False},
        NO_GROUP,
        [_named(Operation.DESCRIBE, GROUP, "g")],
        8,
    ),
    Request(10, {"key_type": 0, "coordinator_keys": ["g"]}, NO_GROUP, [_named(Operation.DESCRIBE, GROUP, "g")]),
    Request(10, {"key_type": 1, "coordinator_keys": ["t"]}, NO_TXN, [_named(Operation.DESCRIBE, TXN, "t")]),
    Request(
        12,
        {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None},
        NO_GROUP,
        [_named(Operation.READ, GROUP, "g")],
    ),
    Request(
        15,
        {"groups": ["g"], "include_authorized_operations": False},
        NO_GROUP,
        [_named(Operation.DESCRIBE, GROUP, "g")],
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
        [_named(Operation.CREATE, TOPIC, "made"), _named(Operation.CREATE, CLUSTER)],
    ),
    Request(
        20,
        {"topics": [{"name": "none", "topic_id": None}], "timeout": SECOND},
        NO_TOPIC,
        [_named(Operation.DELETE, TOPIC, "none")],
    ),
    Request(
        21,
        {"topics": [{"name": SHOWN, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout": SECOND},
        NO_TOPIC,
        [_named(Operation.DELETE, TOPIC, SHOWN)],
    ),
    Request(
        22,
        {"transactional_id": None, "transaction_timeout": SECOND, "producer_id": -1, "producer_epoch": -1},
        NO_CLUSTER,
        [_named(Operation.IDEMPOTENT_WRITE, CLUSTER), _named(Operation.WRITE, TOPIC, "any")],
    ),
    Request(
        22,
        {"transactional_id": "t", "transaction_timeout": SECOND, "producer_id": -1, "producer_epoch": -1},
        NO_TXN,
        [_named(Operation.WRITE, TXN, "t")],
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
        [_named(Operation.DESCRIBE, TOPIC, SHOWN), _named(Operation.CLUSTER_ACTION, CLUSTER)],
    ),
    Request(
        25,
        {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "group_id": "g"},
        NO_TXN,
        [(*_named(Operation.WRITE, TXN, "t"), *_named(Operation.READ, GROUP, "g"))],
    ),
    Request(
        26,
        {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "committed": True},
        NO_TXN,
        [_named(Operation.WRITE, TXN, "t")],
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
        [_named(Operation.DESCRIBE, CLUSTER), _named(Operation.ALTER, CLUSTER)],
    ),
    Request(
        32,
        {"resources": [_RESOURCE], "include_synonyms": False, "include_documentation": False},
        NO_TOPIC,
        [_named(Operation.DESCRIBE_CONFIGS, TOPIC, SHOWN), _named(Operation.ALTER_CONFIGS, TOPIC, SHOWN)],
    ),
    Request(
        32,
        {
            "resources": [{**_RESOURCE, "resource_type": 4, "resource_name": "1"}],
            "include_synonyms": False,
            "include_documentation": False,
        },
        NO_CLUSTER,
        [_named(Operation.DESCRIBE_CONFIGS, CLUSTER)],
    ),
    Request(
        32,
        {
            "resources": [{**_RESOURCE, "resource_type": 32, "resource_name": "g"}],
            "include_synonyms": False,
            "include_documentation": False,
        },
        NO_GROUP,
        [_named(Operation.DESCRIBE_CONFIGS, GROUP, "g")],
    ),
    Request(
        44, {"resources": [_RESOURCE], "validate_only": True}, NO_TOPIC, [_named(Operation.ALTER_CONFIGS, TOPIC, SHOWN)]
    ),
    Request(35, {"topics": None}, NO_CLUSTER, [_named(Operation.DESCRIBE, CLUSTER)]),
    Request(
        37,
        {"topics": [{"name": SHOWN, "count": 2, "assignments": None}], "timeout": SECOND, "validate_only": True},
        NO_TOPIC,
        [_named(Operation.ALTER, TOPIC, SHOWN)],
    ),
    Request(42, {"groups_names": ["g"]}, NO_GROUP, [_named(Operation.DELETE, GROUP, "g")]),
    Request(43, {"election_type": 0, "topic_partitions": (), "timeout": SECOND}, NO_CLUSTER, _ALTER_CLUSTER),
    Request(45, {"timeout": SECOND, "allow_replication_factor_change": True, "topics": ()}, NO_CLUSTER, _ALTER_CLUSTER),
    Request(46, {"timeout": SECOND, "topics": None}, NO_CLUSTER, [_named(Operation.DESCRIBE, CLUSTER)]),
    Request(47, {"group_id": "g", "topics": ()}, NO_GROUP, [_named(Operation.DELETE, GROUP, "g")]),
    Request(48, {"components": (), "strict": False}, NO_CLUSTER, [_named(Operation.DESCRIBE_CONFIGS, CLUSTER)]),
    Request(50, {"users": None}, NO_CLUSTER, [_named(Operation.DESCRIBE, CLUSTER)]),
    Request(
        61, {"topics": [{"name": SHOWN, "partition_indexes": [0]}]}, NO_TOPIC, [_named(Operation.READ, TOPIC, SHOWN)]
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
        [(*_named(Operation.READ, GROUP, "g"), *_named(Operation.DESCRIBE, TOPIC, SHOWN))],
    ),
    Request(
        69,
        {"group_ids": ["g"], "include_authorized_operations": False},
        NO_GROUP,
        [(*_named(Operation.DESCRIBE, GROUP, "g"), *_named(Operation.DESCRIBE, TOPIC, SHOWN))],
    ),
    Request(74, {"resource_types": ()}, NO_CLUSTER, [_named(Operation.DESCRIBE_CONFIGS, CLUSTER)]),
    Request(
        75,
        {"topics": [{"name": SHOWN}], "response_partition_limit": 10, "cursor": None},
        NO_TOPIC,
        [_named(Operation.DESCRIBE, TOPIC, SHOWN)],
    ),
]
_REFUSALS = {NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TXN}


def errors_in(value: object) -> set[ErrorCode]:
    """Every refusal for want of a right that an answer has."""
    if isinstance(value, ErrorCode):
        return {value} & _REFUSALS
    if isinstance(value, tuple):
        return {error for item in value for error in errors_in(item)}
    if hasattr(value, "__dataclass_fields__"):
        return {error for name in value.__dataclass_fields__ for error in errors_in(getattr(value, name))}
    return set()


async def ask(client: KafkaClient, request: Request) -> set[ErrorCode]:
    connection = await client.connection(1)
    return errors_in(await connection.call(request.api_key, request.values, version=request.version))


def test_every_api_has_its_rights_in_the_table_or_in_its_handler() -> None:
    known = {*RULES, *BY_HANDLER, *OPEN, *PRIVATE_NAMES}
    assert set(load_handlers()) <= known
    assert not set(RULES) & (BY_HANDLER | OPEN)


async def test_each_request_is_refused_without_its_right_and_answered_with_it(site: SiteBroker) -> None:
    async with as_user(site, ADMIN) as admin, as_user(site, ALICE) as alice:
        await admin.create_topics([NewTopic(name=SHOWN, partition_count=1)])
        wrong: list[object] = []
        for request in REQUESTS:
            if await ask(alice, request) != {request.error}:
                wrong.append(("without", request.api_key, request.error, await ask(alice, request)))
            for rights in request.rights:
                await create_acls(admin, rights)
                if errors := await ask(alice, request):
                    wrong.append(("with", request.api_key, [str(right) for right in rights], errors))
                for right in rights if len(rights) > 1 else ():
                    await delete_acls(admin, [exactly(right)])
                    if not await ask(alice, request):
                        wrong.append(("one fewer", request.api_key, str(right)))
                    await create_acls(admin, [right])
                await delete_acls(admin, [exactly(right) for right in rights])
        assert wrong == []


async def test_refused_topics_get_the_messages_of_apache_kafka(site: SiteBroker) -> None:
    made = {"num_partitions": 1, "replication_factor": -1, "assignments": (), "configs": ()}
    creation = {"topics": [{"name": HIDDEN, **made}], "timeout": SECOND, "validate_only": False}
    deletion = {"topics": [{"name": HIDDEN, "topic_id": None}], "timeout": SECOND}
    async with as_user(site, ALICE) as alice:
        connection = await alice.connection(1)
        (refused,) = (await connection.call(19, creation)).topics
        assert (refused.error_code, refused.error_message) == (NO_TOPIC, "Authorization failed.")
        (refused,) = (await connection.call(20, deletion)).responses
        assert (refused.error_code, refused.error_message) == (NO_TOPIC, "Topic authorization failed.")


async def test_metadata_shows_what_the_client_may_describe_and_creates_what_it_may_create(site: SiteBroker) -> None:
    async with as_user(site, ADMIN) as admin, as_user(site, ALICE) as alice:
        await admin.create_topics([NewTopic(name=SHOWN), NewTopic(name=HIDDEN)])
        await create_acls(admin, _named(Operation.READ, TOPIC, SHOWN))
        connection = await alice.connection(1)
        everything = {"topics": None, "allow_auto_topic_creation": True, "include_topic_authorized_operations": True}
        (only,) = (await connection.call(METADATA, everything)).topics
        assert only.name == SHOWN
        assert only.topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
        ids = {
            topic.name: topic.topic_id
            for topic in (await (await admin.connection(1)).call(METADATA, everything)).topics
        }
        named = [{"name": name, "topic_id": None} for name in (SHOWN, HIDDEN, "missing")]
        answer = await connection.call(METADATA, {**everything, "topics": named})
        errors = {topic.name: (topic.error_code, topic.topic_id, len(topic.partitions)) for topic in answer.topics}
        assert errors[SHOWN] == (ErrorCode.none, ids[SHOWN], 1)
        assert errors[HIDDEN] == errors["missing"] == (NO_TOPIC, None, 0)
        (unknown,) = (
            await connection.call(METADATA, {**everything, "topics": [{"name": None, "topic_id": ids[HIDDEN]}]})
        ).topics
        assert (unknown.error_code, unknown.name) == (ErrorCode.unknown_topic_id, None)
        await create_acls(admin, _named(Operation.DESCRIBE, TOPIC, "missing"))
        asked = {**everything, "topics": [{"name": "missing", "topic_id": None}]}
        (described,) = (await connection.call(METADATA, asked)).topics
        assert described.error_code is NO_TOPIC, "it may not be created for this client"
        await create_acls(admin, _named(Operation.CREATE, TOPIC, "missing"))
        (created,) = (await connection.call(METADATA, asked)).topics
        assert created.error_code is ErrorCode.unknown_topic_or_partition, "it is being created"


async def test_produce_fetch_and_commits_are_answered_topic_by_topic(site: SiteBroker) -> None:
    async with as_user(site, ADMIN) as admin, as_user(site, ALICE) as alice:
        await admin.create_topics([NewTopic(name=SHOWN), NewTopic(name=HIDDEN)])
        await create_acls(admin, [*_named(Operation.WRITE, TOPIC, SHOWN), *_named(Operation.READ, TOPIC, SHOWN)])
        ids = {name: found.topic_id for name, found in (await admin.metadata([SHOWN, HIDDEN])).topics.items()}
        records = [TopicRecords(name, ids[name], [PartitionRecords(0, batch())]) for name in (SHOWN, HIDDEN)]
        produced = await alice.produce_to(1, ProduceRequest(None, -1, 5_000, records))
        assert produced is not None
        assert {topic.partitions[0].error_code for topic in produced.topics} == {ErrorCode.none, NO_TOPIC}
        refused = await alice.produce_to(1, ProduceRequest("t", -1, 5_000, records))
        assert refused is not None
        assert {topic.partitions[0].error_code for topic in refused.topics} == {NO_TXN}
        wanted = [TopicToFetch(name, ids[name], [PartitionToFetch(0, 0, 1_000_000)]) for name in (SHOWN, HIDDEN)]

        async def fetched(client: KafkaClient, replica_id: int) -> list[tuple[int, int]]:
            answer = await client.fetch(1, FetchRequest(wanted, replica_id=replica_id, max_wait_ms=0))
            return sorted(
                (one.error_code, len(one.records or b"")) for topic in answer.topics for one in topic.partitions
            )

        size = len(batch())
        assert await fetched(alice, -1) == [(ErrorCode.none, size), (NO_TOPIC, 0)]
        assert await fetched(alice, -2) == await fetched(alice, -3) == [(NO_TOPIC, 0)] * 2
        await create_acls(admin, _named(Operation.CLUSTER_ACTION, CLUSTER))
        assert await fetched(alice, -2) == [(ErrorCode.none, 0), (ErrorCode.none, size)]
        await delete_acls(admin, [exactly(allowing(Operation.CLUSTER_ACTION, CLUSTER))])
        connection = await alice.connection(1)
        commit = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": name,
                    "topic_id": ids[name],
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 1,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
                for name in (SHOWN, HIDDEN)
            ],
        }

        async def committed() -> list[ErrorCode]:
            answer = await connection.call(8, commit)
            return sorted(topic.partitions[0].error_code for topic in answer.topics)

        assert await committed() == [NO_GROUP, NO_GROUP]
        await create_acls(admin, _named(Operation.READ, GROUP, "g"))
        await admin.coordinator("g")
        await eventually(lambda: _equals(committed, [ErrorCode.none, NO_TOPIC]))


async def _equals(read: Callable[[], Awaitable[object]], expected: object) -> bool:
    return await read() == expected


async def test_private_apis_and_forwarded_requests_need_cluster_action(site: SiteBroker) -> None:
    """Neither the software name of our programs nor the client id of a broker opens anything."""
    request = Request(
        37,
        {"topics": [{"name": SHOWN, "count": 2, "assignments": None}], "timeout": SECOND, "validate_only": True},
        NO_TOPIC,
        (),
    )
    async with as_user(site, ADMIN) as admin, as_user(site, FORWARDED_CLIENT_ID) as forwarding:
        await admin.create_topics([NewTopic(name=SHOWN)])
        assert await ask(forwarding, request) == {NO_TOPIC}
        private = await _private_errors(forwarding)
        assert private == {NO_CLUSTER}
        await create_acls(admin, [allowing(Operation.CLUSTER_ACTION, CLUSTER, user=FORWARDED_CLIENT_ID)])
        assert await ask(forwarding, request) == set()
        assert await _private_errors(forwarding) == set()


async def _private_errors(client: KafkaClient) -> set[ErrorCode]:
    connection = await client.connection(1)
    return errors_in(await connection.call(LINK_PROGRESS, {"link": "a-b", "link_epoch": 1, "topics": ()}))


async def test_a_change_of_acls_holds_at_once_and_denials_are_counted(site: SiteBroker) -> None:
    request = next(request for request in REQUESTS if request.api_key == 46)
    async with as_user(site, ADMIN) as admin, as_user(site, ALICE) as alice:
        for _ in range(5):
            assert await ask(alice, request) == {NO_CLUSTER}
            await create_acls(admin, _named(Operation.DESCRIBE, CLUSTER))
            assert await ask(alice, request) == set()
            await delete_acls(admin, [exactly(allowing(Operation.DESCRIBE, CLUSTER))])
        families = site.broker.metrics.families
        samples = {
            (sample.labels["operation"], sample.labels["resource_type"]): sample.value
            for read in families
            for family in read()
            if family.name == "antipode_broker_authorization_denials"
            for sample in family.samples
        }
        assert samples["DESCRIBE", "CLUSTER"] == 5
