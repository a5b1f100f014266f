"""ZooKeeper's servers as their clients see them: one order of writes, servers that lag behind it,
sessions, ephemerals, watches.

Every write is one transaction with a zxid, ordered by the leader and applied by each server in that
order, at different times; so reads may be stale, and never go back for one client. A session ends
when no server has received a request of it for its timeout; its ephemerals go with a transaction of
their own. While the ensemble is out nothing is ordered and no session ages, and every connection
breaks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kazoo.exceptions import (
    NoNodeError,
    RolledBackError,
)

from runtime.zookeeper.nodes import CreateNode, DeleteNode, TransactionStep
from tests.sim.network import End, Network
from tests.sim.virtual_loop import Process, VirtualLoop
from tests.sim.zookeeper_tree import Node, Tree, parent_of

SERVERS = ("z1", "z2", "z3")
CheckCommit = Callable[[Tree, TransactionStep], None]
Done = tuple[TransactionStep, Node | None, int]
"""A step that was tried, the node before it, and its parent's `children_zxid` before it."""


@dataclass(slots=True)
class Commit:
    """One transaction in the common order."""

    zxid: int
    session: int
    steps: tuple[TransactionStep, ...]
    now_ms: int
    ends_session: bool = False


@dataclass(slots=True)
class Session:
    """A client's session as the leader keeps it."""

    number: int
    timeout_s: float
    heard_at_s: float
    is_expired: bool = False


@dataclass(eq=False)
class ServerConnection:
    """One client's connection at a server: requests are answered one after the other."""

    server: Server
    end: End
    session: Session | None = None
    requests: deque[tuple[Any, ...]] = field(default_factory=deque)
    is_busy: bool = False
    watches: set[tuple[str, str]] = field(default_factory=set)


