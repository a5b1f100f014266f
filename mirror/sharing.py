"""Several daemons of one link: each mirrors the partitions of its slots, which a group at the target gives out (`core/sharing.py`).

For links whose daemons reach no common ZooKeeper (`zookeeper_sharing.py`). Each answered heartbeat confirms what is owned.
"""

from __future__ import annotations

import asyncio

from mirror.core.sharing import Strategy, decode_slots, encode_slots, share_slots
from mirror.ownership import Ownership
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.client import KafkaClient
from wire.client_errors import KafkaClientError
from wire.clients.membership import GroupMember, GroupOptions
from wire.group_membership import Joined
from wire.links import MIRROR_GROUP_PREFIX

PROTOCOL_TYPE = "antipode-mirror"
PROTOCOL = "slots"
HEARTBEATS_A_SESSION = 6
REBALANCE_TIMEOUT_MS = 10_000
RETRY_S = 0.5

_log = get_logger("mirror.sharing")


class Sharing:
    """One daemon's place in the group of its link. `run` is a worker of the mirror, `close` its last word."""

    def __init__(
        self, client: KafkaClient, link: str, *, strategy: Strategy, session_timeout_ms: int, clock: Clock
    ) -> None:
        self._client = client
        self._strategy = strategy
        self._group = MIRROR_GROUP_PREFIX + link
        options = GroupOptions(
            group_id=self._group,
            protocol_type=PROTOCOL_TYPE,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            heartbeat_interval_ms=session_timeout_ms / HEARTBEATS_A_SESSION,
        )
        self._member = GroupMember(client, options, clock)
        self.ownership = Ownership(session_timeout_ms=session_timeout_ms, clock=clock)

    async def run(self) -> None:
        """Be a member until cancelled."""
        told = ""
        while True:
            try:
                await self._be_a_member()
            except KafkaClientError as error:
                self.ownership.problem = f"group {self._group} at the target: {error}"
                if str(error) != told:
                    told = str(error)
                    _log.warning("not a member of the link's group for the moment", reason=told, group=self._group)
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Let the others have the slots at once."""
        problem = await self._member.leave()
        if problem:
            _log.info("the group was not left; the others wait for the session's end", reason=problem)
        await self._client.close()

    async def _be_a_member(self) -> None:
        """One coordinator's time: generations one after the other."""
        await self._member.find_coordinator()
        while True:
            metadata = encode_slots(self.ownership.slots)
            membership = await self._member.join([(PROTOCOL, metadata)], self._assignments)
            await self.ownership.take(
                decode_slots(membership.assignment),
                asked_at_ms=membership.asked_at_ms,
                group=self._group,
                generation=membership.joined.generation_id,
            )
            await self._member.stay(membership, self.ownership.confirm)

    async def _assignments(self, joined: Joined) -> dict[str, bytes]:
        held = {member: decode_slots(metadata) for member, metadata in joined.members.items()}
        shares = share_slots(joined.members.keys(), held, self._strategy)
        return {member: encode_slots(slots) for member, slots in shares.items()}
