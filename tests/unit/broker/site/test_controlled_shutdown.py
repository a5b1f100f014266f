"""A broker that stops asks the controller to move its leaderships: the number of attempts, and the
waits between them.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.settings.config import BrokerSettings
from broker.settings.loading import load_broker_settings
from broker.site import controlled_shutdown as controlled_shutdown
from broker.site.controlled_shutdown import ControlledShutdown
from wire.control import controller_pb2 as pb
from wire.control.cluster_pb2 import BrokerInfo

OWN, OTHER = 1, 2


class Controller:
    """Answers with these numbers of remaining partitions in turn, and repeats the last one."""

    def __init__(self, *remaining: int, error: ErrorCode = ErrorCode.none) -> None:
        self._remaining = list(remaining)
        self._error = error
        self.asked = 0

    async def controlled_shutdown(self, request: pb.ControlledShutdownRequest) -> pb.ControlledShutdownReply:
        assert request.node_id == OWN
        self.asked += 1
        remaining = self._remaining.pop(0) if len(self._remaining) > 1 else self._remaining[0]
        return pb.ControlledShutdownReply(error_code=self._error, remaining_count=remaining)


class Replicas:
    """One partition with two replicas; no producer waits for it."""

    def __init__(self) -> None:
        self.purgatory = self

    async def emptied(self, _operation: object) -> None:
        return

    def __iter__(self) -> Any:
        return iter([SimpleNamespace(state=SimpleNamespace(replicas=(OWN, OTHER)))])


def settings(**given: str) -> BrokerSettings:
    base = {"node.id": str(OWN), "listeners": "CLIENT://h:1", "log.dirs": "/x", "zookeeper.connect": "z:1"}
    return load_broker_settings({**base, **{key.replace("_", "."): value for key, value in given.items()}})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each wait; the waits take no time in this test."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(
        controlled_shutdown, "asyncio", SimpleNamespace(sleep=sleep, timeout=asyncio.timeout, Event=asyncio.Event)
    )
    return waited


async def run(controller: Any, known: BrokerSettings, *, others: tuple[int, ...] = (OTHER,)) -> None:
    image = ClusterImage(site="a", node_id=OWN, brokers={node: BrokerInfo(node_id=node) for node in (OWN, *others)})
    replicas: Any = Replicas()
    over = ControlledShutdown()
    await over.run(controller, known, broker_epoch=7, replicas=replicas, image=lambda: image)
    assert not over.is_under_way


async def test_controlled_shutdown_max_retries(pauses: list[float]) -> None:
    asked = []
    for known in (settings(controlled_shutdown_max_retries="0"), settings(controlled_shutdown_max_retries="5")):
        controller = Controller(1)
        await run(controller, known)
        asked.append(controller.asked)
    assert asked == [1, 6]
    assert len(pauses) == 5


async def test_controlled_shutdown_retry_backoff_ms(pauses: list[float]) -> None:
    controller = Controller(2, 1, 0)
    await run(controller, settings(controlled_shutdown_retry_backoff_ms="1234"))
    assert controller.asked == 3
    assert pauses == [1.234, 1.234]


async def test_nothing_is_asked_again_where_no_other_broker_lives_or_the_registration_is_over(
    pauses: list[float],
) -> None:
    alone, refused = Controller(1), Controller(1, error=ErrorCode.stale_broker_epoch)
    await run(alone, settings(), others=())
    await run(refused, settings())
    assert (alone.asked, refused.asked, pauses) == (1, 1, [])