class Server:
    """One member of the ensemble: a tree that is behind the leader's, and the clients connected to
    it.
    """

    def __init__(self, ensemble: Ensemble, name: str) -> None:
        self.ensemble = ensemble
        self.name = name
        self.process = Process(ensemble.loop, name, name)
        self.tree = Tree()
        self.lag_s = 0.0
        self.connections: dict[int, ServerConnection] = {}
        self._commits: deque[Commit] = deque()
        self._last_apply_s = 0.0
        self._awaited: list[tuple[int, Callable[[], None]]] = []
        ensemble.network.listen(f"{name}:2181", self.process, self._accept)

    # --- the common order

    def take(self, commit: Commit) -> None:
        """Apply the commit after those before it, some time."""
        self._commits.append(commit)
        loop = self.ensemble.loop
        delay_s = self.ensemble.chance.uniform(0.0002, 0.002) + self.ensemble.chance.uniform(0, self.lag_s)
        self._last_apply_s = max(self._last_apply_s, loop.now_s + delay_s)
        loop.call_at(self._last_apply_s, self._apply, context=self.process.context)

    def _apply(self) -> None:
        commit = self._commits.popleft()
        changed: list[tuple[str, str]] = []
        for step in commit.steps:
            changed += self.tree.apply(step, zxid=commit.zxid, session=commit.session, now_ms=commit.now_ms)
        self.tree.zxid = commit.zxid
        for connection in tuple(self.connections.values()):
            for key in dict.fromkeys(changed):
                if key in connection.watches:
                    connection.watches.discard(key)
                    connection.end.send(("watch", key))
            if commit.ends_session and connection.session is not None and connection.session.number == commit.session:
                self.drop(connection)
        awaited, self._awaited = self._awaited, []
        for zxid, callback in awaited:
            if zxid <= commit.zxid:
                callback()
            else:
                self._awaited.append((zxid, callback))

    def when_applied(self, zxid: int, callback: Callable[[], None]) -> None:
        """Call back once this server has come to `zxid`."""
        if zxid <= self.tree.zxid:
            callback()
        else:
            self._awaited.append((zxid, callback))

    # --- clients

    def _accept(self, end: End, _: str) -> None:
        connection = ServerConnection(self, end)
        self.connections[id(connection)] = connection
        end.on_message = lambda message: self._receive(connection, message)
        end.on_lost = lambda: self.drop(connection)
        if not self.ensemble.is_serving:
            self.drop(connection)

    def drop(self, connection: ServerConnection) -> None:
        """Break the connection."""
        self.connections.pop(id(connection), None)
        connection.end.close()

    def _receive(self, connection: ServerConnection, message: tuple[Any, ...]) -> None:
        if connection.session is not None:
            self.ensemble.hear(connection.session)
        if message[0] == "ping":
            connection.end.send(("pong",))
            return
        connection.requests.append(message)
        if not connection.is_busy:
            self._next(connection)

    def _next(self, connection: ServerConnection) -> None:
        while connection.requests and not connection.is_busy:
            kind, number, *arguments = connection.requests.popleft()
            if kind == "connect":
                self._connect(connection, *arguments)
            elif kind in ("get", "exists", "children", "children_and_stat"):
                self._read(connection, kind, number, *arguments)
            elif kind == "get_many":
                self._read_many(connection, number, *arguments)
            else:
                connection.is_busy = True
                self._write(connection, number, *arguments)

    def _connect(self, connection: ServerConnection, number: int, timeout_s: float, zxid_seen: int) -> None:
        if zxid_seen > self.tree.zxid:
            self.drop(connection)  # a client never goes back to an older state
            return
        session = self.ensemble.session(number, timeout_s)
        if session is None:
            connection.end.send(("expired",))
            self.drop(connection)
            return
        connection.session = session
        connection.end.send(("connected", session.number, self.tree.zxid))

    def _read(self, connection: ServerConnection, kind: str, number: int, path: str, is_watched: bool) -> None:
        node = self.tree.nodes.get(path)
        if is_watched and (node is not None or kind == "exists"):
            connection.watches.add(("children" if kind.startswith("children") else "data", path))
        answer: Any
        if kind == "exists":
            answer = None if node is None else node.stat()
        elif node is None:
            answer = NoNodeError()
        elif kind == "children_and_stat":
            answer = sorted(node.children), node.stat()
        else:
            answer = sorted(node.children) if kind == "children" else (node.value, node.stat())
        connection.end.send(("answer", number, self.tree.zxid, answer))

    def _read_many(self, connection: ServerConnection, number: int, paths: tuple[str, ...]) -> None:
        nodes = [self.tree.nodes.get(path) for path in paths]
        answer = [None if node is None else (node.value, node.stat()) for node in nodes]
        connection.end.send(("answer", number, self.tree.zxid, answer))

    def _write(
        self, connection: ServerConnection, number: int, steps: tuple[TransactionStep, ...], is_close: bool
    ) -> None:
        session = connection.session
        ensemble = self.ensemble

        def order() -> None:
            if not ensemble.is_serving or session is None or session.is_expired:
                self.drop(connection)
                return
            if is_close:
                ensemble.expire(session)
                return
            outcome = ensemble.commit(session.number, steps)
            zxid = ensemble.tree.zxid
            self.when_applied(zxid, lambda: answer(zxid, outcome))

        def answer(zxid: int, outcome: list[Any]) -> None:
            connection.is_busy = False
            if id(connection) in self.connections:
                connection.end.send(("answer", number, zxid, outcome))
                self._next(connection)

        delay_s = ensemble.chance.uniform(0.0002, 0.002) + self.lag_s * ensemble.chance.random()
        ensemble.loop.call_later(delay_s, order, context=self.process.context)


