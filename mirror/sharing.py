"""Several daemons of one link: each mirrors the partitions of its slots, which a group at the target gives out (`core/sharing.py`).

For links whose daemons reach no common ZooKeeper (`zookeeper_sharing.py`). Each answered heartbeat confirms what is owned.
"""

from __future__ import annotations

import asyncio

from kio.schema.errors import ErrorCode

from mirror.core.sharing import Strategy, decode_slots, encode_slots, share_slots
from mirror.ownership import Ownership
from runtime.clock import Clock
from runtime.logs import get_logger
from wire import group_membership
from wire.client import KafkaClient
from wire.client_errors import BrokerError, KafkaClientError
from wire.connection import Connection
from wire.group_membership import NO_MEMBER, Joined
from wire.links import MIRROR_GROUP_PREFIX

PROTOCOL_TYPE = "antipode-mirror"
PROTOCOL = "slots"
HEARTBEATS_A_SESSION = 6
REBALANCE_TIMEOUT_MS = 10_000
RETRY_S = 0.5
LEAVE_TIMEOUT_S = 2.0

_log = get_logger("mirror.sharing")


class Sharing:
    """One daemon's place in the group of its link. `run` is a worker of the mirror, `close` its last word."""

    def __init__(
        self, client: KafkaClient, link: str, *, strategy: Strategy, session_timeout_ms: int, clock: Clock
    ) -> None:
        self._client = client
        self._strategy = strategy
        self._group = MIRROR_GROUP_PREFIX + link
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock
        self._member_id = NO_MEMBER
        self.ownership = Ownership(session_timeout_ms=session_timeout_ms, clock=clock)

    async def run(self) -> None:
        """Be a member until cancelled."""
        told = ""
        while True:
            try:
                await self._be_a_member()
            except KafkaClientError as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning("not a member of the link's group for the moment", reason=told, group=self._group)
                if isinstance(error, BrokerError) and error.code in _NO_MEMBER_ANY_MORE:
                    self._member_id = NO_MEMBER
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Let the others have the slots at once."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                if self._member_id != NO_MEMBER:
                    connection = await self._coordinator()
                    await group_membership.leave(connection, self._group, self._member_id)
        except (TimeoutError, KafkaClientError) as error:
            _log.info("the group was not left; the others wait for the session's end", reason=str(error) or "timed out")
        await self._client.close()

    async def _be_a_member(self) -> None:
        """One coordinator's time: generations one after the other."""
        connection = await self._coordinator()
        while True:
            asked_at_ms = self._clock.monotonic_ms()
            joined = await group_membership.join(
                connection,
                self._group,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol=PROTOCOL,
                metadata=encode_slots(self.ownership.slots),
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            )
            self._member_id = joined.member_id
            asked_at_ms = self._clock.monotonic_ms()
            assignment = await group_membership.sync(
                connection,
                self._group,
                joined,
                protocol_type=PROTOCOL_TYPE,
                protocol=PROTOCOL,
                assignments=self._assignments(joined),
                timeout_ms=self._session_timeout_ms,
            )
            await self.ownership.take(
                decode_slots(assignment),
                asked_at_ms=asked_at_ms,
                group=self._group,
                generation=joined.generation_id,
            )
            await self._heartbeat_until_rebalance(connection, joined)

    def _assignments(self, joined: Joined) -> dict[str, bytes]:
        if joined.leader != joined.member_id:
            return {}
        held = {member: decode_slots(metadata) for member, metadata in joined.members.items()}
        shares = share_slots(joined.members.keys(), held, self._strategy)
        return {member: encode_slots(slots) for member, slots in shares.items()}

    async def _heartbeat_until_rebalance(self, connection: Connection, joined: Joined) -> None:
        while True:
            await asyncio.sleep(self._session_timeout_ms / HEARTBEATS_A_SESSION / 1000)
            asked_at_ms = self._clock.monotonic_ms()
            try:
                await group_membership.heartbeat(connection, self._group, joined)
            except BrokerError as error:
                if error.code is not ErrorCode.rebalance_in_progress:
                    raise
                self.ownership.confirm(asked_at_ms)
                return
            self.ownership.confirm(asked_at_ms)

    async def _coordinator(self) -> Connection:
        self._client.forget_coordinator(self._group)
        return await self._client.connection(await self._client.coordinator(self._group))


_NO_MEMBER_ANY_MORE = frozenset(
    {ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id}
)
