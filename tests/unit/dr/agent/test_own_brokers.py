"""An agent learns at once that a record of a link is in force at a broker, because the broker
answers at that moment.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent.own_brokers import BrokerAnswer, Enforcement, OwnBrokers, are_unchanged, is_unfenced, not_enforcing
from runtime.clock import SystemClock
from wire.control.broker_pb2 import DescribePartitionsReply, DescribePartitionsRequest, PartitionDescription
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


class Versioned:
    """The control services of two brokers, whose logs have versions."""

    def __init__(self) -> None:
        self.versions = {1: 11, 2: 22}
        self.described: list[int] = []
        """The brokers that have described their partitions, by node id."""

    def broker_control(self, address: str) -> Any:
        """Plays Channels."""
        node_id = int(address)

        async def describe(request: DescribePartitionsRequest, **_: float) -> DescribePartitionsReply:
            assert request.with_version
            version = self.versions[node_id]
            if request.known_versions.get(node_id) == version:
                return DescribePartitionsReply(node_id=node_id, version=version, is_unchanged=True)
            self.described.append(node_id)
            partitions = [PartitionDescription(topic="t", partition=node_id)]
            return DescribePartitionsReply(node_id=node_id, version=version, partitions=partitions)

        return SimpleNamespace(DescribePartitions=describe)


@pytest.mark.parametrize(
    ("known", "described"),
    [
        ({}, [1, 2]),
        ({1: 11, 2: 22}, []),
        ({1: 11, 2: 21}, [1, 2]),
        ({1: 11}, [1, 2]),
        ({1: 11, 2: 22, 3: 33}, [1, 2]),
    ],
)
async def test_partitions_are_left_out_only_if_the_logs_of_exactly_the_known_brokers_are_unchanged(
    known: dict[int, int], described: list[int]
) -> None:
    channels: Any = Versioned()
    brokers = {node_id: (SimpleNamespace(grpc_address=str(node_id)), 7) for node_id in (1, 2)}
    cache: Any = SimpleNamespace(facts=SimpleNamespace(brokers=brokers, unreadable={}))
    answers = await OwnBrokers(cache, channels, SystemClock()).observe("a-b", known, accepts_columns=False)
    found = [item.partition for one in answers if one.reply is not None for item in one.reply.partitions]
    assert sorted(found) == described
    assert are_unchanged(answers, known) is not bool(described)
    assert {one.node_id: one.reply.version for one in answers if one.reply is not None} == channels.versions


@pytest.mark.parametrize(
    ("phases", "problem"),
    [
        pytest.param({"a-b": LinkPhase.MIRRORING}, "broker 1: has not applied the fence", id="not applied"),
        pytest.param({"a-b": LinkPhase.FENCED}, "", id="applied"),
        pytest.param({}, "", id="a broker of an earlier release does not report the phase"),
    ],
)
def test_a_broker_without_partitions_shows_by_the_phase_whether_it_has_the_fence(
    phases: dict[str, int], problem: str
) -> None:
    reply = DescribePartitionsReply(node_id=1, link_epochs={"a-b": RECORD.epoch}, link_phases=phases)
    answer = BrokerAnswer(node_id=1, reply=reply)
    assert not_enforcing(answer, RECORD) == problem
    assert is_unfenced(answer, RECORD) is bool(problem)


def test_a_broker_of_a_later_epoch_lacks_no_fence() -> None:
    reply = DescribePartitionsReply(link_epochs={"a-b": RECORD.epoch + 1}, link_phases={"a-b": LinkPhase.MIRRORING})
    assert not is_unfenced(BrokerAnswer(node_id=1, reply=reply), RECORD)
