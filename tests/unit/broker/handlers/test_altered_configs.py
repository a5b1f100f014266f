"""Requests that alter configs: a resource or a config that appears twice, a value that is missing,
and resources of several types with one name. The errors are Kafka's.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.configs import alter_configs, incremental_alter_configs
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, TopicInfo
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity

TOPIC, CLIENT_METRICS = 2, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
BOTH = pytest.mark.parametrize("handler", [incremental_alter_configs, alter_configs], ids=["incremental", "whole"])


class Controller:
    """Accepts all changes."""

    def __init__(self) -> None:
        self.changes: list[pb.TopicConfigChange] = []

    async def alter_topic_configs(self, request: pb.AlterTopicConfigsRequest) -> pb.AlterTopicConfigsReply:
        self.changes += request.changes
        results = [pb.TopicResult(name=change.name) for change in request.changes]
        return pb.AlterTopicConfigsReply(results=results)


async def no_other_site(*_: object, **__: object) -> None:
    """No other site answers."""


def config(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": operation}


def resource(name: str, *configs: dict[str, Any], kind: int = TOPIC) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


async def altered(
    handler: ModuleType, resources: Sequence[dict[str, Any]], controller: Controller
) -> list[tuple[int, str, ErrorCode, str | None]]:
    """Type, name, error and message of each result, as sent by a client of the highest version."""
    topics = [TopicInfo(name=name, topic_id=bytes([number] * 16)) for number, name in enumerate(("orders", "paid"), 1)]
    batch = ControlBatch(is_full=True, controller_epoch=1, brokers=[BrokerInfo(node_id=1)], topics=topics)
    image = apply_batch(ClusterImage(site="a", node_id=1), batch)
    doors: Any = SimpleNamespace(
        active_site=SimpleNamespace(answer=no_other_site),
        cluster=SimpleNamespace(image=image),
        configs=SimpleNamespace(layers=[]),
        controller=controller,
        group_configs=SimpleNamespace(answer_of_their_site=no_other_site),
    )
    context: Any = SimpleNamespace(api_version=handler.MAX_VERSION, is_own_tool=False, is_forwarded=False)
    if handler is alter_configs:
        resources = [
            {**one, "configs": [{"name": found["name"], "value": found["value"]} for found in one["configs"]]}
            for one in resources
        ]
    values = {"resources": resources, "validate_only": False}
    request = build_entity(schemas.request_type(handler.API_KEY, handler.MAX_VERSION), values)
    answer = await handler.handle(request, context, doors)
    return [(one.resource_type, one.resource_name, one.error_code, one.error_message) for one in answer.responses]


@BOTH
async def test_a_resource_that_appears_twice_is_not_altered_at_all(handler: ModuleType) -> None:
    controller = Controller()
    results = await altered(
        handler,
        [
            resource("orders", config("retention.ms", "1000")),
            resource("paid", config("retention.ms", "3000")),
            resource("orders", config("retention.ms", "2000")),
        ],
        controller,
    )
    refused = (TOPIC, "orders", ErrorCode.invalid_request, "Each resource must appear at most once.")
    assert sorted(results, key=str) == sorted([refused, refused, (TOPIC, "paid", ErrorCode.none, None)], key=str)
    assert [change.name for change in controller.changes] == ["paid"]


@BOTH
async def test_a_config_that_appears_twice_refuses_its_resource(handler: ModuleType) -> None:
    controller = Controller()
    results = await altered(
        handler, [resource("orders", config("retention.ms", "1000"), config("retention.ms", "2000"))], controller
    )
    assert results == [(TOPIC, "orders", ErrorCode.invalid_request, "Error due to duplicate config keys")]
    assert not controller.changes


@BOTH
async def test_a_config_without_a_value_refuses_its_resource(handler: ModuleType) -> None:
    controller = Controller()
    results = await altered(handler, [resource("orders", config("retention.ms", None))], controller)
    assert results == [
        (
            TOPIC,
            "orders",
            ErrorCode.invalid_request,
            "configs without a value: retention.ms; accepted: a value, or DELETE",
        )
    ]
    assert not controller.changes


@BOTH
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", ErrorCode.invalid_request),
        ("a b", ErrorCode.invalid_topic_exception),
        ("nowhere", ErrorCode.unknown_topic_or_partition),
    ],
)
async def test_an_illegal_topic_has_another_error_than_one_that_is_missing(
    handler: ModuleType, name: str, error: ErrorCode
) -> None:
    controller = Controller()
    results = await altered(handler, [resource(name, config("retention.ms", "1000"))], controller)
    assert [(one[2], bool(one[3])) for one in results] == [(error, True)]
    assert not controller.changes


async def test_a_removed_config_needs_no_value() -> None:
    controller = Controller()
    results = await altered(
        incremental_alter_configs, [resource("orders", config("retention.ms", None, DELETE))], controller
    )
    assert results == [(TOPIC, "orders", ErrorCode.none, None)]
    assert [list(change.remove) for change in controller.changes] == [["retention.ms"]]


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
async def test_the_controller_is_asked_to_change_lists_and_gets_no_whole_list(operation: int) -> None:
    controller = Controller()
    await altered(
        incremental_alter_configs,
        [resource("orders", config("cleanup.policy", " compact,", operation))],
        controller,
    )
    (change,) = controller.changes
    assert not change.set
    assert list(change.lists) == [
        pb.ListChange(name="cleanup.policy", items=["compact"], is_removal=operation == SUBTRACT, inherited="delete")
    ]


async def test_a_single_value_is_no_list_to_append_to() -> None:
    controller = Controller()
    results = await altered(
        incremental_alter_configs, [resource("orders", config("retention.ms", "1", APPEND))], controller
    )
    assert [error for _, _, error, _ in results] == [ErrorCode.invalid_config]
    assert not controller.changes


@BOTH
@pytest.mark.parametrize("kinds", [(TOPIC, CLIENT_METRICS), (CLIENT_METRICS, TOPIC)], ids=["first", "last"])
async def test_a_topic_is_altered_beside_another_resource_of_its_name(
    handler: ModuleType, kinds: tuple[int, int]
) -> None:
    controller = Controller()
    results = await altered(
        handler, [resource("orders", config("retention.ms", "1000"), kind=kind) for kind in kinds], controller
    )
    assert {kind: error for kind, _, error, _ in results} == {
        TOPIC: ErrorCode.none,
        CLIENT_METRICS: ErrorCode.invalid_request,
    }
    assert [dict(change.set) for change in controller.changes] == [{"retention.ms": "1000"}]
