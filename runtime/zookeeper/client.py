"""The ZooKeeper door: kazoo's threaded client as coroutines, watches as callbacks on the event
loop.

Errors are kazoo's own (`NoNodeError`, `BadVersionError`, ...), plus `OperationalFailure` when no
connection can be made at start. kazoo reports SUSPENDED when the connection is lost. If the network
drops packets, kazoo notices that only after up to two thirds of the session timeout. kazoo reports
LOST only after it is connected again. So the holder of an ephemeral node or a lease must count its
own deadline, from the time at which it sent the last request that was answered; `on_session`
reports every change.

kazoo's connection thread ends with any error that it does not expect, for instance when a server
answers requests out of order, which happens in ensembles under faults. kazoo would never connect
again, so this client begins a new session, as after an expired one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from runtime.logs import get_logger
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from runtime.supervision import Supervisor, note_death
from runtime.zookeeper import access
from runtime.zookeeper.handler import Delivery, Watch, WatchInbox
from runtime.zookeeper.nodes import CheckNode, CreateNode, DeleteNode, NodeStat, SetNode, TransactionStep
from runtime.zookeeper.reads import MultiRead, SetWatches, node_stat
from runtime.zookeeper.sessions import STATES, NoteSession, SessionKey, SessionListener, SessionState, note_no_session

log = get_logger(__name__)

REVIVAL_INTERVAL_S = 0.5
"""Interval (s) at which a check looks whether kazoo's connection thread has ended."""
ENDING_TIMEOUT_MS = 10_000
"""The timeout for attaching to another process's session in order to end it; the session expires
anyway.
"""


Result = TypeVar("Result")


async def until_answered(step: Callable[[], Awaitable[Result]]) -> Result:
    """Returns the result of `step`, and repeats it each time the connection is lost in the middle:
    for starts, which need the answer. A request whose answer was lost may have been carried out, so
    `step` must be repeatable.
    """
    lost = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError)
    retrying = jittered_backoff(
        retry_on=lost, before_sleep=lambda _: log.warning("ZooKeeper connection lost during the start; retrying")
    )
    async for attempt in retrying:
        with attempt:
            return await step()
    raise AssertionError("retrying without a bound ended")


