"""What requests show of topics that a client may not describe, and what they change of topics that
only the other site of a link has.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.authorization.authorizer import Authorizer
from broker.handlers.access.hiding import without_hidden_members
from broker.handlers.access.rules import answer_allowed
from broker.handlers.access.table import RULES
from broker.handlers.groups import consumer_group_describe, consumer_group_heartbeat
from broker.handlers.topics import delete_topics, describe_topic_partitions, metadata
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.core.peer_topics import PeerTopics
from broker.metadata.core.topic_images import TopicImage
from broker.metadata.metadata_encoding import MetadataCache
from broker.metadata.request_context import RequestContext
from broker.network.entities import NO_THROTTLE, builder
from broker.settings.loading import load_broker_settings
from tests.support.memory.site_model import link_record
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import PartitionState, TopicInfo
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.rules.acls import AccessEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from wire.rules.principals import Principal
from wire.znodes.acl_znodes import acls_message

NEW = uuid.uuid4()


def standby(*topics: str, rights: Sequence[tuple[Operation, str]] = ()) -> ClusterImage:
    """Site b's image: a link carries `orders.*` from site a, which alone has `orders.new`."""
    link = link_record("a-b", active="a", is_routed=True)
    acls = [
        acls_message(
            ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL),
            [AccessEntry("User:alice", "*", operation, Permission.ALLOW) for operation, of in rights if of == name],
        )
        for name in {name for _, name in rights}
    ]
    infos = [
        TopicInfo(name=name, topic_id=uuid.uuid4().bytes, partitions=[PartitionState(partition=0, leader=1)])
        for name in topics
    ]
    image = apply_batch(
        ClusterImage(site="b", node_id=1), ControlBatch(is_full=True, links=[link], acls=acls, topics=infos)
    )
    theirs = TopicImage(name="orders.new", topic_id=NEW.bytes, configs={}, partitions={})
    return replace(image, peer_topics={"a": PeerTopics().with_view([theirs])})


def authorizer_of(image: ClusterImage) -> Authorizer:
    settings = load_broker_settings(
        {
            "node.id": "1",
            "listeners": "CLIENT://:0",
            "log.dirs": "none",
            "zookeeper.connect": "none:1",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        }
    )
    return Authorizer(settings, lambda: image)


def asked_by_alice(api: ModuleType, version: int) -> RequestContext:
    return RequestContext(
        api_key=api.API_KEY,
        api_version=version,
        correlation_id=1,
        client_id="c",
        listener="CLIENT",
        client_address="10.0.0.1:50000",
        principal=Principal("User", "alice"),
    )


async def answered(
    api: ModuleType, image: ClusterImage, values: dict[str, Any], handle: Callable[[Any], Awaitable[Any]]
) -> Any:
    """The answer to alice, as the dispatcher makes it."""
    request = build_entity(schemas.request_type(api.API_KEY, api.MAX_VERSION), values)
    context = asked_by_alice(api, api.MAX_VERSION)
    return await answer_allowed(authorizer_of(image), context, request, handle, RULES[api.API_KEY])


async def test_a_topic_that_only_the_other_site_has_is_deleted_by_id_with_its_right_alone() -> None:
    reached: list[Any] = []

    async def handle(request: Any) -> Any:
        reached.extend(request.topics)
        return builder(delete_topics.API_KEY, delete_topics.MAX_VERSION).response(responses=())

    by_id = {"topics": [{"name": None, "topic_id": NEW}], "timeout": timedelta(seconds=1)}
    answer = await answered(delete_topics, standby(), by_id, handle)
    assert [one.error_code for one in answer.responses] == [ErrorCode.topic_authorization_failed]
    assert reached == []
    await answered(delete_topics, standby(rights=[(Operation.DELETE, "orders.new")]), by_id, handle)
    assert [one.topic_id for one in reached] == [NEW]


async def test_no_page_of_all_topics_names_one_that_the_client_may_not_describe() -> None:
    image = standby("bills", "crypt", "daily", "eggs", rights=[(Operation.DESCRIBE, "daily")])

    async def no_answers(*_: object, **__: object) -> list[Any]:
        return []

    doors: Any = SimpleNamespace(
        active_site=SimpleNamespace(topics_of=no_answers),
        authorizer=authorizer_of(image),
        cluster=SimpleNamespace(image=image),
    )
    context = asked_by_alice(describe_topic_partitions, 0)
    everything = {"topics": [], "response_partition_limit": 1, "cursor": None}
    page = await answered(
        describe_topic_partitions,
        image,
        everything,
        lambda request: describe_topic_partitions.handle(request, context, doors),
    )
    assert [topic.name for topic in page.topics] == ["daily"]
    assert page.next_cursor is None


