"""The arbiter: a ZooKeeper ensemble that all sites reach, with members in a third place. It keeps
one small record for each link, and never data.

Every call has a deadline; `ArbiterSilent` when it has passed or the connection is lost. A renewal
is a ZooKeeper transaction that only checks versions. ZooKeeper executes it in the order of all
writes, so a renewal never succeeds after a newer epoch was stored, even if a server answers that
lags.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from msgspec import Struct

from dr.agent.site_cache import DISCONNECTED
from runtime.chance import new_uuid
from runtime.clock import Clock
from runtime.doors import OpenZooKeeper
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from runtime.supervision import Supervisor
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CheckNode
from runtime.zookeeper.sessions import SessionState
from wire.control.site_pb2 import ArbiterRecord
from wire.znodes import arbiter_znodes as znodes
from wire.znodes.arbiter_znodes import Holder
from wire.znodes.documents import MalformedZnode

START_TIMEOUT_MS = 5_000

Result = TypeVar("Result")


class ArbiterSilent(OperationalFailure):
    """The arbiter does not answer; the outcome of a write is unknown."""


class ArbiterChanged(Exception):
    """The stored record is not the one that the caller read, or the broker is not registered as a
    holder.
    """


class KeptRecord(Struct, frozen=True, kw_only=True):
    """A link's record as it was read, with the version of its znode."""

    record: ArbiterRecord
    version: int


