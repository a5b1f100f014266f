"""Asks the active controller of the site, whoever that is now; admin handlers forward their requests through it.

The address comes from `find_address` (ZooKeeper's `/controller`, read by `membership.py`) and from the trailing metadata of a
candidate that is not active. A call that reaches no active controller within its budget raises ControllerUnavailable, which
handlers turn into a retriable Kafka error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from tenacity import AsyncRetrying

from runtime.grpc_server import open_channel
from runtime.retries import jittered_backoff
from wire.control import controller_pb2 as pb
from wire.control.controller_pb2_grpc import ControllerStub

CALL_TIMEOUT_MS = 10_000
RETRY_BUDGET_MS = 8_000
ACTIVE_CONTROLLER_KEY = "active-controller"
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)


class ControllerUnavailable(Exception):
    """No active controller answered."""


class _NotThere(Exception):
    """One attempt failed in a way that another may not."""


class ControllerClient:
    """One channel to the active controller, replaced when it moves."""

    def __init__(self, find_address: Callable[[], Awaitable[str]]) -> None:
        self._find_address = find_address
        self._address = ""
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None

    async def create_topics(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsReply:
        """Forward; ControllerUnavailable."""
        reply: pb.CreateTopicsReply = await self._call(
            "CreateTopics", request, max(request.timeout_ms, CALL_TIMEOUT_MS)
        )
        return reply

    async def delete_topics(self, request: pb.DeleteTopicsRequest) -> pb.DeleteTopicsReply:
        """Forward; ControllerUnavailable."""
        reply: pb.DeleteTopicsReply = await self._call("DeleteTopics", request)
        return reply

    async def create_partitions(self, request: pb.CreatePartitionsRequest) -> pb.CreatePartitionsReply:
        """Forward; ControllerUnavailable."""
        reply: pb.CreatePartitionsReply = await self._call("CreatePartitions", request)
        return reply

    async def alter_topic_configs(self, request: pb.AlterTopicConfigsRequest) -> pb.AlterTopicConfigsReply:
        """Forward; ControllerUnavailable."""
        reply: pb.AlterTopicConfigsReply = await self._call("AlterTopicConfigs", request)
        return reply

    async def allocate_producer_ids(self, request: pb.AllocateProducerIdsRequest) -> pb.AllocateProducerIdsReply:
        """Forward; ControllerUnavailable."""
        reply: pb.AllocateProducerIdsReply = await self._call("AllocateProducerIds", request)
        return reply

    async def alter_partitions(self, request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsReply:
        """Propose in-sync replicas; ControllerUnavailable, and then nobody knows whether they are in force."""
        reply: pb.AlterPartitionsReply = await self._call("AlterPartitions", request)
        return reply

    async def controlled_shutdown(self, request: pb.ControlledShutdownRequest) -> pb.ControlledShutdownReply:
        """Have this broker's leaderships moved; ControllerUnavailable."""
        reply: pb.ControlledShutdownReply = await self._call("ControlledShutdown", request)
        return reply

    async def elect_leaders(self, request: pb.ElectLeadersRequest) -> pb.PartitionResultsReply:
        """Forward; ControllerUnavailable."""
        reply: pb.PartitionResultsReply = await self._call("ElectLeaders", request)
        return reply

    async def alter_reassignments(self, request: pb.AlterReassignmentsRequest) -> pb.PartitionResultsReply:
        """Forward; ControllerUnavailable."""
        reply: pb.PartitionResultsReply = await self._call("AlterReassignments", request)
        return reply

    async def list_reassignments(self, request: pb.ListReassignmentsRequest) -> pb.ListReassignmentsReply:
        """Forward; ControllerUnavailable."""
        reply: pb.ListReassignmentsReply = await self._call("ListReassignments", request)
        return reply

    async def close(self) -> None:
        """Close the channel."""
        await self._forget()

    async def _call(self, method: str, request: Any, timeout_ms: int = CALL_TIMEOUT_MS) -> Any:
        policy: AsyncRetrying = jittered_backoff(
            retry_on=_NotThere, initial_ms=20, max_ms=500, budget_ms=RETRY_BUDGET_MS
        )
        try:
            async for attempt in policy:
                with attempt:
                    return await self._try(method, request, timeout_ms)
        except _NotThere as error:
            raise ControllerUnavailable(str(error)) from error
        raise ControllerUnavailable("no attempt was made")

    async def _try(self, method: str, request: Any, timeout_ms: int) -> Any:
        stub = await self._connected()
        try:
            return await getattr(stub, method)(request, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            address = self._address
            await self._forget()
            if error.code() not in _RETRIED:
                raise ControllerUnavailable(
                    f"controller at {address}: {error.code().name}: {error.details()}"
                ) from error
            self._address = _redirected(error)
            raise _NotThere(f"controller at {address}: {error.code().name}: {error.details()}") from error

    async def _connected(self) -> Any:
        if self._stub is None:
            address = self._address or await self._find_address()
            if not address:
                raise _NotThere("no controller is elected")
            self._address = address
            self._channel = open_channel(address)
            self._stub = ControllerStub(self._channel)  # type: ignore[no-untyped-call]
        return self._stub

    async def _forget(self) -> None:
        channel, self._channel, self._stub, self._address = self._channel, None, None, ""
        if channel is not None:
            await channel.close()


def _redirected(error: grpc.aio.AioRpcError) -> str:
    for key, value in error.trailing_metadata() or ():
        if key == ACTIVE_CONTROLLER_KEY:
            return value.decode() if isinstance(value, bytes) else str(value)
    return ""
