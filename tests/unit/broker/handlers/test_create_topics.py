"""CreateTopics: a topic with a config without a value is refused as by Kafka; others are made."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from broker.handlers.topics import create_topics
from broker.metadata.core.cluster_image import ClusterImage
from wire.control import controller_pb2 as pb
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity


class Controller:
    """Checks nothing."""

    def __init__(self) -> None:
        self.topics: list[pb.NewTopic] = []

    async def create_topics(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsReply:
        self.topics += request.topics
        results = [pb.TopicResult(name=topic.name, topic_id=bytes(15) + b"i") for topic in request.topics]
        return pb.CreateTopicsReply(results=results)


async def no_other_site(*_: object, **__: object) -> None:
    """No other site answers."""


def topic(name: str, **configs: str | None) -> dict[str, Any]:
    values = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": values}


async def test_a_topic_with_a_config_without_a_value_is_not_created() -> None:
    controller = Controller()
    permits = SimpleNamespace(take=lambda _count: True, throttle_time_ms=0)
    doors: Any = SimpleNamespace(
        active_site=SimpleNamespace(answer=no_other_site),
        cluster=SimpleNamespace(image=ClusterImage(site="a", node_id=1)),
        configs=SimpleNamespace(layers=[], current=SimpleNamespace(properties={})),
        controller=controller,
        quotas=SimpleNamespace(mutation_permits=lambda *_, **__: permits),
    )
    context: Any = SimpleNamespace(api_version=create_topics.MAX_VERSION, is_own_tool=False, is_forwarded=False)
    topics = [
        topic("unset", retention_ms=None, retention_bytes="5", segment_ms=None),
        topic("set", retention_ms="1000"),
    ]
    values = {"topics": topics, "timeout": timedelta(seconds=1), "validate_only": True}
    request = build_entity(schemas.request_type(create_topics.API_KEY, create_topics.MAX_VERSION), values)
    answer = await create_topics.handle(request, context, doors)
    assert [(one.name, one.error_code, one.error_message) for one in answer.topics] == [
        (
            "unset",
            ErrorCode.invalid_config,
            "topic configs without a value: retention.ms,segment.ms; accepted: a value for each",
        ),
        ("set", ErrorCode.none, None),
    ]
    assert [(one.name, dict(one.configs)) for one in controller.topics] == [("set", {"retention.ms": "1000"})]
