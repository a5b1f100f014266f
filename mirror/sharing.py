"""Several daemons of one link: each mirrors the partitions of its slots, which a group at the target gives out (`core/sharing.py`).

Ownership is ephemeral: it lasts as long as heartbeats are answered, by the daemon's own clock, so one that was stopped or cut off lets
go by itself before the group gives its slots to another. It spreads work and guards nothing: two daemons that both think that they own
a partition do no harm, since an exact target refuses what does not continue its log, and a translate target what does not
continue the sequence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mirror.core.partitions import PartitionKey
from mirror.core.sharing import SLOTS, decode_slots, encode_slots, share_slots, slot_of
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
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
_state_change = state_change_logger()


class Sharing:
    """One daemon's place in the group of its link. `run` is a worker of the mirror, `close` its last word."""

    def __init__(self, client: KafkaClient, link: str, *, session_timeout_ms: int, clock: Clock) -> None:
        self._client = client
        self._group = MIRROR_GROUP_PREFIX + link
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock
        options = GroupOptions(
            group_id=self._group,
            protocol_type=PROTOCOL_TYPE,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            heartbeat_interval_ms=session_timeout_ms / HEARTBEATS_A_SESSION,
        )
        self._member = GroupMember(client, options, clock)
        self._slots: frozenset[int] = frozenset()
        self._owned_until_ms = 0.0
        self.on_gain: Callable[[], Awaitable[None]] | None = None

    @property
    def slots(self) -> frozenset[int]:
        """What is owned now: nothing when heartbeats have not been answered for a session's time."""
        return self._slots if self._clock.monotonic_ms() < self._owned_until_ms else frozenset()

    def owns(self, key: PartitionKey) -> bool:
        """Whether this daemon mirrors the partition now."""
        return slot_of(key) in self.slots

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
            membership = await self._member.join([(PROTOCOL, encode_slots(self.slots))], self._assignments)
            slots = decode_slots(membership.assignment)
            await self._own(slots, membership.asked_at_ms, membership.joined)
            await self._member.stay(membership, self._heard)

    def _heard(self, asked_at_ms: float) -> None:
        self._owned_until_ms = asked_at_ms + self._session_timeout_ms

    async def _assignments(self, joined: Joined) -> dict[str, bytes]:
        held = {member: decode_slots(metadata) for member, metadata in joined.members.items()}
        shares = share_slots(joined.members.keys(), held)
        return {member: encode_slots(slots) for member, slots in shares.items()}

    async def _own(self, slots: frozenset[int], asked_at_ms: float, joined: Joined) -> None:
        gained, lost = slots - self.slots, self.slots - slots
        if gained and self.on_gain is not None:
            # What another daemon has written about them is read before anything is done with them.
            self._slots &= slots
            await self.on_gain()
        self._slots, self._owned_until_ms = slots, asked_at_ms + self._session_timeout_ms
        if gained or lost:
            _state_change.info(
                "sharing the link",
                group=self._group,
                generation=joined.generation_id,
                slots=f"{len(slots)} of {SLOTS}",
                gained=len(gained),
                lost=len(lost),
            )
