"""Several daemons of one link that share its partitions through ZooKeeper.

    /antipode/mirrors/<link>/ids/member-<n>      ephemeral, one a daemon; whose data has its
                                                 settings and its failures
    /antipode/mirrors/<link>/assignment          {"generation": n, "shares": {member: [slot, ...]}}
    /antipode/mirrors/<link>/owners/<slot>       ephemeral, whose data is the member that owns the
                                                 slot

The member with the lowest number distributes the slots and writes them conditionally on the version
it read, so of two that consider themselves leader one fails. Every member releases the slots that
it has lost before it claims others; it waits for a slot that still has an owner. Each round
confirms the session by reading; `ownership.py` defines what that means for ownership.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError

from mirror.link.core.slots import Strategy, share_slots
from mirror.link.ports import Unreachable
from mirror.sharing.core.peers import DaemonShare, encode_daemon, parse_daemon
from mirror.sharing.ownership import OnGain, Ownership, read_nothing
from runtime.clock import Clock
from runtime.doors import OpenZooKeeper
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CreateNode, NodeStat
from runtime.zookeeper.sessions import SessionState
from wire.protocol.json_documents import parse_json

ROOT = "/antipode/mirrors"
TURNS_A_SESSION = 6
RETRY_S = 0.5

_log = get_logger("mirror.sharing")


class SessionEnded(Exception):
    """This daemon's membership has ended: it registers anew."""


