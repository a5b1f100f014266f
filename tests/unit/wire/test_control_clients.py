"""The client of a site's controller, with candidates that are silent."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from kio.schema.errors import ErrorCode

from runtime.grpc_server import open_channel
from tests.support.processes.ports import LOOPBACK
from wire.control import clients
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.control.controller_pb2_grpc import ControllerServicer, add_ControllerServicer_to_server


class Candidate(ControllerServicer):
    """A candidate that answers every proposal, or none."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._server = grpc.aio.server()
        add_ControllerServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.address = f"{LOOPBACK}:{self._server.add_insecure_port(f'{LOOPBACK}:0')}"

    async def AlterPartitions(
        self,
        request: pb.AlterPartitionsRequest,
        context: Any,
    ) -> pb.AlterPartitionsReply:
        """Answers as the active controller, if at all."""
        if self._is_silent:
            await asyncio.Event().wait()
        return pb.AlterPartitionsReply()

    async def start(self) -> None:
        """Starts to serve."""
        await self._server.start()

    async def stop(self) -> None:
        """Stops the server."""
        await self._server.stop(None)


async def test_after_an_unanswered_proposal_the_active_controller_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "REPEATED_WITHIN_MS", 100.0)
    vanished, successor = Candidate(is_silent=True), Candidate(is_silent=False)
    await vanished.start()
    await successor.start()
    known = [vanished.address]
    client = ControllerClient(lambda: known)
    try:
        with pytest.raises(ControllerUnavailable, match="may still execute") as late:
            await client.alter_partitions(pb.AlterPartitionsRequest())
        assert late.value.code is ErrorCode.request_timed_out
        known[:] = [successor.address]
        monkeypatch.setattr(clients, "REPEATED_WITHIN_MS", 60_000.0)
        assert await client.alter_partitions(pb.AlterPartitionsRequest()) == pb.AlterPartitionsReply()
    finally:
        await client.close()
        await successor.stop()
        await vanished.stop()


class Working(Candidate):
    """Creates a topic, which takes until the test releases it; to proposals it answers like a
    server that shuts down.
    """

    def __init__(self) -> None:
        super().__init__(is_silent=False)
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.made = 0

    async def CreateTopics(
        self,
        request: pb.CreateTopicsRequest,
        context: Any,
    ) -> pb.CreateTopicsReply:
        """Creates the topic; a second request finds it there."""
        self.made += 1
        self.is_asked.set()
        await self.may_answer.wait()
        error = ErrorCode.none if self.made == 1 else ErrorCode.topic_already_exists
        return pb.CreateTopicsReply(results=[pb.TopicResult(name="orders", error_code=error)])

    async def AlterPartitions(
        self,
        request: pb.AlterPartitionsRequest,
        context: Any,
    ) -> pb.AlterPartitionsReply:
        """Refuses proposals until the test releases the topic."""
        if not self.may_answer.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "going")
        return pb.AlterPartitionsReply()


def is_closed(channel: grpc.aio.Channel) -> bool:
    return channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_a_call_that_gives_its_channel_up_ends_no_other_that_is_under_way_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels: list[grpc.aio.Channel] = []

    def recorded(address: str, **options: int) -> grpc.aio.Channel:
        channels.append(open_channel(address, **options))
        return channels[-1]

    monkeypatch.setattr(clients, "REPEATED_WITHIN_MS", 2_000.0)  # time for a second attempt
    working = Working()
    await working.start()
    client = ControllerClient(lambda: [working.address], dial=recorded)
    try:
        creation = asyncio.create_task(client.create_topics(pb.CreateTopicsRequest()))
        await working.is_asked.wait()
        with pytest.raises(ControllerUnavailable, match="going") as going:
            await client.alter_partitions(pb.AlterPartitionsRequest())
        assert going.value.code is ErrorCode.not_controller
        assert len(channels) > 1
        assert not is_closed(channels[0])
        assert all(is_closed(channel) for channel in channels[1:])
        working.may_answer.set()
        assert [result.error_code for result in (await creation).results] == [ErrorCode.none]
        assert working.made == 1
        assert is_closed(channels[0])
        opened = len(channels)
        for _ in range(2):
            await client.alter_partitions(pb.AlterPartitionsRequest())
        assert len(channels) == opened + 1
        assert not is_closed(channels[-1])
    finally:
        working.may_answer.set()
        await client.close()
        await working.stop()
    assert all(is_closed(channel) for channel in channels)


