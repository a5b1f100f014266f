"""Divides one link among several daemons by a consumer group at the target: each daemon mirrors the
partitions of the slots that the group assigns to it (`link/core/slots.py`).

It serves links whose daemons have no common ZooKeeper (`zookeeper_sharing.py`). Each answered
heartbeat confirms the ownership. A member's metadata also has its settings and failures; where they
differ between members, the leader sends them with the slots.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any

from clients.consumer.membership import GroupMember, GroupOptions
from mirror.link.core.slots import Strategy, decode_slots, encode_slots, share_slots
from mirror.link.ports import Unreachable
from mirror.sharing.core.peers import Daemon, DaemonShare, decode_daemon, encode_daemon, parse_daemon
from mirror.sharing.ownership import OnGain, Ownership, read_nothing
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_membership import Joined
from wire.protocol.json_documents import parse_json
from wire.rules.links import MIRROR_GROUP_PREFIX

PROTOCOL_TYPE = "antipode-mirror"
PROTOCOL = "slots"
HEARTBEATS_A_SESSION = 6
REBALANCE_TIMEOUT_MS = 10_000
RETRY_S = 0.5
REPORTED_AGAIN_MS = 10_000
"""Time (ms) before this daemon publishes its failures again: each publication costs all members a
new generation.
"""

_log = get_logger("mirror.sharing")


class _ReportsOtherSettings(Exception):
    """The description that this daemon published is outdated."""


class GroupSharing:
    """One daemon's membership in the group of its link. `run` is a worker of the mirror, `close`
    its last step.
    """

    def __init__(
        self,
        client: KafkaClient,
        link: str,
        *,
        strategy: Strategy,
        session_timeout_ms: int,
        clock: Clock,
        on_gain: OnGain = read_nothing,
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
        self._clock = clock
        self._reported_at_ms = -float(REPORTED_AGAIN_MS)
        self.ownership = Ownership(session_timeout_ms=session_timeout_ms, clock=clock, on_gain=on_gain)

    async def run(self) -> None:
        """Be a member until cancelled."""
        logged = ""
        while True:
            try:
                await self._be_a_member()
            except (KafkaClientError, Unreachable) as error:
                self.ownership.problem = f"group {self._group} at the target: {error}"
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("currently not a member of the link's group", reason=logged, group=self._group)
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Release the slots to other daemons at once."""
        problem = await self._member.leave()
        if problem:
            _log.info("could not leave the group; other daemons must wait for the session timeout", reason=problem)
        await self._client.close()

    async def _be_a_member(self) -> None:
        """Be a member for as long as one coordinator lasts, generation after generation."""
        await self._member.find_coordinator()
        # This coordinator may have expired the member while it was disconnected, and assigned its
        # slots.
        self.ownership.doubt()
        while True:
            published = self.ownership.own
            metadata = encode_slots(self.ownership.slots, daemon=encode_daemon(published))
            membership = await self._member.join([(PROTOCOL, metadata)], self._assignments)
            self._reported_at_ms = self._clock.monotonic_ms()
            self.ownership.others = _others(membership.assignment)
            taking = self.ownership.take(
                decode_slots(membership.assignment),
                asked_at_ms=membership.asked_at_ms,
                group=self._group,
                generation=membership.joined.generation_id,
            )
            with contextlib.suppress(_ReportsOtherSettings):
                await _both(taking, self._member.stay(membership, partial(self._confirmed, published)))

    def _confirmed(self, published: Daemon, asked_at_ms: float) -> None:
        self.ownership.confirm(asked_at_ms)
        if self.ownership.own != published and self._clock.monotonic_ms() - self._reported_at_ms >= REPORTED_AGAIN_MS:
            # Metadata travels only with a join, so a new description needs a new generation.
            raise _ReportsOtherSettings

    async def _assignments(self, joined: Joined) -> dict[str, bytes]:
        held = {member: decode_slots(metadata) for member, metadata in joined.members.items()}
        shares = share_slots(joined.members.keys(), held, self._strategy)
        daemons = {name: parse_daemon(data, otherwise_named=name) for name, data in joined.members.items()}
        if not _is_worth_telling(daemons.values()):
            return {member: encode_slots(slots) for member, slots in shares.items()}
        daemons_slots = {
            name: {"daemon": encode_daemon(daemons[name]), "slots": sorted(shares[name])} for name in shares
        }
        return {
            member: encode_slots(
                slots, others=[daemons_slots[name] for name in sorted(daemons_slots) if name != member]
            )
            for member, slots in shares.items()
        }


async def _both(taking: Coroutine[Any, Any, None], staying: Coroutine[Any, Any, None]) -> None:
    """Join and assign while heartbeats keep this member in the group, however long that takes; ends
    with `staying`, or with the first error.
    """
    tasks = asyncio.ensure_future(taking), asyncio.ensure_future(staying)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
        await tasks[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_worth_telling(daemons: Collection[Daemon]) -> bool:
    settings = [daemon.settings for daemon in daemons if daemon.settings]
    return any(daemon.problem for daemon in daemons) or any(one != settings[0] for one in settings)


def _others(assignment: bytes) -> tuple[DaemonShare, ...]:
    """The other daemons, where the leader sent their descriptions."""
    try:
        others = parse_json(assignment).get("others", ())
        return tuple(
            DaemonShare(decode_daemon(one["daemon"], otherwise_named="of another release"), frozenset(one["slots"]))
            for one in others
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
