"""The time that a client allows an administrative request reaches the controller."""

from __future__ import annotations

import datetime as dt
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.topics import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
)
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.metadata.request_context import RequestContext
from wire.control import controller_pb2 as pb
from wire.control.clients import CLIENT_TIMEOUT_MS_MAX, ControllerClient, ControllerUnavailable
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity

TOPIC = TopicImage(name="t", topic_id=b"i" * 16, configs={}, partitions={})


class Controller:
    """Records its requests and answers none."""

    def __init__(self, code: ErrorCode = ErrorCode.not_controller) -> None:
        self.asked: list[Any] = []
        self._code = code

    async def _ask(self, request: Any) -> Any:
        self.asked.append(request)
        raise ControllerUnavailable("a test", self._code)

    create_topics = delete_topics = create_partitions = elect_leaders = alter_reassignments = _ask


class Permits:
    """Permits that allow every request."""

    throttle_time_ms = 0.0

    def take(self, _: int) -> bool:
        return True


async def nothing(*_: Any, **__: Any) -> None:
    """Finds no other site to ask."""


def values(timeout_ms: int) -> dict[str, Any]:
    """The fields of all request types of this module."""
    return {
        "timeout": dt.timedelta(milliseconds=timeout_ms),
        "validate_only": False,
        "election_type": 0,
        "topic_partitions": None,
        "topic_names": ("t",),
    }


NEW_TOPIC = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
CASES: list[tuple[ModuleType, dict[str, Any]]] = [
    (create_topics, {"topics": [NEW_TOPIC]}),
    (create_partitions, {"topics": [{"name": "t", "count": 3, "assignments": None}]}),
    (delete_topics, {"topics": [{"name": "t", "topic_id": None}]}),
    (elect_leaders, {}),
    (alter_partition_reassignments, {"topics": []}),
]


@pytest.mark.parametrize(("handler", "more"), CASES, ids=[handler.__name__ for handler, _ in CASES])
@pytest.mark.parametrize(("given_ms", "asked_ms"), [(41_000, 41_000), (7, 7), (0, 1), (-1, 1)])
@pytest.mark.parametrize("code", [ErrorCode.not_controller, ErrorCode.request_timed_out])
async def test_a_timeout_is_forwarded(
    handler: Any, more: dict[str, Any], given_ms: int, asked_ms: int, code: ErrorCode
) -> None:
    controller = Controller(code)
    doors: Any = SimpleNamespace(
        cluster=Cluster(ClusterImage(site="a", node_id=1, topics={"t": TOPIC}, topic_names={TOPIC.topic_id: "t"})),
        controller=controller,
        active_site=SimpleNamespace(answer=nothing),
        quotas=SimpleNamespace(mutation_permits=lambda *_, **__: Permits()),
        configs=SimpleNamespace(current=SimpleNamespace(default_partition_count=1)),
    )
    context = RequestContext(
        api_key=handler.API_KEY,
        api_version=handler.MAX_VERSION,
        correlation_id=1,
        client_id="c",
        listener="CLIENT",
        client_address="h",
        client_software="",
    )
    request = build_entity(schemas.request_type(handler.API_KEY, handler.MAX_VERSION), {**values(given_ms), **more})
    answer = await handler.handle(request, context, doors)
    assert [asked.timeout_ms for asked in controller.asked] == [asked_ms]
    assert code.name in repr(answer)


@pytest.mark.parametrize(
    ("timeout_ms", "allowed_ms"),
    [(0, 10_000), (1, 1_500), (30_000, 30_500), (2**31 - 1, CLIENT_TIMEOUT_MS_MAX + 500)],
)
async def test_a_controller_is_looked_for_as_long_as_the_client_allows_within_bounds(
    timeout_ms: int, allowed_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[float] = []

    async def call(_: ControllerClient, method: str, request: Any, within_ms: float = 0.0) -> Any:
        allowed.append(within_ms)

    monkeypatch.setattr(ControllerClient, "_call", call)
    client = ControllerClient(list)
    for ask, request in (
        (client.create_topics, pb.CreateTopicsRequest),
        (client.delete_topics, pb.DeleteTopicsRequest),
        (client.create_partitions, pb.CreatePartitionsRequest),
        (client.elect_leaders, pb.ElectLeadersRequest),
        (client.alter_reassignments, pb.AlterReassignmentsRequest),
        (client.unregister_broker, pb.UnregisterBrokerRequest),
    ):
        await ask(request(timeout_ms=timeout_ms))  # type: ignore[operator]
    assert allowed == [allowed_ms] * 6