class ZooKeeperSharing:
    """One daemon's membership among the daemons of its link. `run` is a worker of the mirror,
    `close` its last step.
    """

    def __init__(
        self,
        connect: str,
        link: str,
        *,
        strategy: Strategy,
        session_timeout_ms: int,
        clock: Clock,
        on_gain: OnGain = read_nothing,
        open_zookeeper: OpenZooKeeper = ZooKeeper,
    ) -> None:
        self._open_zookeeper = open_zookeeper
        self._connect = connect
        self._root = f"{ROOT}/{link}"
        self._strategy = strategy
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock
        self._changed = asyncio.Event()
        self._claimed: set[int] = set()
        self._registered = b""
        self.ownership = Ownership(session_timeout_ms=session_timeout_ms, clock=clock, on_gain=on_gain)

    async def run(self) -> None:
        """Be a member until cancelled."""
        logged = ""
        while True:
            try:
                await self._be_a_member()
            except (KazooException, OperationalFailure, SessionEnded, Unreachable) as error:
                reason = str(error) or type(error).__name__
                # what other daemons have written is read at the target
                where = "the target" if isinstance(error, Unreachable) else f"ZooKeeper {self._connect}"
                self.ownership.problem = f"{where}: {reason}"
                if reason != logged:
                    logged = reason
                    _log.warning("currently not a member of the link", reason=reason, path=self._root)
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Does nothing: `run` closed its session at its end, and other daemons have the slots."""

    async def _be_a_member(self) -> None:
        zookeeper = self._open_zookeeper(self._connect, session_timeout_ms=self._session_timeout_ms)
        zookeeper.on_session(lambda _: self._changed.set())
        # A new session starts without owner nodes: those of the old session expire.
        self._claimed.clear()
        try:
            await zookeeper.start(timeout_ms=self._session_timeout_ms)
            for folder in ("ids", "owners"):
                await zookeeper.ensure_path(f"{self._root}/{folder}")
            self._registered = self._registration()
            path = await zookeeper.create(
                f"{self._root}/ids/member-", self._registered, is_ephemeral=True, is_sequence=True
            )
            while True:
                await self._turn(zookeeper, path.rpartition("/")[2])
        finally:
            self.ownership.release(frozenset())
            # A closed session removes the ephemeral nodes at once; an abandoned one only after its
            # timeout.
            await asyncio.shield(zookeeper.stop())

    async def _turn(self, zookeeper: ZooKeeper, member: str) -> None:
        self._changed.clear()
        if zookeeper.state is SessionState.LOST:
            raise SessionEnded("the session has expired")
        if zookeeper.state is SessionState.CONNECTED:
            asked_at_ms = self._clock.monotonic_ms()
            members = await zookeeper.children(f"{self._root}/ids", watch=self._wake)
            if member not in members:
                raise SessionEnded(f"{member} has lost its registration")
            found = await zookeeper.get_or_none(f"{self._root}/assignment", watch=self._wake)
            shares = _shares(found)
            # The member with the lowest number is the leader.
            if members[0] == member:
                shares = await self._give_out(zookeeper, members, found)
            wanted = frozenset(shares.get(member, ()))
            # Slots are released before others are claimed, otherwise two daemons could wait for
            # each other.
            await self._let_go(zookeeper, self._claimed - wanted, wanted)
            await self._claim(zookeeper, wanted - self._claimed, member)
            await self.ownership.take(frozenset(self._claimed), asked_at_ms=asked_at_ms, path=self._root, member=member)
            await self._report_to_others(zookeeper, f"{self._root}/ids/{member}")
            await self._read_reports(zookeeper, [name for name in members if name != member], shares)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._session_timeout_ms / TURNS_A_SESSION / 1000):
                await self._changed.wait()

    def _registration(self) -> bytes:
        return json.dumps({"daemon": encode_daemon(self.ownership.own)}, separators=(",", ":")).encode()

    async def _report_to_others(self, zookeeper: ZooKeeper, path: str) -> None:
        registration = self._registration()
        if registration != self._registered:
            await zookeeper.set(path, registration)
            self._registered = registration

    async def _read_reports(
        self, zookeeper: ZooKeeper, members: Iterable[str], shares: Mapping[str, frozenset[int]]
    ) -> None:
        """Read the descriptions of the other members in each round; a watch on each would outlive
        the round.
        """
        others = []
        for name in members:
            found = await zookeeper.get_or_none(f"{self._root}/ids/{name}")
            if found is not None:
                daemon = parse_daemon(found[0], otherwise_named=name)
                others.append(DaemonShare(daemon, shares.get(name, frozenset())))
        self.ownership.others = tuple(others)

    def _wake(self, _: Any) -> None:
        self._changed.set()

    async def _give_out(
        self, zookeeper: ZooKeeper, members: Sequence[str], found: tuple[bytes, NodeStat] | None
    ) -> dict[str, frozenset[int]]:
        """Compute the shares for these members, and write them if they differ from the stored ones.
        If another leader was faster, return its shares.
        """
        before = _shares(found)
        shares = share_slots(members, {name: before.get(name, frozenset()) for name in members}, self._strategy)
        if shares == before:
            return shares
        data = _encode(shares, generation=_generation(found) + 1)
        path = f"{self._root}/assignment"
        try:
            if found is None:
                await zookeeper.create(path, data)
            else:
                await zookeeper.set(path, data, version=found[1].version)
        # Another member considers itself the leader, and its write was first.
        except (BadVersionError, NodeExistsError):
            self._changed.set()
            return before
        return shares

    async def _let_go(self, zookeeper: ZooKeeper, slots: Iterable[int], kept: frozenset[int]) -> None:
        """Stop mirroring these slots first, then release them to other daemons."""
        self.ownership.release(kept)
        for slot in sorted(slots):
            with contextlib.suppress(NoNodeError):
                await zookeeper.delete(self._owner_path(slot))
            self._claimed.discard(slot)

    async def _claim(self, zookeeper: ZooKeeper, slots: Iterable[int], member: str) -> None:
        """Claim the slots together, or one by one if some still have an owner; those are tried
        again later.
        """
        wanted = sorted(slots)
        if not wanted:
            return
        steps = [CreateNode(path=self._owner_path(slot), value=member.encode(), is_ephemeral=True) for slot in wanted]
        try:
            await zookeeper.transaction(steps)
        except NodeExistsError:
            for step, slot in zip(steps, wanted, strict=True):
                await self._claim_one(zookeeper, step, slot)
            return
        self._claimed.update(wanted)

    async def _claim_one(self, zookeeper: ZooKeeper, step: CreateNode, slot: int) -> None:
        try:
            await zookeeper.create(step.path, step.value, is_ephemeral=True)
        except NodeExistsError:
            stat = await zookeeper.exists(step.path, watch=self._wake)
            if stat is None:
                self._changed.set()
            elif stat.ephemeral_owner == zookeeper.session_id:
                self._claimed.add(slot)  # The answer to the previous attempt was lost.
            return
        self._claimed.add(slot)

    def _owner_path(self, slot: int) -> str:
        return f"{self._root}/owners/{slot}"


def _shares(found: tuple[bytes, NodeStat] | None) -> dict[str, frozenset[int]]:
    """The assigned slots; none for documents that this release cannot read."""
    if found is None:
        return {}
    try:
        return {str(name): frozenset(map(int, slots)) for name, slots in parse_json(found[0])["shares"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _generation(found: tuple[bytes, NodeStat] | None) -> int:
    try:
        return 0 if found is None else int(parse_json(found[0])["generation"])
    except (ValueError, KeyError, TypeError):
        return 0


def _encode(shares: dict[str, frozenset[int]], *, generation: int) -> bytes:
    document = {"generation": generation, "shares": {name: sorted(slots) for name, slots in sorted(shares.items())}}
    return json.dumps(document, separators=(",", ":")).encode()
