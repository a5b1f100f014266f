"""Clients of the control services that several programs share: the active controller of a site, and
brokers by address.

`ControllerClient` asks any candidate, follows the trailing metadata of one that is not active, and
goes round the seeds when one does not answer; brokers (which look the active one up in ZooKeeper),
mirrors and tools use it. `BrokerControlChannels` keeps one channel per broker address. Neither
interprets an answer: Kafka error codes inside replies are the caller's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from kio.schema.errors import ErrorCode

from runtime.chance import new_uuid
from runtime.grpc_server import Dial, open_channel
from runtime.retries import jittered_backoff
from runtime.supervision import was_asked_to_end
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch, ControlReply
from wire.control.broker_pb2_grpc import BrokerControlStub
from wire.control.controller_pb2_grpc import ControllerStub

ACTIVE_CONTROLLER_KEY = "active-controller"
"""Trailing metadata of a candidate that is not active: the address of the active one, empty if the
candidate does not know it.
"""

ATTEMPT_TIMEOUT_S_MIN = 1.0
CONNECT_WITHIN_MS = 2_000
"""How long a candidate, which is in the same site, may take to accept a connection."""
CLIENT_TIMEOUT_MS_MIN = 1_000
CLIENT_TIMEOUT_MS_MAX = 300_000
"""Bounds of what a client's own timeout allows: below, no other controller could be found; above, a
request would be forgotten here.
"""
ANSWERED_WITHIN_MS = 500.0
"""Longer than the controller waits for a client: its answer with the cause has to come back yet."""
REPEATED_WITHIN_MS = 3000.0
"""The time (ms) after which a repeatable call looks up the controller again."""
_FOLLOWED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED)


Seeds = Callable[[], Sequence[str] | Awaitable[Sequence[str]]]
"""Returns the addresses of the candidates; the client asks each time it knows no active controller.
"""


class ControllerUnavailable(Exception):
    """No active controller answered in time; names the last one that was asked, and its answer.
    `code` is the error for the client: REQUEST_TIMED_OUT if a controller may still execute the
    request, UNSUPPORTED_VERSION if its version does not have the call, else NOT_CONTROLLER.
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.not_controller) -> None:
        super().__init__(message)
        self.code = code


class _AskAnother(Exception):
    """An attempt failed in a way that another candidate, or a later attempt, may not."""

    def __init__(self, problem: str, code: ErrorCode = ErrorCode.not_controller) -> None:
        super().__init__(problem)
        self.code = code


class _Line:
    """A channel and the calls that are under way on it."""

    def __init__(self, address: str, dial: Dial) -> None:
        # The next candidate waits while this one connects: a host that is gone does not refuse.
        self.channel = dial(address, connect_within_ms=CONNECT_WITHIN_MS)
        self.calls = 0


