"""A client's knowledge of its topics: partitions, leaders, epochs, ids. Age and demand refresh it.

One refresh runs at a time, and all callers that want one share it. Used by the producer and the
reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID

from kio.schema.errors import ErrorCode

from runtime.clock import Clock
from runtime.retries import jittered_backoff
from wire.client.client_errors import TRANSIENT, KafkaClientError, broker_error
from wire.client.cluster_metadata import TopicMetadata
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import METADATA


class Topics:
    """The topics of one client. `run` refreshes until cancelled."""

    def __init__(
        self,
        client: KafkaClient,
        clock: Clock,
        *,
        max_age_ms: float,
        backoff_ms: float,
        may_create: bool,
        first_look_ms: float,
        on_refresh: Callable[[], None],
    ) -> None:
        """With a `max_age_ms` of 0 or less, metadata are never too old: only a doubt or a request
        refreshes them.
        """
        self._client = client
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._backoff_ms = backoff_ms
        self._may_create = may_create
        self._first_look_ms = first_look_ms
        self._on_refresh = on_refresh
        self._wanted: set[str] = set()
        self._doubted: set[str] = set()
        self._last_reported: dict[str, TopicMetadata] = {}
        self._asked = asyncio.Event()
        self.refreshes = 0
        self.last_problem = ""

    def want(self, topics: Iterable[str]) -> None:
        """Keep these topics fresh too."""
        new = set(topics) - self._wanted
        self._wanted |= new
        if new:
            self._asked.set()

    def forget(self, topics: Iterable[str]) -> None:
        """No longer needed."""
        self._wanted.difference_update(topics)

    def refresh_soon(self) -> None:
        """Ask again for everything that is wanted."""
        self._asked.set()

    def doubt(self, topic: str) -> None:
        """The known leaders were wrong: the topic has none until the next metadata."""
        self._doubted.add(topic)
        self._wanted.add(topic)
        self._asked.set()

    def known(self, topic: str) -> TopicMetadata | None:
        """The last metadata of the topic; None when there was none."""
        return self._last_reported.get(topic)

    def topic_id(self, topic: str) -> UUID | None:
        """The topic's id in requests."""
        found = self._last_reported.get(topic)
        return None if found is None else found.topic_id

    def leader_of(self, topic: str, partition: int) -> int:
        """Node id of the leader; -1 if the partition has none, or while it is being looked up."""
        return -1 if topic in self._doubted else self._client.cluster.leader_of(topic, partition)

    async def look_up(self, topic: str) -> TopicMetadata:
        """The cached metadata, or the brokers' current metadata. Raises BrokerError when the topic
        does not exist; Unreachable.
        """
        found = self.known(topic)
        if found is not None:
            return found
        attempts = jittered_backoff(retry_on=TRANSIENT, budget_ms=self._first_look_ms)
        metadata: TopicMetadata = await attempts(self._look_up_once, topic)
        self._wanted.add(topic)
        self._remember([topic])
        return metadata

    async def _look_up_once(self, topic: str) -> TopicMetadata:
        found = (await self._client.metadata([topic], may_create=self._may_create)).topics.get(topic)
        self.refreshes += 1
        if found is None or found.error_code or not found.partitions:
            code = ErrorCode.unknown_topic_or_partition if found is None or not found.error_code else found.error_code
            raise broker_error(code, message=topic, api_key=METADATA)
        return found

    async def run(self) -> None:
        """Refresh on request and when metadata are too old."""
        while True:
            try:
                async with asyncio.timeout(self._max_age_ms / 1000 if self._max_age_ms > 0 else None):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            if not self._wanted:
                continue
            asked = sorted(self._wanted)
            doubted = sorted(self._doubted & self._wanted)
            try:
                await self._client.metadata(asked)
                if self._may_create and doubted:
                    # topics in use right now; a deleted topic must not be created again because a
                    # record was once sent to it
                    await self._client.metadata(doubted, may_create=True)
                self.refreshes += 1
                self.last_problem = ""
                self._remember(asked)
            except KafkaClientError as error:
                self.last_problem = str(error)
                self._asked.set()
            # Elections take a while, and frequent requests do not make them faster.
            await asyncio.sleep(self._backoff_ms / 1000)

    def _remember(self, topics: Iterable[str]) -> None:
        for name in topics:
            found = self._client.cluster.topics.get(name)
            if found is not None and not found.error_code and found.partitions:
                self._last_reported[name] = found
            self._doubted.discard(name)
        self._on_refresh()
