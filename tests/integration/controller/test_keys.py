"""Keys of a controller, each set under its own name and seen to act: real ZooKeeper, brokers that
record the batches that they receive.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from controller import event_loop
from tests.support.eventually import eventually
from tests.support.memory.scripted_control import ScriptedBroker
from tests.support.processes.zookeeper import expire_session
from tests.support.sites.controller_site import CandidateProcess
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient

pytestmark = pytest.mark.integration

AT_ONCE_S = 0.2


class Site:
    """Two brokers, a topic that broker 1 is preferred for and broker 2 leads, and a topic whose
    deletion is tried again and again.
    """

    def __init__(self, stack: AsyncExitStack, connect: str, candidate: CandidateProcess) -> None:
        self._stack = stack
        self._connect = connect
        self.candidate = candidate
        self.brokers: list[ScriptedBroker] = []

    async def start(self) -> None:
        self.brokers = [await self._stack.enter_async_context(ScriptedBroker(self._connect, node)) for node in (1, 2)]
        first, second = self.brokers
        second.failing_topics.add("stuck")
        await self._stack.enter_async_context(self.candidate)
        client = ControllerClient(lambda: [self.candidate.address])
        self._stack.push_async_callback(client.close)
        await eventually(lambda: second.live == [1, 2])
        placed = {"t": (1, 2), "stuck": (2,)}
        for name, replicas in placed.items():
            topic = pb.NewTopic(
                name=name,
                partition_count=-1,
                replication_factor=-1,
                assignments=[pb.ReplicaAssignment(partition=0, replicas=replicas)],
            )
            (made,) = (await client.create_topics(pb.CreateTopicsRequest(topics=[topic]))).results
            assert made.error_code == ErrorCode.none, made.error_message
        await first.unregister()
        await eventually(lambda: second.leader_of("t") == 2)
        await first.register()
        await eventually(lambda: second.live == [1, 2])
        await client.delete_topics(pb.DeleteTopicsRequest(names=["stuck"], timeout_ms=1))
        state = second.partitions["t", 0]
        (altered,) = (
            await client.alter_partitions(
                pb.AlterPartitionsRequest(
                    node_id=2,
                    broker_epoch=second.batches[-1].broker_epoch,
                    partitions=[
                        pb.ProposedPartition(
                            topic="t",
                            topic_id=next(
                                topic.topic_id
                                for batch in second.batches
                                for topic in batch.topics
                                if topic.name == "t"
                            ),
                            partition=0,
                            leader_epoch=state.leader_epoch,
                            partition_epoch=state.partition_epoch,
                            isr=[pb.InSyncReplica(node_id=node, broker_epoch=-1) for node in (2, 1)],
                        )
                    ],
                )
            )
        ).partitions
        assert altered.error_code == ErrorCode.none

    @property
    def leader(self) -> int | None:
        return self.brokers[1].leader_of("t")

    def rounds(self, command: str) -> float:
        """How often the controller handled the command."""
        name = "kafka_controller_controllereventmanager_eventqueueprocessingtimems_count"
        return self.candidate.registry.get_sample_value(name, {"command": command}) or 0

    async def many_retries(self) -> None:
        """Wait until deletions, which are tried again every 100 ms, have been tried twenty times
        more.
        """
        before = self.rounds("RetryDeletions")
        await eventually(lambda: self.rounds("RetryDeletions") >= before + 20)


async def started(stack: AsyncExitStack, connect: str, **properties: str) -> Site:
    site = Site(stack, connect, CandidateProcess(connect, 3, **properties))
    await site.start()
    return site


async def test_leader_imbalance_check_interval_seconds(
    stack: AsyncExitStack, zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "FIRST_BALANCE_AFTER_S", AT_ONCE_S)
    site = await started(stack, zookeeper_connect, leader_imbalance_check_interval_seconds="1")
    await eventually(lambda: site.leader == 1)
    await eventually(lambda: site.rounds("BalanceLeaders") >= 3)


async def test_an_interval_that_is_long_is_waited_for(
    stack: AsyncExitStack, zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "FIRST_BALANCE_AFTER_S", AT_ONCE_S)
    site = await started(stack, zookeeper_connect, leader_imbalance_check_interval_seconds="3600")
    await eventually(lambda: site.rounds("BalanceLeaders") == 1)
    await site.many_retries()
    assert site.rounds("BalanceLeaders") == 1


async def test_auto_leader_rebalance_enable(
    stack: AsyncExitStack, zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "FIRST_BALANCE_AFTER_S", AT_ONCE_S)
    site = await started(
        stack,
        zookeeper_connect,
        auto_leader_rebalance_enable="false",
        leader_imbalance_check_interval_seconds="1",
    )
    await site.many_retries()
    assert site.rounds("BalanceLeaders") == 0
    assert site.leader == 2


async def test_leader_imbalance_per_broker_percentage(
    stack: AsyncExitStack, zookeeper_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "FIRST_BALANCE_AFTER_S", AT_ONCE_S)
    site = await started(
        stack,
        zookeeper_connect,
        leader_imbalance_per_broker_percentage="100",
        leader_imbalance_check_interval_seconds="1",
    )
    before = site.rounds("BalanceLeaders")
    await eventually(lambda: site.rounds("BalanceLeaders") >= before + 2)
    assert site.leader == 2, "not more than all of them may be elsewhere"


async def test_the_first_balance_comes_seconds_after_the_election_and_not_after_an_interval(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    site = await started(stack, zookeeper_connect, leader_imbalance_check_interval_seconds="3600")
    await eventually(lambda: site.leader == 1)
    assert site.rounds("BalanceLeaders") == 1


async def test_controller_socket_timeout_ms(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    """A broker that does not answer is sent everything again, and again, until it does."""
    broker = await stack.enter_async_context(ScriptedBroker(zookeeper_connect, 1))
    broker.gate.clear()
    candidate = await stack.enter_async_context(
        CandidateProcess(zookeeper_connect, 2, controller_socket_timeout_ms="200")
    )
    await eventually(lambda: candidate.is_active and candidate.metric("pushfailures_total") >= 3)
    broker.gate.set()
    await eventually(lambda: broker.live == [1])


async def made(
    stack: AsyncExitStack, connect: str, *, factor: int = -1, **properties: str
) -> tuple[ControllerClient, pb.TopicResult]:
    """A topic with the site's own counts (or another factor), at a site of two brokers whose
    controller has these keys.
    """
    brokers = [await stack.enter_async_context(ScriptedBroker(connect, node)) for node in (1, 2)]
    candidate = await stack.enter_async_context(CandidateProcess(connect, 3, **properties))
    await eventually(lambda: brokers[0].live == [1, 2])
    client = ControllerClient(lambda: [candidate.address])
    stack.push_async_callback(client.close)
    topic = pb.NewTopic(name="t", partition_count=-1, replication_factor=factor)
    (result,) = (await client.create_topics(pb.CreateTopicsRequest(topics=[topic]))).results
    return client, result


async def test_num_partitions_and_default_replication_factor(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    _, result = await made(stack, zookeeper_connect, num_partitions="4", default_replication_factor="2")
    assert (result.error_code, result.partition_count, result.replication_factor) == (ErrorCode.none, 4, 2)


async def test_antipode_replication_factor_max(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    _, result = await made(stack, zookeeper_connect, factor=2, antipode_replication_factor_max="1")
    assert result.error_code == ErrorCode.invalid_replication_factor


async def test_delete_topic_enable(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    client, _ = await made(stack, zookeeper_connect, delete_topic_enable="false")
    (refused,) = (await client.delete_topics(pb.DeleteTopicsRequest(names=["t"]))).results
    assert refused.error_code == ErrorCode.topic_deletion_disabled


async def test_candidates_whose_files_differ_say_so(stack: AsyncExitStack, zookeeper_connect: str) -> None:
    first = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 3, num_partitions="4"))
    await eventually(lambda: first.is_active)
    with capture_logs() as said:
        await stack.enter_async_context(CandidateProcess(zookeeper_connect, 4, num_partitions="4"))
    assert not [entry for entry in said if "key" in entry], "equal files are nothing to speak of"
    other = {"num_partitions": "8", "unclean_leader_election_enable": "true"}
    with capture_logs() as said:
        await stack.enter_async_context(CandidateProcess(zookeeper_connect, 5, **other))
    assert {entry["key"]: (entry["value"], entry["controllers_value"]) for entry in said if "key" in entry} == {
        "num.partitions": ("8", "4"),
        "unclean.leader.election.enable": ("true", "false"),
    }


def tasks_of_controllers() -> Counter[str]:
    """Tasks of this process by the coroutine that they run, without tasks of tests and of
    libraries.
    """
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    return Counter(name for name in names if not name.startswith(("test_", "eventually")))


def governs(candidate: CandidateProcess) -> bool:
    """True if it is elected and knows the brokers."""
    return candidate.is_active and candidate.metric("activebrokercount") == 2


def stands_by(candidate: CandidateProcess) -> bool:
    """True if it is not the active controller and has none of its metrics."""
    return not candidate.is_active and candidate.metric("activebrokercount") == 0


async def test_a_former_controller_leaves_no_work_and_no_connections_behind(
    stack: AsyncExitStack, zookeeper_connect: str
) -> None:
    for node in (1, 2):
        await stack.enter_async_context(ScriptedBroker(zookeeper_connect, node))
    first = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 3))
    await eventually(lambda: first.is_active and first.metric("activebrokercount") == 2)
    second = await stack.enter_async_context(CandidateProcess(zookeeper_connect, 4))
    await eventually(lambda: second.candidate._known_controller() is not None)
    one_in_office = tasks_of_controllers()
    assert one_in_office["BrokerChannel._run"] + one_in_office["not_broken_off"] > 0
    for ending, following in ((first, second), (second, first), (first, second)):
        zookeeper = ending.candidate._zookeeper
        assert zookeeper is not None
        await expire_session(zookeeper, zookeeper_connect)
        await eventually(partial(governs, following))
        await eventually(partial(stands_by, ending))
        await eventually(lambda: tasks_of_controllers() == one_in_office)
