"""The response of each API to a principal without a right, and with exactly that right, at a real
site.

Clients name their principal by their client id here, because the authorizer does not depend on how
a principal was authenticated.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from broker.assembly import serving
from broker.dispatch import Dispatcher
from broker.handlers.access.table import BY_HANDLER, OPEN, RULES
from broker.handlers.registry import load_handlers
from broker.metadata.request_context import FORWARDED_CLIENT_ID
from broker.network.connection_owner import Frame
from broker.network.connections import Connection
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.security.authorized_requests import (
    ADMIN,
    ALICE,
    CLUSTER,
    GROUP,
    HIDDEN,
    NO_CLUSTER,
    NO_GROUP,
    NO_TOPIC,
    NO_TXN,
    REQUESTS,
    SECOND,
    SHOWN,
    TOPIC,
    Request,
    allowing,
    ask,
    errors_in,
    rights_for,
)
from tests.support.sites.site_broker import SiteBroker
from wire.client.client_errors import TransientBrokerError, Unreachable
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
    Operation,
)
from wire.rules.principals import Principal

pytestmark = pytest.mark.integration


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SiteBroker]:
    class DispatcherByName(Dispatcher):
        def handle(self, connection: Connection, frame: Frame) -> None:
            connection.principal = Principal("User", parse_request_header(frame).client_id or "")
            super().handle(connection, frame)

    monkeypatch.setattr(serving, "Dispatcher", DispatcherByName)
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
        await create_acls(admin, rights_for(Operation.READ, TOPIC, SHOWN))
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
        (refused,) = (
            await connection.call(METADATA, {**everything, "topics": [{"name": None, "topic_id": ids[HIDDEN]}]})
        ).topics
        assert (refused.error_code, refused.name, refused.topic_id) == (NO_TOPIC, None, ids[HIDDEN])
        assert refused.topic_authorized_operations == -(1 << 31)
        await create_acls(admin, rights_for(Operation.DESCRIBE, TOPIC, "missing"))
        asked = {**everything, "topics": [{"name": "missing", "topic_id": None}]}
        (described,) = (await connection.call(METADATA, asked)).topics
        assert described.error_code is NO_TOPIC, "it may not be created for this client"
        await create_acls(admin, rights_for(Operation.CREATE, TOPIC, "missing"))
        (created,) = (await connection.call(METADATA, asked)).topics
        assert created.error_code is ErrorCode.unknown_topic_or_partition, "it is being created"


async def test_produce_fetch_and_commits_are_answered_topic_by_topic(site: SiteBroker) -> None:
    async with as_user(site, ADMIN) as admin, as_user(site, ALICE) as alice:
        await admin.create_topics([NewTopic(name=SHOWN), NewTopic(name=HIDDEN)])
        await create_acls(
            admin, [*rights_for(Operation.WRITE, TOPIC, SHOWN), *rights_for(Operation.READ, TOPIC, SHOWN)]
        )
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
        await create_acls(admin, rights_for(Operation.CLUSTER_ACTION, CLUSTER))
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
        await create_acls(admin, rights_for(Operation.READ, GROUP, "g"))

        async def is_coordinated() -> bool:
            with contextlib.suppress(TransientBrokerError):  # the topic of offsets is being created
                await admin.coordinator("g")
                return True
            return False

        await eventually(is_coordinated)
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


async def test_the_metadata_of_one_site_shows_named_topics_as_metadata_does(site: SiteBroker) -> None:
    """Commands for one site, such as `antipode users list`, need no other right than Kafka's. A
    comparison, which lists all topics, must not take those that its user may see for all.
    """
    options, named = ConnectionOptions(client_id=ALICE), [SHOWN, HIDDEN]
    async with as_user(site, ADMIN) as admin, KafkaClient(site.bootstrap, options, site_local=True) as alice:

        async def errors() -> list[ErrorCode]:
            found = await alice.metadata(named)
            assert found.brokers.keys() == {1}
            return [ErrorCode(found.topics[name].error_code) for name in named]

        await admin.create_topics([NewTopic(name=name) for name in named])
        assert (await alice.metadata([])).brokers.keys() == {1}
        assert await errors() == [NO_TOPIC, NO_TOPIC]
        await create_acls(admin, [allowing(Operation.DESCRIBE, TOPIC, SHOWN)])
        assert await errors() == [ErrorCode.none, NO_TOPIC]
        with pytest.raises(Unreachable, match="a list of all topics of a site needs ClusterAction"):
            await alice.metadata(None)
        await create_acls(admin, [allowing(Operation.CLUSTER_ACTION, CLUSTER)])
        assert await errors() == [ErrorCode.none, ErrorCode.none]
        assert (await alice.metadata(None)).topics.keys() == set(named)


async def test_a_change_of_acls_holds_at_once_and_denials_are_counted(site: SiteBroker) -> None:
    request = next(request for request in REQUESTS if request.api_key == 46)
    async with as_user(site, ADMIN) as admin, as_user(site, ALICE) as alice:
        for _ in range(5):
            assert await ask(alice, request) == {NO_CLUSTER}
            await create_acls(admin, rights_for(Operation.DESCRIBE, CLUSTER))
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
