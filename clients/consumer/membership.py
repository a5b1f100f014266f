"""A member of a group of the classic protocol: joins, is given its part, and stays by heartbeats
until the group changes.

It keeps only what must outlive a generation (member id, coordinator). The caller decides the
subscription, how a leader assigns partitions, and what an assignment means. Used by the poll-loop
consumer and by the daemons that share a link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from runtime.clock import Clock
from wire.client.client_errors import BrokerError, KafkaClientError
from wire.client.connection import Connection
from wire.client.raw_client import KafkaClient
from wire.client.requests import group_membership
from wire.client.requests.group_membership import NO_MEMBER, Joined

LEAVE_TIMEOUT_S: Final = 2.0

NO_MEMBER_ANY_MORE: Final = frozenset(
    {ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id}
)

NEVER_A_MEMBER: Final = frozenset(
    {
        ErrorCode.group_authorization_failed,
        ErrorCode.inconsistent_group_protocol,
        ErrorCode.invalid_session_timeout,
        ErrorCode.invalid_group_id,
        ErrorCode.fenced_instance_id,
    }
)
"""Trying again does not help."""

Assign = Callable[[Joined], Awaitable[Mapping[str, bytes]]]
"""Computes each member's assignment on the leader."""


class GroupOptions(Struct, frozen=True, kw_only=True):
    """The facts about itself that a member sends to the coordinator."""

    group_id: str
    protocol_type: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: float
    group_instance_id: str | None = None


class Membership(Struct, frozen=True, kw_only=True):
    """One generation and the member's assignment; `asked_at_ms` (monotonic) is when the member sent
    the last request that the coordinator has answered.
    """

    joined: Joined
    assignment: bytes
    asked_at_ms: float


class GroupMember:
    """One member. One task calls `join` and `stay` alternately; errors of the coordinator are
    raised.
    """

    def __init__(self, client: KafkaClient, options: GroupOptions, clock: Clock) -> None:
        self._client = client
        self.options = options
        self._clock = clock
        self._member_id = NO_MEMBER
        self._connection: Connection | None = None

    @property
    def member_id(self) -> str:
        """The member id from the coordinator; "" before the first generation and after an
        expulsion.
        """
        return self._member_id

    async def find_coordinator(self) -> Connection:
        """Look the coordinator up anew and connect to it."""
        self._client.forget_coordinator(self.options.group_id)
        node_id = await self._client.coordinator(self.options.group_id)
        self._connection = await self._client.connection(node_id)
        return self._connection

    async def join(self, protocols: Sequence[tuple[str, bytes]], assign: Assign) -> Membership:
        """Join the next generation; returns when all members have joined. Raises KafkaClientError;
        after an expulsion the member id is dropped.
        """
        connection = self._connection or await self.find_coordinator()
        try:
            joined = await group_membership.join(
                connection,
                self.options.group_id,
                member_id=self._member_id,
                group_instance_id=self.options.group_instance_id,
                protocol_type=self.options.protocol_type,
                protocols=protocols,
                session_timeout_ms=self.options.session_timeout_ms,
                rebalance_timeout_ms=self.options.rebalance_timeout_ms,
            )
            self._member_id = joined.member_id
            asked_at_ms = self._clock.monotonic_ms()
            assignment = await group_membership.sync(
                connection,
                self.options.group_id,
                joined,
                protocol_type=self.options.protocol_type,
                group_instance_id=self.options.group_instance_id,
                assignments=await assign(joined) if joined.leader == joined.member_id else {},
                timeout_ms=self.options.session_timeout_ms,
            )
        except KafkaClientError as error:
            self._note(error)
            raise
        return Membership(joined=joined, assignment=assignment, asked_at_ms=asked_at_ms)

    async def stay(self, membership: Membership, answered: Callable[[float], None]) -> None:
        """Send heartbeats until the group wants to rebalance. `answered` is called for each
        answered heartbeat with the time (monotonic ms) at which it was sent.
        """
        connection = self._connection or await self.find_coordinator()
        try:
            while True:
                await asyncio.sleep(self.options.heartbeat_interval_ms / 1000)
                asked_at_ms = self._clock.monotonic_ms()
                try:
                    await group_membership.heartbeat(
                        connection,
                        self.options.group_id,
                        membership.joined,
                        group_instance_id=self.options.group_instance_id,
                    )
                except BrokerError as error:
                    if error.code is not ErrorCode.rebalance_in_progress:
                        raise
                    answered(asked_at_ms)
                    return
                answered(asked_at_ms)
        except KafkaClientError as error:
            self._note(error)
            raise

    async def leave(self) -> str:
        """Leave the group so that other members take over at once; returns "" or the reason why it
        failed. A static member stays in the group, because it is expected to return.
        """
        if self._member_id == NO_MEMBER or self.options.group_instance_id is not None:
            return ""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                connection = await self.find_coordinator()
                await group_membership.leave(connection, self.options.group_id, self._member_id)
        except (TimeoutError, KafkaClientError) as error:
            return str(error) or "timed out"
        self._member_id = NO_MEMBER
        return ""

    def _note(self, error: KafkaClientError) -> None:
        """The coordinator is looked up again after any error; some errors also mean that this
        member is forgotten.
        """
        self._connection = None
        if isinstance(error, BrokerError) and error.code in NO_MEMBER_ANY_MORE:
            self._member_id = NO_MEMBER