async def created_at_the_active_site(image: ClusterImage) -> list[str]:
    """The topics that site a would make for alice's Metadata request."""
    made: list[str] = []

    async def topics_of(
        _image: ClusterImage, _site: str, topics: Sequence[str], *, may_create: bool, timeout_ms: float
    ) -> list[Any]:
        made.extend(topics if may_create else ())
        return []

    values = {
        "topics": [{"name": "orders.wanted", "topic_id": None}],
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    request = build_entity(schemas.request_type(metadata.API_KEY, metadata.MAX_VERSION), values)
    context = asked_by_alice(metadata, metadata.MAX_VERSION)
    doors: Any = SimpleNamespace(
        active_site=SimpleNamespace(topics_of=topics_of),
        authorizer=authorizer_of(image),
        cluster=SimpleNamespace(image=image),
        configs=SimpleNamespace(current=SimpleNamespace(may_auto_create_topics=True)),
        merged_metadata=MetadataCache(is_merged=True),
    )
    answers: list[Any] = []
    exchange: Any = SimpleNamespace(
        connection=SimpleNamespace(listener="CLIENT"),
        context=context,
        count_errors=lambda _: None,
        reply_body=lambda parts, **_: answers.append(parts),
        throttle_time_ms=lambda _: 0,
    )
    await metadata._answer_later(doors, exchange, context, request, is_doubtful=False)
    assert len(answers) == 1
    return made


async def test_metadata_makes_no_topic_at_the_active_site_without_the_right_to() -> None:
    assert await created_at_the_active_site(standby()) == []
    described = [(Operation.DESCRIBE, "orders.wanted")]
    assert await created_at_the_active_site(standby(rights=described)) == []
    creating = [(Operation.CREATE, "orders.wanted")]
    assert await created_at_the_active_site(standby(rights=creating)) == []
    both = standby(rights=[*described, *creating])
    assert await created_at_the_active_site(both) == ["orders.wanted"]


async def test_a_member_by_regular_expression_gets_only_topics_that_it_may_describe() -> None:
    rights = [(Operation.READ, "daily")]
    group = ResourcePattern(ResourceType.GROUP, "g", PatternType.LITERAL)
    reader = AccessEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
    image = standby("bills", "daily", rights=rights)
    image = apply_batch(image, ControlBatch(acls=[acls_message(group, [reader])]))
    build = builder(consumer_group_heartbeat.API_KEY, consumer_group_heartbeat.MAX_VERSION)

    def assignment(*topics: str) -> Any:
        ids = [uuid.UUID(bytes=image.topics[name].topic_id) for name in topics]
        return build.part(
            "Assignment",
            topic_partitions=tuple(build.part("TopicPartitions", topic_id=one, partitions=(0,)) for one in ids),
        )

    async def beat(given: Any) -> Any:
        async def handle(_: Any) -> Any:
            return build.response(
                error_code=ErrorCode.none,
                error_message=None,
                member_id="m",
                member_epoch=1,
                heartbeat_interval=NO_THROTTLE,
                assignment=given,
            )

        values = {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": timedelta(seconds=1),
            "subscribed_topic_names": None,
            "subscribed_topic_regex": ".*",
            "server_assignor": None,
            "topic_partitions": None,
        }
        return await answered(consumer_group_heartbeat, image, values, handle)

    assert (await beat(assignment("bills", "daily"))).assignment == assignment("daily")
    assert (await beat(None)).assignment is None


def test_a_group_is_shown_although_a_topic_of_its_members_was_just_deleted() -> None:
    """The deleted topic has no name here, and so no ACL."""
    image = standby("daily", rights=[(Operation.READ, "daily")])
    build = builder(consumer_group_describe.API_KEY, consumer_group_describe.MAX_VERSION)

    def member(*topics: str) -> Any:
        held = [SimpleNamespace(topic_name=name, topic_id=None, partitions=(0,)) for name in topics]
        assigned = SimpleNamespace(topic_partitions=held)
        return SimpleNamespace(assignment=assigned, target_assignment=assigned, subscribed_topic_names=("daily",))

    def shown(*topics: str) -> ErrorCode:
        group = build.part(
            "DescribedGroup",
            error_code=ErrorCode.none,
            error_message=None,
            group_id="g",
            group_state="Stable",
            group_epoch=1,
            assignment_epoch=1,
            assignor_name="uniform",
            members=(member(*topics),),
            authorized_operations=0,
        )
        answer: Any = build.response(groups=(group,))
        context = asked_by_alice(consumer_group_describe, consumer_group_describe.MAX_VERSION)
        (found,) = without_hidden_members(authorizer_of(image), context, None, answer).groups
        code: ErrorCode = found.error_code
        return code

    assert shown("daily", "") is ErrorCode.none
    assert shown("daily", "bills") is ErrorCode.topic_authorization_failed
