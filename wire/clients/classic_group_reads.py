"""What a member of a classic consumer group reads of it in ZooKeeper before it computes the assignment: members, topics, brokers.

Each question sets a watch unless one is set; a watch only sets a flag. A member that nobody understands is passed over: every member
does that, so they still agree, and it alone gets nothing. Used by `zookeeper_consumer.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from runtime.addresses import HostPort
from runtime.logs import get_logger
from runtime.zookeeper import Watch, ZooKeeper
from wire import znodes
from wire.clients.core.classic_group import check_filters
from wire.consumer_znodes import STATIC, ConsumerRegistration, decode_registration, id_path, ids_path

CLIENT_LISTENER: Final = "CLIENT"
Answer = TypeVar("Answer")

_log = get_logger("clients.zookeeper_consumer")


class GroupReads:
    """The questions of one member; `changed` is set when a watch fires."""

    def __init__(self, zookeeper: ZooKeeper, group_id: str, changed: asyncio.Event) -> None:
        self._zookeeper = zookeeper
        self._group_id = group_id
        self._changed = changed
        self._armed: set[str] = set()

    def forget_watches(self) -> None:
        """The session that they were set in is over."""
        self._armed.clear()

    async def _watched(self, path: str, ask: Callable[[Watch | None], Awaitable[Answer]]) -> Answer:
        """Ask with a watch, unless one is set on the path. A question that failed has set none that could be relied on."""
        if path in self._armed:
            return await ask(None)

        def fired(_: object) -> None:
            self._armed.discard(path)
            self._changed.set()

        # Noted before it is asked: the watch may fire before the answer is looked at.
        self._armed.add(path)
        try:
            return await ask(fired)
        except BaseException:
            self._armed.discard(path)
            raise

    async def group(self) -> tuple[dict[str, ConsumerRegistration], list[str]]:
        """Every member's registration that can be used, and the topics that there are if a member asks for a pattern of them."""
        group = self._group_id
        found = {}
        members = await self._watched(
            ids_path(group), lambda watch: self._zookeeper.children(ids_path(group), watch=watch)
        )
        for consumer in members:
            path = id_path(group, consumer)
            told = await self._zookeeper.get_or_none(path)
            if told is None:
                continue
            try:
                registration = decode_registration(path, told[0])
                check_filters(registration)
            except ValueError as error:
                # every member passes it over, so they still agree; it alone gets nothing
                _log.warning("a member's registration cannot be used", group=group, member=consumer, reason=str(error))
                continue
            found[consumer] = registration
        topics: list[str] = []
        if any(registration.pattern != STATIC for registration in found.values()):
            await self._zookeeper.ensure_path(znodes.TOPICS)
            topics = await self._watched(
                znodes.TOPICS, lambda watch: self._zookeeper.children(znodes.TOPICS, watch=watch)
            )
        return found, topics

    async def brokers(self) -> list[HostPort]:
        """Where clients find the brokers that are registered."""
        await self._zookeeper.ensure_path(znodes.BROKER_IDS)
        node_ids = await self._zookeeper.children(znodes.BROKER_IDS)
        if not node_ids:
            node_ids = await self._watched(
                znodes.BROKER_IDS, lambda watch: self._zookeeper.children(znodes.BROKER_IDS, watch=watch)
            )
        addresses = []
        for node_id in filter(str.isdecimal, node_ids):
            told = await self._zookeeper.get_or_none(znodes.broker_path(int(node_id)))
            if told is not None:
                endpoints = znodes.decode_broker(int(node_id), told[0]).endpoints
                # Kafka's own registrations name listeners by their protocol; ours have one for clients.
                for_clients = [endpoint for endpoint in endpoints if endpoint.listener == CLIENT_LISTENER]
                addresses += [HostPort(endpoint.host, endpoint.port) for endpoint in (for_clients or endpoints)[:1]]
        return addresses

    async def partitions(self, topic: str) -> list[int]:
        """A topic's partitions."""
        path = znodes.topic_path(topic)
        told = await self._watched(path, lambda watch: self._zookeeper.get_or_none(path, watch=watch))
        return [] if told is None else sorted(znodes.decode_topic(topic, told[0]).partitions)
