"""The client of a site's controller, with candidates that are silent."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tests.support.ports import LOOPBACK
from wire.control import clients
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.control.controller_pb2_grpc import ControllerServicer, add_ControllerServicer_to_server


class Candidate(ControllerServicer):
    """Answers proposals, or never does."""

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
        """As the active controller."""
        if self._is_silent:
            await asyncio.Event().wait()
        return pb.AlterPartitionsReply()

    async def start(self) -> None:
        """Serve."""
        await self._server.start()

    async def stop(self) -> None:
        """Serve no more."""
        await self._server.stop(None)


async def test_after_a_proposal_that_nobody_answered_the_active_controller_is_looked_up_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "REPEATED_WITHIN_MS", 100.0)
    vanished, successor = Candidate(is_silent=True), Candidate(is_silent=False)
    await vanished.start()
    await successor.start()
    known = [vanished.address]
    client = ControllerClient(lambda: known)
    try:
        with pytest.raises(ControllerUnavailable):
            await client.alter_partitions(pb.AlterPartitionsRequest())
        known[:] = [successor.address]
        assert await client.alter_partitions(pb.AlterPartitionsRequest()) == pb.AlterPartitionsReply()
    finally:
        await client.close()
        await successor.stop()
        await vanished.stop()


class Leaving(Candidate):
    """A silent candidate that is about to go: it takes no topics, and whoever asks it for some hears of its successor."""

    def __init__(self) -> None:
        super().__init__(is_silent=True)
        self.is_asked = asyncio.Event()
        self.known = [self.address]
        self.successor = ""

    async def AlterPartitions(
        self,
        request: pb.AlterPartitionsRequest,
        context: Any,
    ) -> pb.AlterPartitionsReply:
        """Never answered."""
        self.is_asked.set()
        return await super().AlterPartitions(request, context)

    async def CreateTopics(
        self,
        request: pb.CreateTopicsRequest,
        context: Any,
    ) -> pb.CreateTopicsReply:
        """As a server does that shuts down."""
        self.known[:] = [self.successor]
        await context.abort(grpc.StatusCode.UNAVAILABLE, "going")
        return pb.CreateTopicsReply()


async def test_a_call_whose_channel_another_one_gives_up_asks_again_and_does_not_end_its_task() -> None:
    leaving, successor = Leaving(), Candidate(is_silent=False)
    await leaving.start()
    await successor.start()
    leaving.successor = successor.address
    client = ControllerClient(lambda: leaving.known)
    try:
        proposal = asyncio.create_task(client.alter_partitions(pb.AlterPartitionsRequest()))
        await leaving.is_asked.wait()
        with pytest.raises(ControllerUnavailable):  # the successor of this test takes no topics either
            await client.create_topics(pb.CreateTopicsRequest())
        assert await proposal == pb.AlterPartitionsReply()
    finally:
        await client.close()
        await leaving.stop()
        await successor.stop()


async def test_a_caller_that_is_cancelled_is() -> None:
    leaving = Leaving()
    await leaving.start()
    client = ControllerClient(lambda: leaving.known)
    try:
        proposal = asyncio.create_task(client.alter_partitions(pb.AlterPartitionsRequest()))
        await leaving.is_asked.wait()
        proposal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await proposal
    finally:
        await client.close()
        await leaving.stop()
