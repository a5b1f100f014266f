"""A site's ZooKeeper as this process last saw it, kept by watches: brokers, controller, links,
topics that matter to peers, their states.

Each znode is read once and again only after its watch fired, whatever asks for the view and however
often. While the session is cut off the last contents stand; kazoo fires every watch then, so all is
read again after the reconnect. A znode that cannot be understood costs its own topic, broker or
link, which the facts name as unreadable: a topic or broker is left out, and a link is what it was
when it could be understood last, or left out. Owned by the site agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import TypeAlias

from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError, SessionExpiredError
from kazoo.protocol.states import WatchedEvent

from dr.agent.core.site_view import Place, SiteFacts, matters_to_peers
from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from runtime.supervision import Supervisor
from runtime.zookeeper.client import Watch, ZooKeeper, until_answered
from runtime.zookeeper.nodes import NodeStat
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.cluster_pb2 import LinkRecord
from wire.znodes import layout as znodes
from wire.znodes.broker_znodes import BrokerRegistration, decode_broker
from wire.znodes.cluster_znodes import decode_cluster_id, decode_controller
from wire.znodes.documents import MalformedZnode
from wire.znodes.link_znodes import decode_link
from wire.znodes.topic_znodes import StoredPartitionState, TopicAssignment, decode_partition_state, decode_topic

log = get_logger(__name__)

DISCONNECTED = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)
"""ZooKeeper did not answer; the outcome of a write is unknown."""

READS_AT_ONCE = 200

Assignments: TypeAlias = dict[str, TopicAssignment]
States: TypeAlias = dict[tuple[str, int], tuple[StoredPartitionState, int]]


class SiteCache:
    """Follow one site's ZooKeeper; `facts` is what it says now."""

    def __init__(self, site: str, zookeeper: ZooKeeper) -> None:
        self._site = site
        self._zookeeper = zookeeper
        self._data: dict[str, tuple[bytes, NodeStat] | None] = {}
        self._children: dict[str, list[str]] = {}
        self._dirty: set[str] = set()
        self._dirty_lists: set[str] = set()
        self._wake = asyncio.Event()
        self._loops = Supervisor()
        self._facts: SiteFacts | None = None
        self._understood: dict[str, LinkRecord] = {}
        self._unreadable: dict[Place, str] = {}
        self._listeners: list[Callable[[], None]] = []
        self.changes = 0

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after the contents have changed."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Read everything once, then follow."""
        await until_answered(self._refresh)
        self._loops.start("site cache", self._follow)

    async def stop(self) -> None:
        """Stop following."""
        await self._loops.stop()

    async def _follow(self) -> None:
        self._wake.set()  # what changed when the loop died
        while True:
            await self._wake.wait()
            self._wake.clear()
            async for attempt in jittered_backoff(retry_on=DISCONNECTED):
                with attempt:
                    await self._refresh()

    @property
    def facts(self) -> SiteFacts:
        """The decoded contents. MalformedZnode when the cluster's id cannot be understood."""
        if self._facts is None:
            self._facts = self._decoded()
        return self._facts

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Every topic of the site, carried or not."""
        return tuple(self._children.get(znodes.TOPICS, ()))

    def _decoded(self) -> SiteFacts:
        unreadable: dict[Place, str] = {}
        cluster = self._data.get(znodes.CLUSTER_ID)
        links = self._links(unreadable)
        topics, states = self._topics(links.values(), unreadable)
        brokers = self._brokers(unreadable)
        controller_id = self._controller_id(unreadable)
        for place in unreadable.keys() - self._unreadable.keys():
            log.warning("a znode cannot be understood", kind=place.kind, name=place.name, problem=unreadable[place])
        for place in self._unreadable.keys() - unreadable.keys():
            log.info("a znode can be understood again, or is gone", kind=place.kind, name=place.name)
        self._unreadable = unreadable
        return SiteFacts(
            site=self._site,
            cluster_id=decode_cluster_id(cluster[0]) if cluster else "",
            controller_id=controller_id,
            brokers=brokers,
            links=links,
            topics=topics,
            states=states,
            unreadable=unreadable,
        )

    def _controller_id(self, unreadable: dict[Place, str]) -> int:
        stored = self._data.get(znodes.CONTROLLER)
        if stored is None:
            return -1
        try:
            return decode_controller(stored[0]).controller_id
        except MalformedZnode as error:
            unreadable[Place("controller", "")] = str(error)
            return -1

    def _topics(self, links: Collection[LinkRecord], unreadable: dict[Place, str]) -> tuple[Assignments, States]:
        topics: Assignments = {}
        states: States = {}
        for topic in self._watched_topics(links):
            stored = self._data.get(znodes.topic_path(topic))
            if stored is None:
                continue
            try:
                assignment, states_of = self._topic(topic, stored[0])
            except MalformedZnode as error:
                unreadable[Place("topic", topic)] = str(error)
                continue
            topics[topic] = assignment
            states.update(states_of)
        return topics, states

    def _topic(self, topic: str, payload: bytes) -> tuple[TopicAssignment, States]:
        assignment = decode_topic(topic, payload)
        states = {}
        for index in assignment.partitions:
            state = self._data.get(znodes.partition_state_path(topic, index))
            if state is not None:
                states[topic, index] = (decode_partition_state(topic, index, state[0]), state[1].version)
        return assignment, states

    def _brokers(self, unreadable: dict[Place, str]) -> dict[int, tuple[BrokerRegistration, int]]:
        brokers = {}
        for node_id in self._node_ids():
            stored = self._data.get(znodes.broker_path(node_id))
            if stored is None:
                continue
            try:
                brokers[node_id] = (decode_broker(node_id, stored[0]), stored[1].czxid)
            except MalformedZnode as error:
                unreadable[Place("broker", str(node_id))] = str(error)
        return brokers

    def _node_ids(self) -> list[int]:
        """Registered brokers; a name that is no node id was written by no broker, and the
        controller passes it over, too.
        """
        return [int(name) for name in self._children.get(znodes.BROKER_IDS, ()) if name.isdecimal()]

    def _links(self, unreadable: dict[Place, str] | None = None) -> dict[str, LinkRecord]:
        links = {}
        for name in self._children.get(znodes.LINKS, ()):
            stored = self._data.get(znodes.link_path(name))
            if stored is None:
                continue
            try:
                links[name] = decode_link(name, stored[0])
            except MalformedZnode as error:
                if unreadable is not None:
                    unreadable[Place("link", name)] = str(error)
                if name in self._understood:
                    links[name] = self._understood[name]
        self._understood = links
        return links

    def _watched_topics(self, links: Collection[LinkRecord]) -> list[str]:
        return [topic for topic in self.topic_names if topic == OFFSETS_TOPIC or matters_to_peers(links, topic)]

    def _wanted(self) -> set[str]:
        """Paths whose data matter, given what is known so far."""
        wanted = {znodes.CLUSTER_ID, znodes.CONTROLLER}
        wanted.update(map(znodes.broker_path, self._node_ids()))
        wanted.update(znodes.link_path(name) for name in self._children.get(znodes.LINKS, ()))
        for topic in self._watched_topics(self._links().values()):
            path = znodes.topic_path(topic)
            wanted.add(path)
            stored = self._data.get(path)
            if stored is not None:
                partitions = _partitions(topic, stored[0])
                wanted.update(znodes.partition_state_path(topic, index) for index in partitions)
        return wanted

    async def _refresh(self) -> None:
        has_changed = False
        while True:
            lists = [
                path
                for path in (znodes.BROKER_IDS, znodes.TOPICS, znodes.LINKS)
                if path in self._dirty_lists or path not in self._children
            ]
            await self._read_each(self._read_children, lists)
            # before any of it is decoded: what could not be understood may be what has changed
            stale = self._dirty & self._data.keys()
            await self._read_each(self._read_data, stale)
            wanted = self._wanted()
            for path in self._data.keys() - wanted:
                del self._data[path]
            self._dirty &= wanted
            missing = [path for path in wanted if path in self._dirty or path not in self._data]
            await self._read_each(self._read_data, missing)
            if not lists and not stale and not missing:
                break
            has_changed = True
        if has_changed:
            self._facts = None
            self.changes += 1
            for listener in tuple(self._listeners):
                listener()

    async def _read_each(self, read: Callable[[str], Awaitable[None]], paths: Iterable[str]) -> None:
        gate = asyncio.Semaphore(READS_AT_ONCE)

        async def one(path: str) -> None:
            async with gate:
                await read(path)

        outcomes = await asyncio.gather(*(one(path) for path in paths), return_exceptions=True)
        # When all have had their turn: one that ended after the next look would be in no contents,
        # and nothing would ask for it again.
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _read_children(self, path: str) -> None:
        self._dirty_lists.discard(path)
        watch = partial(self._children_changed, path)
        try:
            self._children[path] = await self._children_now(path, watch)
        except BaseException:
            self._dirty_lists.add(path)
            raise

    async def _children_now(self, path: str, watch: Watch) -> list[str]:
        try:
            return await self._zookeeper.children(path, watch=watch)
        except NoNodeError:
            if await self._zookeeper.exists(path, watch=watch) is not None:
                self._children_changed(path, None)
            return []

    async def _read_data(self, path: str) -> None:
        self._dirty.discard(path)
        watch = partial(self._data_changed, path)
        try:
            self._data[path] = await self._data_now(path, watch)
        except BaseException:
            self._dirty.add(path)
            raise

    async def _data_now(self, path: str, watch: Watch) -> tuple[bytes, NodeStat] | None:
        try:
            return await self._zookeeper.get(path, watch=watch)
        except NoNodeError:
            if await self._zookeeper.exists(path, watch=watch) is not None:
                self._data_changed(path, None)
            return None

    def _children_changed(self, path: str, _: WatchedEvent | None) -> None:
        self._dirty_lists.add(path)
        self._wake.set()

    def _data_changed(self, path: str, _: WatchedEvent | None) -> None:
        self._dirty.add(path)
        self._wake.set()


def _partitions(topic: str, payload: bytes) -> Iterable[int]:
    """None where the assignment cannot be understood: the topic is left out then."""
    try:
        return decode_topic(topic, payload).partitions
    except MalformedZnode:
        return ()