class ZooKeeper:
    """An asynchronous ZooKeeper client for one event loop; all callbacks run on that loop."""

    def __init__(
        self, connect: str, *, session_timeout_ms: int = 6000, note_session: NoteSession = note_no_session
    ) -> None:
        self._connect_string = connect
        self._note_session = note_session
        self._loop = asyncio.get_running_loop()
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5)
        self._client = KazooClient(
            hosts=connect,
            timeout=session_timeout_ms / 1000,
            connection_retry=retry,
            command_retry=KazooRetry(max_tries=0),
            **access.client_options(),
        )
        self._listeners: list[SessionListener] = []
        self._state = SessionState.LOST
        self._is_stopped = False
        self._loops = Supervisor()
        self._inbox = WatchInbox(self._loop)

    @property
    def state(self) -> SessionState:
        """The known state of the session now."""
        return self._state

    @property
    def session_id(self) -> int:
        """The id of the session, to compare with a node's ephemeral owner; 0 without a session."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id else 0

    def on_session(self, listener: SessionListener) -> None:
        """Call `listener` on the loop at every change of the session's state."""
        self._listeners.append(listener)

    async def start(self, *, timeout_ms: int = 10_000) -> None:
        """Connect; OperationalFailure when nothing answers in time."""
        self._client.add_listener(self._on_kazoo_state)
        started = self._client.start_async()
        await asyncio.to_thread(started.wait, timeout_ms / 1000)
        if not self._client.connected:
            await asyncio.to_thread(self._shut)
            raise OperationalFailure(
                f"ZooKeeper at {self._connect_string} does not answer within {timeout_ms} ms: is it running and reachable?"
            )
        self._state = SessionState.CONNECTED
        self._report_session()
        self._loops.start("ZooKeeper sessions", self._revive_again_and_again)

    async def _revive_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(REVIVAL_INTERVAL_S)
            if self._client.client_state != KeeperState.CLOSED:
                continue
            log.warning("kazoo gave up its connection; a new session begins")
            try:
                await asyncio.to_thread(self._client.start_async)
            except KazooException as error:
                log.warning("kazoo cannot begin another session yet", reason=str(error))

    async def stop(self) -> None:
        """Close the session (ephemeral nodes go at once) and end kazoo's threads."""
        if not self._is_stopped:
            self._is_stopped = True
            await self._loops.stop()
            await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._client.stop()
        self._client.close()

    def _on_kazoo_state(self, state: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._publish_state, STATES[state])

    def _publish_state(self, state: SessionState) -> None:
        if state is self._state or self._is_stopped:
            return
        self._state = state
        if state is SessionState.CONNECTED:
            self._report_session()
        for listener in tuple(self._listeners):
            try:
                listener(state)
            except Exception:
                note_death(
                    "ZooKeeper session listener"
                )  # the other listeners are called all the same: the change is reported once

    def _report_session(self) -> None:
        client_id = self._client.client_id
        if client_id:
            self._note_session(SessionKey(int(client_id[0]), bytes(client_id[1])))

    async def _finish(self, pending: Any) -> Any:
        """Await kazoo's async result without holding a thread."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle() -> None:
            if future.done():
                return
            if isinstance(pending.exception, RuntimeError):  # kazoo lost count of its requests
                future.set_exception(ConnectionLoss(str(pending.exception)))
            elif pending.exception is not None:
                future.set_exception(pending.exception)
            else:
                future.set_result(pending.value)

        def notify(_: Any) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(settle)

        pending.rawlink(notify)
        return await future

    def _watch(self, watch: Watch | None) -> Watch | None:
        return None if watch is None else Delivery(self._inbox, watch)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequence: bool = False,
        make_path: bool = False,
    ) -> str:
        """Create a znode, returning its path. NodeExistsError, NoNodeError for a missing parent
        unless `make_path`.
        """
        parent = path.rpartition("/")[0]
        if make_path and parent:
            await self.ensure_path(parent)
        pending = self._client.create_async(
            path,
            value,
            acl=access.acl_of(path),
            ephemeral=is_ephemeral,
            sequence=is_sequence,
        )
        return str(await self._finish(pending))

    async def ensure_path(self, path: str) -> None:
        """Create the path and its parents where missing."""
        if access.acl_of(path) is None:
            await self._finish(self._client.ensure_path_async(path))
            return
        # kazoo would give every part of the path the same ACL, but paths of secrets need another
        # one than their parents
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            part = "/" + "/".join(parts[:count])
            if await self.exists(part) is None:
                with contextlib.suppress(NodeExistsError):
                    await self.create(part)

    async def get(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, NodeStat]:
        """A znode's data and stat; `watch` fires once at the next change. NoNodeError."""
        value, stat = await self._finish(self._client.get_async(path, watch=self._watch(watch)))
        return bytes(value or b""), node_stat(stat)

    async def get_or_none(self, path: str, *, watch: Watch | None = None) -> tuple[bytes, NodeStat] | None:
        """Like `get`; None for a missing znode (the watch is then set on its creation)."""
        while True:
            if watch is not None and await self.exists(path, watch=watch) is None:
                return None
            try:
                return await self.get(path)
            except NoNodeError:
                if watch is None:
                    return None
                # deleted in between: `exists` again, so that the watch is on its creation

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, NodeStat] | None]:
        """Data and stat of each path, None for one that is missing: one request, so the caller
        bounds it. UnimplementedError when the server is older than ZooKeeper 3.6; it has then ended
        the session, too.
        """
        pending = self._client.handler.async_result()
        rooted = [f"{self._client.chroot}{path}" for path in paths]
        self._client._call(MultiRead(rooted), pending)
        try:
            found = await self._finish(pending)
        except UnimplementedError as error:
            raise UnimplementedError(
                "this ZooKeeper server cannot read many nodes at once: 3.6 or newer is needed"
            ) from error
        return [None if node is None else (node[0], node_stat(node[1])) for node in found]

    async def get_many_watched(self, watches: Mapping[str, Watch]) -> list[tuple[bytes, NodeStat] | None]:
        """Like `get_many` of the paths; the watch of each path fires once at the next creation,
        change or deletion.
        """
        client = self._client
        nodes = await self.get_many(list(watches))
        rooted = {f"{client.chroot}{path}": watch for path, watch in watches.items()}
        stats = {path: node[1] for path, node in zip(rooted, nodes, strict=True) if node is not None}

        def register() -> None:
            for path, watch in rooted.items():
                client._data_watchers[path].add(Delivery(self._inbox, watch))

        request = SetWatches(
            found=list(stats),
            missing=[path for path in rooted if path not in stats],
            # Every change after the read is newer than the newest change that was read.
            read_zxid=max((stat.mzxid for stat in stats.values()), default=0),
            register=register,
        )
        pending = client.handler.async_result()
        client._call(request, pending)
        await self._finish(pending)
        return nodes

    async def exists(self, path: str, *, watch: Watch | None = None) -> NodeStat | None:
        """The stat, None when missing; `watch` fires once at creation, change or deletion."""
        stat = await self._finish(self._client.exists_async(path, watch=self._watch(watch)))
        return None if stat is None else node_stat(stat)

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted; `watch` fires once at the next change of the list.
        NoNodeError.
        """
        return sorted(await self._finish(self._client.get_children_async(path, watch=self._watch(watch))))

    async def children_and_stat(self, path: str, *, watch: Watch | None = None) -> tuple[list[str], NodeStat]:
        """Like `children`, with the stat of the parent as of the same moment."""
        pending = self._client.get_children_async(path, watch=self._watch(watch), include_data=True)
        names, stat = await self._finish(pending)
        return sorted(names), node_stat(stat)

    async def set(self, path: str, value: bytes, *, version: int = -1) -> NodeStat:
        """Replace the data; BadVersionError when `version` is not the current one (-1:
        unconditional).
        """
        return node_stat(await self._finish(self._client.set_async(path, value, version=version)))

    async def set_acls(self, path: str, *, is_dry_run: bool = False) -> bool:
        """Give a znode the ACL of new znodes; returns True if it had another one. Raises
        NoNodeError, or NoAuthError without the right.
        """
        wanted = access.acl_of(path) or OPEN_ACL_UNSAFE
        found, _ = await self._finish(self._client.get_acls_async(path))
        if set(found) == set(wanted):
            return False
        if not is_dry_run:
            await self._finish(self._client.set_acls_async(path, wanted))
        return True

    async def delete(self, path: str, *, version: int = -1, recursive: bool = False) -> None:
        """Delete a znode. NoNodeError, NotEmptyError, BadVersionError."""
        if recursive:
            await asyncio.to_thread(self._client.delete, path, version, True)
        else:
            await self._finish(self._client.delete_async(path, version=version))

    async def transaction(self, steps: Sequence[TransactionStep]) -> list[Any]:
        """All steps or none (one multi). Raises the failed step's error; a connection error leaves
        the outcome unknown.
        """
        transaction = self._client.transaction()
        for step in steps:
            match step:
                case CreateNode():
                    acl = access.acl_of(step.path)
                    transaction.create(step.path, step.value, acl=acl, ephemeral=step.is_ephemeral)
                case SetNode():
                    transaction.set_data(step.path, step.value, version=step.version)
                case DeleteNode():
                    transaction.delete(step.path, version=step.version)
                case CheckNode():
                    transaction.check(step.path, version=step.version)
        results: list[Any] = await self._finish(transaction.commit_async())
        failures = [result for result in results if isinstance(result, Exception)]
        # in a failed multi every step has an error: all but one only report that the multi was
        # rolled back
        causes = [failure for failure in failures if not isinstance(failure, RolledBackError | RuntimeInconsistency)]
        for failure in causes or failures:
            raise failure
        return results


async def end_session(connect: str, key: SessionKey) -> None:
    """End a session of any process with everything ephemeral in it; does nothing when the session
    is over or ZooKeeper does not answer soon.
    """
    await asyncio.to_thread(_end_session, connect, key)


def _end_session(connect: str, key: SessionKey) -> None:
    client = KazooClient(
        hosts=connect,
        timeout=ENDING_TIMEOUT_MS / 1000,
        client_id=(key.session_id, key.password),
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5),
        **access.client_options(),
    )
    try:
        client.start_async().wait(ENDING_TIMEOUT_MS / 1000)
    finally:
        client.stop()
        client.close()