async def test_a_call_fails_when_its_client_is_closed_and_does_not_end_its_task() -> None:
    working = Working()
    await working.start()
    client = ControllerClient(lambda: [working.address])
    creation = asyncio.create_task(client.create_topics(pb.CreateTopicsRequest()))
    await working.is_asked.wait()
    await client.close()
    with pytest.raises(ControllerUnavailable, match="closed"):
        await creation
    assert not creation.cancelled()
    working.may_answer.set()
    await working.stop()


async def test_a_caller_that_is_cancelled_is() -> None:
    working = Working()
    await working.start()
    client = ControllerClient(lambda: [working.address])
    try:
        creation = asyncio.create_task(client.create_topics(pb.CreateTopicsRequest()))
        await working.is_asked.wait()
        creation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creation
    finally:
        working.may_answer.set()
        await client.close()
        await working.stop()


class Deposed(Candidate):
    """Loses its office once, after it has stored the topic and before it answers."""

    def __init__(self) -> None:
        super().__init__(is_silent=False)
        self.ids: list[bytes] = []

    async def CreateTopics(
        self,
        request: pb.CreateTopicsRequest,
        context: Any,
    ) -> pb.CreateTopicsReply:
        """As the service answers."""
        self.ids.append(request.topics[0].topic_id)
        if len(self.ids) == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "whether the request took effect is unknown")
        return pb.CreateTopicsReply(results=[pb.TopicResult(name="orders")])


async def test_a_repeated_creation_has_the_same_topic_id() -> None:
    deposed = Deposed()
    await deposed.start()
    client = ControllerClient(lambda: [deposed.address])
    try:
        await client.create_topics(pb.CreateTopicsRequest(topics=[pb.NewTopic(name="orders", partition_count=1)]))
    finally:
        await client.close()
        await deposed.stop()
    first, second = deposed.ids
    assert first == second
    assert len(first) == 16


class Older(ControllerServicer):
    """The active controller of a version without AlterTopicConfigLists; it would ignore lists."""

    async def DescribeController(self, request: Any, context: Any) -> pb.DescribeControllerReply:
        return pb.DescribeControllerReply(is_active=True)

    async def AlterTopicConfigs(self, request: Any, context: Any) -> pb.AlterTopicConfigsReply:
        return pb.AlterTopicConfigsReply(results=[pb.TopicResult(name=one.name) for one in request.changes])


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_change_of_a_list_through_a_controller_of_an_earlier_version_fails(is_known: bool) -> None:
    server = grpc.aio.server()
    add_ControllerServicer_to_server(Older(), server)  # type: ignore[no-untyped-call]
    address = f"{LOOPBACK}:{server.add_insecure_port(f'{LOOPBACK}:0')}"
    await server.start()
    client = ControllerClient(lambda: [address], timeout_ms=300)
    one = pb.TopicConfigChange(name="orders", lists=[pb.ListChange(name="cleanup.policy", items=["compact"])])
    try:
        if is_known:
            assert (await client.describe_controller()).is_active
        with pytest.raises(ControllerUnavailable, match="update all candidates first") as refused:
            await client.alter_topic_configs(pb.AlterTopicConfigsRequest(changes=[one]))
        assert refused.value.code is ErrorCode.unsupported_version
        whole = pb.TopicConfigChange(name="orders", set={"cleanup.policy": "compact"})
        reply = await client.alter_topic_configs(pb.AlterTopicConfigsRequest(changes=[whole]))
        assert [result.error_code for result in reply.results] == [0]
    finally:
        await client.close()
        await server.stop(None)
