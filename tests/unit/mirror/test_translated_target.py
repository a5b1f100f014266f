"""Topics at the target of a translate link: made at once, each with an outcome of its own."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from mirror.core.naming import Naming, NamingPolicy
from mirror.core.plan import Action, CreateTopic, GrowTopic
from mirror.core.stored_map import Binding
from mirror.ports import Unreachable
from mirror.translated_target import TranslatedTarget
from tests.support.scripted_broker import NO_TIME, ScriptedBroker
from wire.client import KafkaClient

NOT_ASKED: Any = None
NAMING = Naming(policy=NamingPolicy.PREFIX, source_alias="a", target_alias="b")
CREATIONS: list[Action] = [
    CreateTopic(name=name, topic_id=UUID(int=1), partition_count=1, configs={}) for name in ("new", "there", "bad")
]


def target(client: KafkaClient, naming: Naming = NAMING, bindings: Sequence[Binding] = ()) -> TranslatedTarget:
    return TranslatedTarget(
        source=NOT_ASKED,
        target=NOT_ASKED,
        client=client,
        naming=naming,
        translations=SimpleNamespace(bindings=bindings),
        tails=NOT_ASKED,
        opposite=NOT_ASKED,
        carries=lambda _: True,
        replication_factor=1,
        is_syncing_configs=True,
    )


def created(request: Any, header: Any) -> dict[str, Any]:
    codes = {
        "a.new": ErrorCode.none,
        "a.there": ErrorCode.topic_already_exists,
        "a.bad": ErrorCode.invalid_topic_exception,
    }
    topics = [
        {"name": topic.name, "topic_id": UUID(int=9), "error_code": codes[topic.name], "error_message": "because"}
        for topic in reversed(request.topics)
    ]
    return {"throttle_time": NO_TIME, "topics": topics}


def metadata(broker: ScriptedBroker) -> dict[str, Any]:
    node = {"node_id": 1, "host": broker.address.host, "port": broker.address.port, "rack": None}
    return {"throttle_time": NO_TIME, "brokers": [node], "cluster_id": "c", "controller_id": 1, "topics": []}


async def test_topics_are_made_at_once_and_each_has_its_own_outcome() -> None:
    async with ScriptedBroker() as broker:
        broker.on(3, lambda request, header: metadata(broker))
        broker.on(19, created)
        async with KafkaClient((broker.address,)) as client:
            problems = await target(client).act(CREATIONS, link="a-b", link_epoch=1)
        assert list(problems) == ["", "", "invalid_topic_exception because"]
        assert len(broker.requests(19)) == 1


async def test_of_two_topics_that_would_have_one_copy_one_is_refused() -> None:
    naming = Naming(policy=NamingPolicy.TABLE, source_alias="a", target_alias="b", table={"old": "a.new"})
    creations = [
        CreateTopic(name=name, topic_id=UUID(int=1), partition_count=1, configs={}) for name in ("old", "a.new")
    ]
    async with ScriptedBroker() as broker:
        broker.on(3, lambda request, header: metadata(broker))
        broker.on(19, created)
        async with KafkaClient((broker.address,)) as client:
            problems = await target(client, naming).act(creations, link="a-b", link_epoch=1)
    assert list(problems) == ["", "topic a.new of the target is the copy of old; two topics cannot have one copy"]


@pytest.mark.parametrize("actions", [CREATIONS, [GrowTopic(name="new", partition_count=2)]], ids=["create", "grow"])
async def test_a_target_that_cannot_be_reached_refuses_nothing(actions: list[Action], unused_tcp_port: int) -> None:
    async with KafkaClient(f"127.0.0.1:{unused_tcp_port}", retry_budget_ms=1) as client:
        with pytest.raises(Unreachable):
            await target(client).act(actions, link="a-b", link_epoch=1)
