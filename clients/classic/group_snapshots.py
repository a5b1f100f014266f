"""A classic consumer's view of its group in ZooKeeper: members, brokers, topics and partitions,
with a watch on each.

A watch only shows that something has changed. It is set once and recorded; a watch that has fired,
or whose request failed, is set again by the next request. Used by the high-level consumer, which
reads everything again in every rebalance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from runtime.addresses import HostPort
from runtime.logs import get_logger
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.handler import Watch
from wire.znodes import layout as znodes
from wire.znodes.broker_znodes import decode_broker
from wire.znodes.consumer_znodes import STATIC, ConsumerRegistration, decode_registration, id_path, ids_path
from wire.znodes.documents import MalformedZnode
from wire.znodes.topic_znodes import decode_topic

CLIENT_LISTENER: Final = "CLIENT"
Answer = TypeVar("Answer")
_log = get_logger("clients.classic.group_snapshots")


class GroupSnapshots:
    """The group as one member reads it. `on_change` is called in the event loop when a watch
    fires.
    """

    def __init__(self, zookeeper: ZooKeeper, group: str, *, on_change: Callable[[], None]) -> None:
        self._zookeeper = zookeeper
        self._group = group
        self._on_change = on_change
        self._armed: set[str] = set()

    def forget_watches(self) -> None:
        """The session in which the watches were set has ended."""
        self._armed.clear()

    async def members(self) -> tuple[dict[str, ConsumerRegistration], list[str]]:
        """The registered members in the order of registration, and the site's topics if any member
        subscribes by a filter. Unreadable registrations are skipped.
        """
        group = self._group
        made: list[tuple[int, str, ConsumerRegistration]] = []
        members = await self._watched(
            ids_path(group), lambda watch: self._zookeeper.children(ids_path(group), watch=watch)
        )
        for consumer in members:
            path = id_path(group, consumer)
            stored = await self._zookeeper.get_or_none(path)
            if stored is None:
                continue
            try:
                made.append((stored[1].czxid, consumer, decode_registration(path, stored[0])))
            except MalformedZnode as error:
                _log.warning("a member of the group is left out", group=group, consumer=consumer, reason=str(error))
        found = {consumer: registration for _, consumer, registration in sorted(made, key=lambda each: each[:2])}
        topics: list[str] = []
        if any(registration.pattern != STATIC for registration in found.values()):
            await self._zookeeper.ensure_path(znodes.TOPICS)
            topics = await self._watched(
                znodes.TOPICS, lambda watch: self._zookeeper.children(znodes.TOPICS, watch=watch)
            )
        return found, topics

    async def brokers(self) -> list[HostPort]:
        """The client addresses of the registered brokers. Raises MalformedZnode."""
        await self._zookeeper.ensure_path(znodes.BROKER_IDS)
        node_ids = await self._zookeeper.children(znodes.BROKER_IDS)
        if not node_ids:
            node_ids = await self._watched(
                znodes.BROKER_IDS, lambda watch: self._zookeeper.children(znodes.BROKER_IDS, watch=watch)
            )
        addresses = []
        for node_id in znodes.broker_ids(node_ids):
            stored = await self._zookeeper.get_or_none(znodes.broker_path(node_id))
            if stored is not None:
                endpoints = decode_broker(node_id, stored[0]).endpoints
                # Kafka's own registrations name listeners by their protocol; ours have one for
                # clients.
                for_clients = [endpoint for endpoint in endpoints if endpoint.listener == CLIENT_LISTENER]
                addresses += [HostPort(endpoint.host, endpoint.port) for endpoint in (for_clients or endpoints)[:1]]
        return addresses

    async def partitions(self, topic: str) -> list[int]:
        """A topic's partitions, none when it is not there. MalformedZnode."""
        path = znodes.topic_path(topic)
        stored = await self._watched(path, lambda watch: self._zookeeper.get_or_none(path, watch=watch))
        return [] if stored is None else sorted(decode_topic(topic, stored[0]).partitions)

    async def _watched(self, path: str, ask: Callable[[Watch | None], Awaitable[Answer]]) -> Answer:
        """Read with a watch, unless one is already set on the path. A failed request has set no
        reliable watch.
        """
        if path in self._armed:
            return await ask(None)

        def fired(_: object) -> None:
            self._armed.discard(path)
            self._on_change()

        # Recorded before the request: the watch may fire before the answer is processed.
        self._armed.add(path)
        try:
            return await ask(fired)
        except BaseException:
            self._armed.discard(path)
            raise