class Arbiter:
    """The connection of one process to the arbiter; it reconnects by itself."""

    def __init__(
        self, connect: str, *, session_timeout_ms: int, clock: Clock, open_zookeeper: OpenZooKeeper = ZooKeeper
    ) -> None:
        self._open_zookeeper = open_zookeeper
        self._connect_string = connect
        self._clock = clock
        self._absent: dict[str, tuple[int, float]] = {}
        self._session_timeout_ms = session_timeout_ms
        self._zookeeper: ZooKeeper | None = None
        self._identity = ""
        self._loops = Supervisor()
        self._log = get_logger("dr.arbiter")

    @property
    def is_configured(self) -> bool:
        """True if the process has an arbiter."""
        return bool(self._connect_string)

    @property
    def is_reachable(self) -> bool:
        """True if the connection is up, as far as this process knows."""
        return self._zookeeper is not None and self._zookeeper.state is SessionState.CONNECTED

    @property
    def silence(self) -> str:
        """The reason why the arbiter cannot be asked; empty if it can."""
        if not self.is_configured:
            return "no arbiter is configured here (antipode.arbiter.connect)"
        return "" if self.is_reachable else f"the arbiter at {self._connect_string} does not answer"

    def start(self) -> None:
        """Begin to connect. The caller does not wait, because an arbiter that does not answer must
        delay nothing else.
        """
        if self.is_configured:
            self._loops.start("arbiter", self._connect)

    async def stop(self) -> None:
        """Close the session; its presence nodes disappear with it."""
        await self._loops.stop()
        zookeeper, self._zookeeper = self._zookeeper, None
        if zookeeper is not None:
            await zookeeper.stop()

    async def _connect(self) -> None:
        while self._zookeeper is None:
            zookeeper = self._open_zookeeper(self._connect_string, session_timeout_ms=self._session_timeout_ms)
            try:
                await zookeeper.start(timeout_ms=START_TIMEOUT_MS)
            except OperationalFailure as failure:
                self._log.warning("the arbiter cannot be reached yet", reason=str(failure))
                continue
            self._zookeeper = zookeeper
            self._log.info("the arbiter answers", connect=self._connect_string)
        # The supervisor would report the end of this task as a failure. The ZooKeeper session
        # reconnects by itself, so the task only has to stay alive.
        await asyncio.Event().wait()

    async def _ask(self, answer: Awaitable[Result], timeout_ms: float) -> Result:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            raise ArbiterSilent(
                f"the arbiter at {self._connect_string} does not answer within {timeout_ms:.0f} ms"
            ) from None
        # ZooKeeper may have executed the write before the connection was lost, so callers read the
        # versions again.
        except DISCONNECTED as error:
            raise ArbiterSilent(f"the arbiter at {self._connect_string} does not answer: {error!r}") from error

    @property
    def _door(self) -> ZooKeeper:
        if self._zookeeper is None or not self.is_reachable:
            raise ArbiterSilent(self.silence)
        return self._zookeeper

    async def identity(self, *, timeout_ms: float) -> str:
        """The id of this arbiter, unique among arbiters; the first process that asks creates it."""
        if not self._identity:
            self._identity = await self._ask(self._identify(self._door), timeout_ms)
        return self._identity

    async def _identify(self, door: ZooKeeper) -> str:
        while True:
            found = await door.get_or_none(znodes.IDENTITY)
            if found is not None:
                return found[0].decode()
            with contextlib.suppress(NodeExistsError):
                await door.create(znodes.IDENTITY, new_uuid().hex.encode(), make_path=True)

    async def record(self, link: str, *, timeout_ms: float) -> KeptRecord | None:
        """The link's record; None before the first one. Raises MalformedZnode."""
        found = await self._ask(self._door.get_or_none(znodes.record_path(link)), timeout_ms)
        if found is None:
            return None
        return KeptRecord(record=znodes.decode_record(link, found[0]), version=found[1].version)

    async def store(self, record: ArbiterRecord, *, version: int | None, timeout_ms: float) -> KeptRecord:
        """Replace the record of `version`, or create the first one (None). Raises
        ArbiterChanged.
        """
        path, payload = znodes.record_path(record.link), znodes.encode_record(record)
        try:
            if version is None:
                await self._ask(self._door.create(path, payload, make_path=True), timeout_ms)
                return KeptRecord(record=record, version=0)
            stat = await self._ask(self._door.set(path, payload, version=version), timeout_ms)
        except (NodeExistsError, BadVersionError, NoNodeError) as error:
            raise ArbiterChanged(f"the arbiter's record of link {record.link} has changed") from error
        return KeptRecord(record=record, version=stat.version)

    async def delete(self, link: str, *, epoch: int, timeout_ms: float) -> None:
        """Delete the link's record and its holders, unless the record is of a later epoch."""
        with contextlib.suppress(MalformedZnode):
            held = await self.record(link, timeout_ms=timeout_ms)
            if held is None or held.record.epoch > epoch:
                return
        with contextlib.suppress(NoNodeError):
            await self._ask(self._door.delete(znodes.record_path(link), recursive=True), timeout_ms)

    async def register_holder(self, link: str, holder: Holder, *, timeout_ms: float) -> tuple[int, bool]:
        """Register the broker as a holder of permits. Returns the version that its renewals must
        name, and whether the broker is marked out of sync.
        """
        path, door = znodes.holder_path(link, holder), self._door
        with contextlib.suppress(NodeExistsError):
            await self._ask(door.create(path, make_path=True), timeout_ms)
        try:
            data, stat = await self._ask(door.get(path), timeout_ms)
        except NoNodeError as error:
            raise ArbiterChanged(f"{holder.node} was removed from the holders of link {link}") from error
        return stat.version, data == znodes.OUT_OF_SYNC

    async def mark_holder(
        self, link: str, holder: Holder, *, is_out_of_sync: bool, version: int, timeout_ms: float
    ) -> int:
        """Store whether the broker acknowledges records that the standby may lack; returns the new
        version. Raises ArbiterChanged.
        """
        data = znodes.OUT_OF_SYNC if is_out_of_sync else b""
        try:
            stat = await self._ask(self._door.set(znodes.holder_path(link, holder), data, version=version), timeout_ms)
        except (NoNodeError, BadVersionError) as error:
            raise ArbiterChanged(f"{holder.node} is another holder of link {link} now") from error
        return stat.version

    async def out_of_sync(self, link: str, *, timeout_ms: float) -> list[Holder]:
        """The brokers that may have acknowledged records that the standby lacks."""
        found = []
        for holder in await self.holders(link, timeout_ms=timeout_ms):
            stored = await self._ask(self._door.get_or_none(znodes.holder_path(link, holder)), timeout_ms)
            if stored is not None and stored[0] == znodes.OUT_OF_SYNC:
                found.append(holder)
        return found

    async def renew(self, link: str, *, version: int, holder: Holder, holder_version: int, timeout_ms: float) -> None:
        """Return only if the record and the holder had these versions when the arbiter executed the
        renewal. Raises ArbiterChanged.
        """
        steps = [
            CheckNode(path=znodes.record_path(link), version=version),
            CheckNode(path=znodes.holder_path(link, holder), version=holder_version),
            CheckNode(path=znodes.presence_path(holder.site, holder.node_id), version=0),
        ]
        try:
            await self._ask(self._door.transaction(steps), timeout_ms)
        except (BadVersionError, NoNodeError) as error:
            raise ArbiterChanged(f"the arbiter's record of link {link} has changed") from error

    async def release_holder(self, link: str, holder: Holder, *, timeout_ms: float, version: int = -1) -> None:
        """Remove the broker from the holders: it has no permit. Raises ArbiterChanged when its
        version is not `version`.
        """
        try:
            await self._ask(self._door.delete(znodes.holder_path(link, holder), version=version), timeout_ms)
        except NoNodeError:
            return
        except BadVersionError as error:
            raise ArbiterChanged(f"{holder.node} holds permits of link {link} again") from error

    async def suspend_holder(self, link: str, holder: Holder, *, timeout_ms: float) -> int:
        """Make all later renewals of the broker fail until it registers again; returns the new
        version. Raises ArbiterChanged, also for a broker that is marked: its mark stays.
        """
        path = znodes.holder_path(link, holder)
        try:
            data, stat = await self._ask(self._door.get(path), timeout_ms)
            if data == znodes.OUT_OF_SYNC:
                raise ArbiterChanged(f"{holder.node} is marked out of sync for link {link}")
            # The delete names the version, because the broker may still reach the arbiter and mark
            # itself at this moment.
            return (await self._ask(self._door.set(path, b"", version=stat.version), timeout_ms)).version
        except (NoNodeError, BadVersionError) as error:
            raise ArbiterChanged(f"{holder.node} is another holder of link {link} now") from error

    async def holders(self, link: str, *, timeout_ms: float) -> list[Holder]:
        """Every broker that may hold a permit."""
        try:
            nodes = await self._ask(self._door.children(znodes.holders_path(link)), timeout_ms)
        except NoNodeError:
            return []
        return [znodes.decode_holder(link, node) for node in nodes]

    async def keep_presence(self, site: str, node_id: int, *, timeout_ms: float) -> None:
        """Create the ephemeral znode that shows that this process reaches the arbiter; it lasts as
        long as the session.
        """
        door, path = self._door, znodes.presence_path(site, node_id)
        stat = await self._ask(door.exists(path), timeout_ms)
        if stat is not None and stat.ephemeral_owner == door.session_id:
            return
        if (
            stat is not None
        ):  # The node belongs to the session of an earlier process, which ZooKeeper has not expired yet.
            with contextlib.suppress(NoNodeError):
                await self._ask(door.delete(path, version=stat.version), timeout_ms)
        await self._ask(door.ensure_path(znodes.site_path(site)), timeout_ms)
        with contextlib.suppress(NodeExistsError):
            await self._ask(door.create(path, is_ephemeral=True), timeout_ms)

    async def present(self, site: str, *, timeout_ms: float) -> list[str]:
        """The node ids of the site's brokers that reach the arbiter."""
        try:
            nodes = await self._ask(self._door.children(znodes.site_path(site)), timeout_ms)
            stat = await self._ask(self._door.exists(znodes.site_path(site)), timeout_ms)
        except NoNodeError:
            nodes, stat = [], None
        changes = 0 if stat is None else stat.child_changes
        if nodes:
            self._absent.pop(site, None)
        elif site not in self._absent or self._absent[site][0] != changes:
            self._absent[site] = changes, self._clock.monotonic_ms()
        return nodes

    async def absent_since_ms(self, site: str, *, timeout_ms: float) -> float | None:
        """Return the monotonic time since which no broker of the site was present, as this process
        saw it; None when one is present. No permit was renewed since then: a renewal needs
        presence, and the count of changes also reveals a broker that came and went in between.
        """
        await self.present(site, timeout_ms=timeout_ms)
        known = self._absent.get(site)
        return None if known is None else known[1]
