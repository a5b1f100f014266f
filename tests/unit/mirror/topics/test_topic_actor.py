"""The mirror's batched requests to the target's controller, and its reaction to each answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import grpc
import pytest
from kio.schema.errors import ErrorCode

from mirror.link.core.topic_plan import Action, AlterConfigs, CreateTopic, DeleteCopy, GrowTopic
from mirror.topics.topic_actor import ControllerActor
from runtime.addresses import HostPort
from tests.support.processes.ports import LOOPBACK
from wire.control import controller_pb2 as pb
from wire.control.controller_pb2_grpc import ControllerServicer, add_ControllerServicer_to_server

ANSWERS = {
    "new": ErrorCode.none,
    "there": ErrorCode.topic_already_exists,
    "bad": ErrorCode.invalid_config,
}
PROBLEMS = ["", "", "invalid_config because"]
IDS = {name: UUID(int=number) for number, name in enumerate(ANSWERS, start=1)}


class ScriptedController(ControllerServicer):
    """Answers each topic by its name."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._server = grpc.aio.server()
        add_ControllerServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.address = HostPort(LOOPBACK, self._server.add_insecure_port(f"{LOOPBACK}:0"))

    def _results(self, names: list[str]) -> list[pb.TopicResult]:
        return [
            pb.TopicResult(name=name, error_code=ANSWERS[name], error_message="because" if name == "bad" else "")
            for name in names
        ]

    async def CreateTopics(self, request: pb.CreateTopicsRequest, context: Any) -> pb.CreateTopicsReply:
        """Answers as the active controller."""
        self.seen.append(request)
        return pb.CreateTopicsReply(results=self._results([topic.name for topic in request.topics]))

    async def CreatePartitions(self, request: pb.CreatePartitionsRequest, context: Any) -> pb.CreatePartitionsReply:
        """Answers as the active controller."""
        self.seen.append(request)
        return pb.CreatePartitionsReply(results=self._results([topic.name for topic in request.topics]))

    async def AlterTopicConfigs(self, request: pb.AlterTopicConfigsRequest, context: Any) -> pb.AlterTopicConfigsReply:
        """Answers as the active controller."""
        self.seen.append(request)
        return pb.AlterTopicConfigsReply(results=self._results([change.name for change in request.changes]))

    async def DeleteTopics(self, request: pb.DeleteTopicsRequest, context: Any) -> pb.DeleteTopicsReply:
        """Answers as the active controller."""
        self.seen.append(request)
        names = {topic_id.bytes: name for name, topic_id in IDS.items()}
        return pb.DeleteTopicsReply(results=self._results([names[topic_id] for topic_id in request.topic_ids]))

    async def start(self) -> None:
        """Starts to serve."""
        await self._server.start()

    async def stop(self) -> None:
        """Stops the server."""
        await self._server.stop(None)


@pytest.fixture
async def controller() -> AsyncIterator[ScriptedController]:
    controller = ScriptedController()
    await controller.start()
    yield controller
    await controller.stop()


@pytest.mark.parametrize(
    ("actions", "requests"),
    [
        ([CreateTopic(name=name, topic_id=IDS[name], partition_count=2, configs={"a": "b"}) for name in ANSWERS], 1),
        ([GrowTopic(name=name, partition_count=2) for name in ANSWERS], 1),
        ([AlterConfigs(name=name, set={"a": "b"}, remove=("c",)) for name in ANSWERS], 1),
        ([DeleteCopy(name=name, topic_id=IDS[name]) for name in ANSWERS], 3),
    ],
    ids=["create", "grow", "configure", "delete"],
)
async def test_actions_of_one_kind_are_asked_for_at_once_and_each_has_its_own_outcome(
    controller: ScriptedController, actions: list[Action], requests: int
) -> None:
    actor = ControllerActor([controller.address])
    try:
        assert list(await actor.act(actions, link="a-b", link_epoch=4)) == PROBLEMS
    finally:
        await actor.close()
    assert len(controller.seen) == requests


async def test_topics_are_asked_for_in_the_links_name_under_the_sources_ids(controller: ScriptedController) -> None:
    actor = ControllerActor([controller.address])
    try:
        new = CreateTopic(name="new", topic_id=IDS["new"], partition_count=3, configs={"a": "b"})
        await actor.act([new], link="a-b", link_epoch=4)
    finally:
        await actor.close()
    (topic,) = controller.seen[0].topics
    assert (topic.topic_id, topic.partition_count, dict(topic.configs)) == (IDS["new"].bytes, 3, {"a": "b"})
    assert (topic.link, topic.link_epoch) == ("a-b", 4)
