"""A copy of a site's ZooKeeper in memory, kept up to date by watches: brokers, controller, links,
the topics that peers may see, and their partition states.

Each znode is read once, and again only after its watch has fired, however often callers ask; one
request reads many of them, because a promotion changes the state of every partition. While the
session is disconnected, the cache keeps the last contents. At the disconnect kazoo fires every
watch, so everything is read again after the reconnect. A malformed znode affects only its own
topic, broker or link, which the facts name as unreadable: the topic or broker is left out; the link
keeps its last readable record, or is left out. Owned by the site agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError, SessionExpiredError
from kazoo.protocol.states import WatchedEvent

from dr.agent.core.site_view import Place, SiteFacts, matters_to_peers
from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from runtime.supervision import Supervisor
from runtime.zookeeper.client import ZooKeeper, until_answered
from runtime.zookeeper.handler import Watch
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
"""Errors after which ZooKeeper may or may not have executed a write."""

PAUSE_MAX_S = 0.5
"""Longest pause (s) after a refresh: while a promotion changes thousands of partition states, each
refresh would otherwise find a few of them.
"""

STATES_AT_ONCE_MAX = 100
STATES_PAUSE_S = 3.0
PROMOTION_S = 20.0
"""When more partition states than STATES_AT_ONCE_MAX change within PROMOTION_S (s) after a link,
they are read together after STATES_PAUSE_S (s). A promotion changes all of them in the seconds
after it, and the peers need no states: they know the new leader epochs from the link's record.
"""

NODES_PER_READ_MAX = 500
"""Znodes that one request reads: single reads would cost kazoo's thread 200 µs each."""

_Stored: TypeAlias = tuple[bytes, NodeStat]
Assignments: TypeAlias = dict[str, TopicAssignment]
States: TypeAlias = dict[tuple[str, int], tuple[StoredPartitionState, int]]