class Ensemble:
    """The leader's view: the order of writes, and the sessions."""

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        chance: Random,
        tell: Callable[[str], None],
        servers: tuple[str, ...] = SERVERS,
    ) -> None:
        self.loop = loop
        self.network = network
        self.chance = chance
        self.tree = Tree()
        self.is_serving = True
        self.on_commit: CheckCommit | None = None
        self._tell = tell
        self._sessions: dict[int, Session] = {}
        self._session_count = 0
        self.servers = [Server(self, name) for name in servers]
        self._look_for_silence()

    def commit(self, session: int, steps: Iterable[TransactionStep], *, ends_session: bool = False) -> list[Any]:
        """Order all steps or none; the results, or the errors, one a step."""
        wanted = tuple(steps)
        zxid, now_ms = self.tree.zxid + 1, int(self.loop.now_s * 1000)
        refusal = self._refusal(wanted, zxid=zxid, session=session, now_ms=now_ms)
        if refusal is not None:
            return refusal
        for step in wanted:
            if self.on_commit is not None:
                self.on_commit(self.tree, step)
            self.tree.apply(step, zxid=zxid, session=session, now_ms=now_ms)
        self.tree.zxid = zxid
        commit = Commit(zxid, session, wanted, now_ms, ends_session)
        for server in self.servers:
            server.take(commit)
        return [step.path for step in wanted]

    def _refusal(
        self, wanted: tuple[TransactionStep, ...], *, zxid: int, session: int, now_ms: int
    ) -> list[Any] | None:
        """The errors, one a step, if one of the steps cannot be made; None if all can. The steps
        are tried and undone: a ledger must not note a step of a transaction that is refused.
        """
        done: list[Done] = []
        try:
            for position, step in enumerate(wanted):
                error = self.tree.check(step)
                if error is not None:
                    failed: list[Any] = [RolledBackError() for _ in wanted]
                    failed[position] = error
                    return failed
                if len(wanted) > 1:
                    parent = self.tree.nodes[parent_of(step.path)]
                    done.append((step, _copy(self.tree.nodes.get(step.path)), parent.children_zxid))
                    self.tree.apply(step, zxid=zxid, session=session, now_ms=now_ms)
            return None
        finally:
            self._undo(done)

    def _undo(self, done: list[Done]) -> None:
        for step, kept, children_zxid in reversed(done):
            parent, name = self.tree.nodes[parent_of(step.path)], step.path.rpartition("/")[2]
            if isinstance(step, CreateNode | DeleteNode):
                parent.child_changes, parent.children_zxid = parent.child_changes - 1, children_zxid
            if kept is None:
                del self.tree.nodes[step.path]
                parent.children.discard(name)
            else:
                self.tree.nodes[step.path] = kept
                parent.children.add(name)

    # --- sessions

    def session(self, number: int, timeout_s: float) -> Session | None:
        """The session, a new one for number 0, None for one that has expired."""
        if not number:
            self._session_count += 1
            number = 0x1000 + self._session_count
            self._sessions[number] = Session(number, timeout_s, self.loop.now_s)
        found = self._sessions.get(number)
        if found is not None:
            self.hear(found)
        return found

    def hear(self, session: Session) -> None:
        """Its client lives."""
        session.heard_at_s = self.loop.now_s

    def expire(self, session: Session) -> None:
        """End the session, and delete the znodes that it owns."""
        if session.is_expired:
            return
        session.is_expired = True
        self._sessions.pop(session.number, None)
        owned = sorted(path for path, node in self.tree.nodes.items() if node.owner == session.number)
        if owned:
            self._tell(f"session {session.number:#x} ends: {', '.join(owned)}")
        self.commit(session.number, [DeleteNode(path=path) for path in owned], ends_session=True)

    def lose_below(self, path: str) -> None:
        """Delete this znode and all below it, ephemeral ones too, as a person may do."""
        below = sorted((one for one in self.tree.nodes if one == path or one.startswith(f"{path}/")), reverse=True)
        self.commit(0, [DeleteNode(path=one) for one in below])

    def _look_for_silence(self) -> None:
        if self.is_serving:
            for session in tuple(self._sessions.values()):
                if self.loop.now_s - session.heard_at_s > session.timeout_s:
                    self.expire(session)
        self.loop.call_later(0.1, self._look_for_silence, context=self.network.context)

    # --- faults

    def go_out(self) -> None:
        """No quorum: every connection breaks, nothing is ordered."""
        self.is_serving = False
        for server in self.servers:
            for connection in tuple(server.connections.values()):
                server.drop(connection)

    def come_back(self) -> None:
        """A new leader gives every session its whole time."""
        self.is_serving = True
        for session in self._sessions.values():
            session.heard_at_s = self.loop.now_s


def _copy(node: Node | None) -> Node | None:
    return None if node is None else replace(node)
