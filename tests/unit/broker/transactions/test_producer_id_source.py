"""Producer ids over a controller that is slow, away, or asked by many at once."""

from __future__ import annotations

import asyncio

import pytest

from broker.transactions.producer_id_source import ProducerIdSource
from tests.support.eventually import eventually
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerUnavailable


class Controller:
    """Hands out blocks of `size` while `gate` is set; fails as often as `failures` says."""

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.failures = 0
        self.requests: list[pb.AllocateProducerIdsRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def allocate_producer_ids(self, request: pb.AllocateProducerIdsRequest) -> pb.AllocateProducerIdsReply:
        self.requests.append(request)
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ControllerUnavailable("no controller is elected")
        first = self.size * (len(self.requests) - 1)
        return pb.AllocateProducerIdsReply(first_producer_id=first, count=self.size)


def source(controller: Controller) -> ProducerIdSource:
    return ProducerIdSource(7, controller, broker_epoch=lambda: 42)


async def test_clients_that_come_together_share_one_block() -> None:
    controller = Controller()
    ids = source(controller)
    found = await asyncio.gather(*(ids.next_id() for _ in range(50)))
    assert sorted(found) == list(range(50))
    (request,) = controller.requests
    assert (request.node_id, request.broker_epoch) == (7, 42)


async def test_the_next_block_comes_before_it_is_needed() -> None:
    controller = Controller(size=10)
    ids = source(controller)
    for _ in range(9):
        await ids.next_id()
    await eventually(lambda: len(controller.requests) == 2)
    controller.gate.clear()
    assert [await ids.next_id() for _ in range(2)] == [9, 10]


async def test_an_unreachable_controller_is_reported_and_asked_again() -> None:
    controller = Controller()
    controller.failures = 1
    ids = source(controller)
    with pytest.raises(ControllerUnavailable):
        await ids.next_id()
    assert await ids.next_id() == 1000


async def test_a_client_that_goes_away_does_not_take_the_block_from_others() -> None:
    controller = Controller()
    controller.gate.clear()
    ids = source(controller)
    leaving, staying = asyncio.ensure_future(ids.next_id()), asyncio.ensure_future(ids.next_id())
    await eventually(lambda: len(controller.requests) == 1)
    leaving.cancel()
    controller.gate.set()
    assert await staying == 0


async def test_stopping_gives_up_the_request_under_way() -> None:
    controller = Controller()
    controller.gate.clear()
    ids = source(controller)
    waiting = asyncio.ensure_future(ids.next_id())
    await eventually(lambda: len(controller.requests) == 1)
    await ids.stop()
    with pytest.raises(asyncio.CancelledError):
        await waiting
