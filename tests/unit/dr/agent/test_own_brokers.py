"""An agent learns at once that a record of a link is in force at a broker, because the broker
answers at that moment.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent.own_brokers import Enforcement, OwnBrokers
from runtime.clock import SystemClock
from wire.control.broker_pb2 import DescribePartitionsReply, DescribePartitionsRequest
from wire.control.cluster_pb2 import LinkPhase, LinkRecord

RECORD = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=3, phase=LinkPhase.FENCED)


class Broker:
    """The control service of one broker; it has the record in force once `enforced` is set."""

    def __init__(self) -> None:
        self.requests: list[DescribePartitionsRequest] = []
        self.has_leaders = True
        self.asked = asyncio.Event()
        self.enforced = asyncio.Event()

    def broker_control(self, address: str) -> Any:
        """Plays Channels."""
        assert address == "one:1"
        return self

    async def DescribePartitions(self, request: DescribePartitionsRequest, **_: float) -> DescribePartitionsReply:
        """Plays BrokerControl."""
        self.requests.append(request)
        self.asked.set()
        if request.awaited == RECORD and request.wait_ms:
            await self.enforced.wait()
        epoch = RECORD.epoch if self.enforced.is_set() else RECORD.epoch - 1
        return DescribePartitionsReply(node_id=1, link_epochs={"a-b": epoch}, has_leaders=self.has_leaders)


@pytest.mark.parametrize("has_leaders", [True, False])
async def test_one_query_waits_until_the_record_is_in_force_and_reports_its_leaders(has_leaders: bool) -> None:
    broker: Any = Broker()
    broker.has_leaders = has_leaders
    brokers = {1: (SimpleNamespace(grpc_address="one:1"), 7)}
    cache: Any = SimpleNamespace(facts=SimpleNamespace(brokers=brokers, unreadable={}))
    async with asyncio.timeout(10):
        waiting = asyncio.create_task(OwnBrokers(cache, broker, SystemClock()).wait_enforced(RECORD, timeout_ms=5_000))
        await broker.asked.wait()
        broker.enforced.set()
        assert await waiting == Enforcement(problems=[], has_leaders=has_leaders)
    assert len(broker.requests) == 1