class ControllerClient:
    """Finds the active controller among the addresses that `seeds` names now, and stays with it
    while it answers.

    After a failed call a channel accepts no new calls and is closed when its running calls have
    ended. The server may still execute these: a caller that repeated one would then get, for
    example, that its topic exists already.
    """

    def __init__(self, seeds: Seeds, *, timeout_ms: float = 10_000, dial: Dial = open_channel) -> None:
        self._seeds = seeds
        self._dial = dial
        self._timeout_ms = timeout_ms
        self._address = ""
        self._turn = 0
        self._lines: dict[str, _Line] = {}
        self._given_up: set[_Line] = set()

    async def create_topics(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsReply:
        """Create topics. Each gets its id here, by which the controller recognises a repeated
        attempt.
        """
        named = pb.CreateTopicsRequest()
        named.CopyFrom(request)
        for topic in named.topics:
            topic.topic_id = topic.topic_id or new_topic_id()
        reply: pb.CreateTopicsReply = await self._call("CreateTopics", named, self._allowed_ms(request.timeout_ms))
        return reply

    async def delete_topics(self, request: pb.DeleteTopicsRequest) -> pb.DeleteTopicsReply:
        """Delete topics."""
        reply: pb.DeleteTopicsReply = await self._call("DeleteTopics", request, self._allowed_ms(request.timeout_ms))
        return reply

    async def create_partitions(self, request: pb.CreatePartitionsRequest) -> pb.CreatePartitionsReply:
        """Grow topics."""
        allowed_ms = self._allowed_ms(request.timeout_ms)
        reply: pb.CreatePartitionsReply = await self._call("CreatePartitions", request, allowed_ms)
        return reply

    async def alter_topic_configs(self, request: pb.AlterTopicConfigsRequest) -> pb.AlterTopicConfigsReply:
        """Change topic configs."""
        method = "AlterTopicConfigLists" if any(change.lists for change in request.changes) else "AlterTopicConfigs"
        reply: pb.AlterTopicConfigsReply = await self._call(method, request)
        return reply

    async def alter_client_quotas(self, request: pb.AlterClientQuotasRequest) -> pb.AlterClientQuotasReply:
        """Change client quotas."""
        reply: pb.AlterClientQuotasReply = await self._call("AlterClientQuotas", request)
        return reply

    async def alter_scram_users(self, request: pb.AlterScramUsersRequest) -> pb.AlterScramUsersReply:
        """Change SCRAM credentials of users."""
        reply: pb.AlterScramUsersReply = await self._call("AlterScramUsers", request)
        return reply

    async def alter_delegation_tokens(self, request: pb.AlterDelegationTokensRequest) -> pb.AlterDelegationTokensReply:
        """Make, renew and remove delegation tokens."""
        reply: pb.AlterDelegationTokensReply = await self._call("AlterDelegationTokens", request)
        return reply

    async def alter_acls(self, request: pb.AlterAclsRequest) -> pb.AlterAclsReply:
        """Add and remove ACLs."""
        reply: pb.AlterAclsReply = await self._call("AlterAcls", request)
        return reply

    async def alter_group_configs(self, request: pb.AlterGroupConfigsRequest) -> pb.AlterGroupConfigsReply:
        """Change configs of groups."""
        reply: pb.AlterGroupConfigsReply = await self._call("AlterGroupConfigs", request)
        return reply

    async def allocate_producer_ids(self, request: pb.AllocateProducerIdsRequest) -> pb.AllocateProducerIdsReply:
        """A block of producer ids; a repeated attempt may leave a block unused."""
        reply: pb.AllocateProducerIdsReply = await self._call("AllocateProducerIds", request)
        return reply

    async def alter_partitions(self, request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsReply:
        """Propose in-sync replicas. After ControllerUnavailable it is unknown whether they are in
        force.
        """
        reply: pb.AlterPartitionsReply = await self._call("AlterPartitions", request, REPEATED_WITHIN_MS)
        return reply

    async def controlled_shutdown(self, request: pb.ControlledShutdownRequest) -> pb.ControlledShutdownReply:
        """Have a broker's leaderships moved."""
        reply: pb.ControlledShutdownReply = await self._call("ControlledShutdown", request)
        return reply

    async def report_offline_replicas(self, request: pb.ReportOfflineReplicasRequest) -> pb.ReportOfflineReplicasReply:
        """Report which of a broker's replicas have lost their log directory."""
        reply: pb.ReportOfflineReplicasReply = await self._call("ReportOfflineReplicas", request, REPEATED_WITHIN_MS)
        return reply

    async def elect_leaders(self, request: pb.ElectLeadersRequest) -> pb.PartitionResultsReply:
        """Elect preferred leaders, or unclean ones."""
        reply: pb.PartitionResultsReply = await self._call(
            "ElectLeaders", request, self._allowed_ms(request.timeout_ms)
        )
        return reply

    async def alter_reassignments(self, request: pb.AlterReassignmentsRequest) -> pb.PartitionResultsReply:
        """Begin or cancel reassignments."""
        allowed_ms = self._allowed_ms(request.timeout_ms)
        reply: pb.PartitionResultsReply = await self._call("AlterReassignments", request, allowed_ms)
        return reply

    async def list_reassignments(self, request: pb.ListReassignmentsRequest) -> pb.ListReassignmentsReply:
        """Reassignments under way."""
        reply: pb.ListReassignmentsReply = await self._call("ListReassignments", request)
        return reply

    async def unregister_broker(self, request: pb.UnregisterBrokerRequest) -> pb.UnregisterBrokerReply:
        """Unregister a broker that will not return."""
        allowed_ms = self._allowed_ms(request.timeout_ms)
        reply: pb.UnregisterBrokerReply = await self._call("UnregisterBroker", request, allowed_ms)
        return reply

    async def describe_controller(self) -> pb.DescribeControllerReply:
        """The active controller's view of itself and its brokers."""
        reply: pb.DescribeControllerReply = await self._call("DescribeController", pb.DescribeControllerRequest())
        return reply

    async def close(self) -> None:
        """Close every channel; calls under way end with ControllerUnavailable."""
        lines = [*self._lines.values(), *self._given_up]
        self._lines = {}
        self._given_up = set()
        for line in lines:
            await line.channel.close(None)

    def _allowed_ms(self, timeout_ms: int) -> float:
        """The time (ms) that a client's request with `timeout_ms` (0: not given) may take,
        including the way back of the answer.
        """
        if timeout_ms <= 0:
            return self._timeout_ms
        return min(max(timeout_ms, CLIENT_TIMEOUT_MS_MIN), CLIENT_TIMEOUT_MS_MAX) + ANSWERED_WITHIN_MS

    async def _call(self, method: str, request: Any, timeout_ms: float = 0.0) -> Any:
        deadline_s = asyncio.get_running_loop().time() + (timeout_ms or self._timeout_ms) / 1000
        policy = jittered_backoff(
            retry_on=_AskAnother, initial_ms=20, max_ms=500, budget_ms=timeout_ms or self._timeout_ms
        )
        try:
            async for attempt in policy:
                with attempt:
                    return await self._attempt(method, request, deadline_s)
        except _AskAnother as error:
            raise ControllerUnavailable(str(error), error.code) from error
        raise ControllerUnavailable("no attempt was made")

    async def _attempt(self, method: str, request: Any, deadline_s: float) -> Any:
        address = self._address or await self._next_seed()
        timeout_s = max(deadline_s - asyncio.get_running_loop().time(), ATTEMPT_TIMEOUT_S_MIN)
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line(address, self._dial)
        line.calls += 1
        stub: Any = ControllerStub(line.channel)  # type: ignore[no-untyped-call]
        try:
            reply = await getattr(stub, method)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            is_active = bool(self._address)
            self._address = _redirected_address(error)
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._give_up(address, line)
            problem = f"controller candidate {address}: {error.code().name}: {error.details()}"
            if error.code() in _FOLLOWED:
                raise _AskAnother(problem) from error
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ControllerUnavailable(
                    f"the controller has not answered in time, and may still execute the request: {problem}",
                    ErrorCode.request_timed_out,
                ) from error
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                problem = (
                    f"the controller candidate {address} runs an earlier version, which has no call {method}: "
                    "update all candidates first"
                )
                if not is_active:
                    raise _AskAnother(problem, ErrorCode.unsupported_version) from error
                raise ControllerUnavailable(problem, ErrorCode.unsupported_version) from error
            raise ControllerUnavailable(problem) from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            if isinstance(error, asyncio.CancelledError) and was_asked_to_end():
                raise
            # not the caller was cancelled: the channel was closed
            raise ControllerUnavailable(f"controller candidate {address}: this client was closed") from error
        finally:
            line.calls -= 1
            await self._close_when_idle(line)
        if isinstance(reply, pb.DescribeControllerReply) and not reply.is_active:
            raise _AskAnother(f"controller candidate {address} is not active")
        self._address = address
        return reply

    async def _next_seed(self) -> str:
        found = self._seeds()
        seeds = [seed for seed in (found if isinstance(found, Sequence) else await found) if seed]
        if not seeds:
            raise _AskAnother("no controller candidate is known")
        self._turn += 1
        return seeds[self._turn % len(seeds)]

    def _give_up(self, address: str, line: _Line) -> None:
        """A channel that failed once waits ever longer before it connects again; a new one does
        not.
        """
        if self._lines.get(address) is line:
            del self._lines[address]
            self._given_up.add(line)

    async def _close_when_idle(self, line: _Line) -> None:
        if line in self._given_up and not line.calls:
            self._given_up.discard(line)
            await line.channel.close(None)


def new_topic_id() -> bytes:
    """A random topic id whose text form does not begin with a dash, which command lines would take
    for an option.
    """
    while True:
        topic_id = new_uuid().bytes
        if topic_id[0] >> 2 != 0b111110:
            return topic_id


def _redirected_address(error: grpc.aio.AioRpcError) -> str:
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key == ACTIVE_CONTROLLER_KEY:
            return value.decode() if isinstance(value, bytes) else str(value)
    return ""


class BrokerControlChannels:
    """Channels to brokers' control service, one per address, opened when first needed."""

    def __init__(self, dial: Dial = open_channel) -> None:
        self._dial = dial
        self._channels: dict[str, grpc.aio.Channel] = {}

    def stub(self, address: str) -> BrokerControlStub:
        """The service at `address`."""
        if address not in self._channels:
            self._channels[address] = self._dial(address)
        return BrokerControlStub(self._channels[address])  # type: ignore[no-untyped-call]

    async def apply(self, address: str, batch: ControlBatch, *, timeout_s: float) -> ControlReply:
        """Send one batch; AioRpcError as gRPC raises it."""
        stub: Any = self.stub(address)
        reply: ControlReply = await stub.Apply(batch, timeout=timeout_s)
        return reply

    async def close(self) -> None:
        """Close every channel."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close(None)
