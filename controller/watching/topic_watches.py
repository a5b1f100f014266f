"""Watch topics whose assignment another process writes.

Kafka's older tools add partitions by changing `/brokers/topics/<topic>` themselves, and some topics
are created in more than one write. Each topic's znode has a watch. The controller gets an unknown
version as a command. It writes the znode again after it has applied it, because such tools drop the
topic id. Few znodes are read at a time: a site may have thousands of topics, and all watches fire
when the connection breaks; the first reads begin when a takeover is over. A malformed node is
reported, and read again when it changes.

Caller: `event_loop.py`, for the time of a tenure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from kazoo.exceptions import KazooException

from controller.core.commands import PartitionsFound
from controller.core.state.cluster import Cluster
from controller.stored.cluster_reader import ClusterReader
from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from wire.znodes.documents import MalformedZnode

LOOKS_AT_ONCE: Final = 16
FIRST_LOOK_AFTER_S = 10.0
"""Time (s) from the start of a tenure to the first read, which finds changes made since the cluster
was loaded.
"""

_log = get_logger(__name__)


class TopicWatches:
    """The watches of one tenure."""

    def __init__(
        self,
        reader: ClusterReader,
        tell: Callable[[PartitionsFound], Awaitable[None]],
        *,
        discover: Callable[[Iterable[str]], Awaitable[None]],
        cluster: Callable[[], Cluster],
    ) -> None:
        self._reader = reader
        self._tell = tell
        self._discover = discover
        self._cluster = cluster
        self._watched: set[str] = set()
        self._due: dict[str, None] = {}
        self._has_due = asyncio.Event()

    def follow(self, names: Iterable[str]) -> None:
        """Watch the new ones among the present topics."""
        for name in names:
            if name not in self._watched:
                self._watched.add(name)
                self._look_at(name)

    def _look_at(self, name: str) -> None:
        self._due[name] = None
        self._has_due.set()

    async def run(self) -> None:
        """Read the topics whose watch has fired, until cancelled."""
        await asyncio.sleep(FIRST_LOOK_AFTER_S)
        while True:
            await self._has_due.wait()
            names = list(self._due)[:LOOKS_AT_ONCE]
            for name in names:
                del self._due[name]
            if not self._due:
                self._has_due.clear()
            await asyncio.gather(*(self._look(name) for name in names))

    async def _look(self, name: str) -> None:
        async for attempt in jittered_backoff(retry_on=KazooException, initial_ms=20, max_ms=500):
            with attempt:
                version = await self._reader.topic_version(name, lambda _: self._look_at(name))
        known = self._cluster().topics.get(name)
        if version is None:
            self._watched.discard(name)
        elif known is None:
            # the first write of such a tool may have had no partitions, so the topic was not
            # created then
            async for attempt in jittered_backoff(retry_on=KazooException, initial_ms=20, max_ms=500):
                with attempt:
                    await self._discover([name])
        elif version > known.version:
            await self._take(name)

    async def _take(self, name: str) -> None:
        try:
            found = await self._reader.assignment(name)
        except MalformedZnode as error:
            _log.error("malformed topic assignment in ZooKeeper is not applied", problem=str(error))
            return
        if found is not None:
            partitions, version = found
            await self._tell(PartitionsFound(topic=name, assignment=partitions, version=version))