class SiteCache:
    """Follows one site's ZooKeeper; `facts` has its current contents."""

    def __init__(self, site: str, zookeeper: ZooKeeper) -> None:
        self._site = site
        self._zookeeper = zookeeper
        self._data: dict[str, tuple[bytes, NodeStat] | None] = {}
        self._children: dict[str, list[str]] = {}
        self._dirty: set[str] = set()
        self._dirty_lists: set[str] = set()
        # Known partition states: many of them wait for `_read_states`.
        self._dirty_states: set[str] = set()
        self._read_states: asyncio.TimerHandle | None = None
        self._link_changed_s = float("-inf")
        self._wake = asyncio.Event()
        self._loops = Supervisor()
        self._facts: SiteFacts | None = None
        self._understood: dict[str, LinkRecord] = {}
        # Decoded contents with what they were decoded from: of thousands few change at once.
        self._assignments: dict[str, tuple[bytes, TopicAssignment]] = {}
        self._states: dict[str, tuple[_Stored, StoredPartitionState]] = {}
        self._decoded_topics: dict[str, tuple[TopicAssignment, States]] = {}
        self._read_topics: list[str] = []
        self._unreadable: dict[Place, str] = {}
        # Both outlast a refresh that fails.
        self._may_lack_some = True
        self._has_changed = True
        self._have_topics_changed = True
        self._listeners: list[Callable[[], None]] = []
        self.changes = 0
        self.topic_changes = 0
        """Grows with each change of topics and partition states alone."""

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
        if self._read_states is not None:
            self._read_states.cancel()

    async def _follow(self) -> None:
        self._wake.set()  # changes from before a restart of this loop are still marked dirty
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            began_s = loop.time()
            async for attempt in jittered_backoff(retry_on=DISCONNECTED):
                with attempt:
                    await self._refresh()
            # As long as the refresh took: of thousands that change one after the other, many are
            # read together.
            await asyncio.sleep(min(loop.time() - began_s, PAUSE_MAX_S))

    @property
    def facts(self) -> SiteFacts:
        """The decoded contents. Raises MalformedZnode when the cluster id cannot be parsed."""
        if self._facts is None:
            self._facts = self._decoded()
        return self._facts

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Every topic of the site, mirrored or not."""
        return tuple(self._children.get(znodes.TOPICS, ()))

    def _decoded(self) -> SiteFacts:
        unreadable: dict[Place, str] = {}
        cluster = self._data.get(znodes.CLUSTER_ID)
        links = self._links(unreadable)
        topics, states = self._topics(links.values(), unreadable)
        brokers = self._brokers(unreadable)
        controller_id = self._controller_id(unreadable)
        for place in unreadable.keys() - self._unreadable.keys():
            log.warning("a znode cannot be parsed", kind=place.kind, name=place.name, problem=unreadable[place])
        for place in self._unreadable.keys() - unreadable.keys():
            log.info("a znode can be parsed again, or was deleted", kind=place.kind, name=place.name)
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
        assignment = self._assignment(topic, payload)
        decoded = self._decoded_topics.get(topic)
        if decoded is not None and decoded[0] is assignment:
            return decoded
        states = {}
        for index in assignment.partitions:
            path = znodes.partition_state_path(topic, index)
            stored = self._data.get(path)
            if stored is None:
                continue
            known = self._states.get(path)
            if known is None or known[0] is not stored:
                known = self._states[path] = (stored, decode_partition_state(topic, index, stored[0]))
            states[topic, index] = (known[1], stored[1].version)
        self._decoded_topics[topic] = assignment, states
        return assignment, states

    def _assignment(self, topic: str, payload: bytes) -> TopicAssignment:
        known = self._assignments.get(topic)
        if known is None or known[0] != payload:
            known = self._assignments[topic] = (payload, decode_topic(topic, payload))
        return known[1]

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
        """The registered brokers."""
        return znodes.broker_ids(self._children.get(znodes.BROKER_IDS, ()))

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
        topics = self._read_topics = self._watched_topics(self._links().values())
        for topic in self._assignments.keys() - topics:
            del self._assignments[topic]
            self._decoded_topics.pop(topic, None)
        for topic in topics:
            path = znodes.topic_path(topic)
            wanted.add(path)
            stored = self._data.get(path)
            if stored is not None:
                wanted.update(znodes.partition_state_path(topic, index) for index in self._partitions(topic, stored[0]))
        return wanted

    def _partitions(self, topic: str, payload: bytes) -> Iterable[int]:
        """The topic's partitions; none if its assignment cannot be parsed."""
        try:
            return self._assignment(topic, payload).partitions
        except MalformedZnode:
            return ()

    async def _refresh(self) -> None:
        while True:
            lists = [
                path
                for path in (znodes.BROKER_IDS, znodes.TOPICS, znodes.LINKS)
                if path in self._dirty_lists or path not in self._children
            ]
            await _all_of(self._read_children(path) for path in lists)
            # Changed znodes are read before anything is decoded: the change may have repaired a
            # malformed one.
            stale = (self._dirty | self._due_states()) & self._data.keys()
            await self._read_data(stale)
            self._may_lack_some = self._may_lack_some or bool(lists) or self._may_name_others(stale)
            self._note_changes({*lists, *stale})
            if not self._may_lack_some:
                break
            self._may_lack_some = await self._read_missing()
        if self._has_changed:
            self.topic_changes += self._have_topics_changed
            self._has_changed = self._have_topics_changed = False
            self._facts = None
            self.changes += 1
            for listener in tuple(self._listeners):
                listener()

    def _may_name_others(self, changed: Collection[str]) -> bool:
        """True if one of these znodes may name some that were not read. The record of a link that
        moves, for which writers wait, names the same ones.
        """
        if any(path.startswith(znodes.TOPICS) and path not in self._states for path in changed):
            return True
        has_link = any(path.startswith(znodes.LINKS) for path in changed)
        return has_link and self._watched_topics(self._links().values()) != self._read_topics

    async def _read_missing(self) -> bool:
        """Read the znodes that matter and are not known, and forget those that do not matter. True
        if there was one to read: it may name others.
        """
        wanted = self._wanted()
        unwanted = self._data.keys() - wanted
        for path in unwanted:
            del self._data[path]
            self._states.pop(path, None)
        self._dirty &= wanted
        self._dirty_states &= wanted
        missing = [path for path in wanted if path not in self._data]
        await self._read_data(missing)
        self._note_changes({*missing, *unwanted})
        return bool(missing)

    def _note_changes(self, paths: set[str]) -> None:
        self._has_changed = self._has_changed or bool(paths)
        self._have_topics_changed |= any(path.startswith(znodes.TOPICS) for path in paths)

    async def _read_children(self, path: str) -> None:
        # Before the read, as below: a change during the read marks the path again.
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
                # Created between the two calls: the watch of `exists` will not report it.
                self._children_changed(path, None)
            return []

    async def _read_data(self, paths: Collection[str]) -> None:
        listed = list(paths)
        windows = (listed[start : start + NODES_PER_READ_MAX] for start in range(0, len(listed), NODES_PER_READ_MAX))
        await _all_of(self._read_window(window) for window in windows)

    async def _read_window(self, paths: Sequence[str]) -> None:
        self._dirty.difference_update(paths)
        self._dirty_states.difference_update(paths)
        try:
            found = await self._zookeeper.get_many_watched({path: partial(self._data_changed, path) for path in paths})
        except BaseException:
            self._dirty.update(paths)
            raise
        self._data.update(zip(paths, found, strict=True))
        for path in paths:
            if (topic := znodes.topic_of_path(path)) is not None:
                self._decoded_topics.pop(topic, None)

    def _children_changed(self, path: str, _: WatchedEvent | None) -> None:
        self._dirty_lists.add(path)
        self._wake.set()

    def _data_changed(self, path: str, _: WatchedEvent | None) -> None:
        loop = asyncio.get_running_loop()
        if path not in self._states:
            if path.startswith(znodes.LINKS):
                self._link_changed_s = loop.time()
            self._dirty.add(path)
            self._wake.set()
            return
        self._dirty_states.add(path)
        if self._read_states is not None:
            return
        is_promotion = loop.time() - self._link_changed_s < PROMOTION_S
        if len(self._dirty_states) <= STATES_AT_ONCE_MAX or not is_promotion:
            self._wake.set()
        else:
            self._read_states = loop.call_later(STATES_PAUSE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._read_states = None
        self._dirty |= self._dirty_states
        self._dirty_states.clear()
        self._wake.set()

    def _due_states(self) -> set[str]:
        """The changed states that the next refresh reads: all of a few, none while many change."""
        return set() if self._read_states is not None else self._dirty_states


async def _all_of(reads: Iterable[Awaitable[None]]) -> None:
    # All end before an error is raised: a later result would be stored after the check for missing
    # paths, and its watch would not fire again.
    outcomes = await asyncio.gather(*reads, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
