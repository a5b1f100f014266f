"""Metadata and administration over librdkafka's admin client, awaited on the event loop.

One metadata request serves all requests that want it at the same time. The list of topics is cached
for a moment, for the check of each produce request; an unknown topic is looked up again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from bridge.config import BridgeSettings
from bridge.core.refusals import UNKNOWN_TOPIC_OR_PARTITION, Refused, kafka_refuses_login, unknown_topic_or_partition
from bridge.kafka_errors import UNREACHED, error_of, refused
from runtime.retries import jittered_backoff

UNKNOWN_AFTER_S = 3.0
ASKED_AGAIN_AFTER_S = 0.1
TOPICS_LIFE_S = 30.0
THREADS = 4
GROUPS_TIMEOUT_S = 3.0
"""The bridge asks every broker for its groups. librdkafka retries a dead broker without a pause
until this timeout.
"""

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Result = TypeVar("Result")


class KnownPartition(NamedTuple):
    """A partition in a broker's metadata; leader -1 for none. The fields are named as in
    librdkafka's metadata of all topics.
    """

    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]


class KnownTopic(NamedTuple):
    """A topic and its partitions by number."""

    topic: str
    partitions: dict[int, KnownPartition]


class Admin:
    """Queries and changes of the site."""

    def __init__(self, settings: BridgeSettings) -> None:
        self._timeout_s = settings.admin_timeout_ms / 1000
        self._properties: dict[str, Any] = {
            **settings.admin_properties,
            "bootstrap.servers": settings.bootstrap,
            "client.id": settings.client_id,
        }
        self._login_error = ""
        options: dict[str, Any] = {**self._properties, "error_cb": self._note_error}
        self._client = AdminClient(options)
        self._executor = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="bridge-admin")
        self._asking: asyncio.Task[ClusterMetadata] | None = None
        self._partitions: dict[str, frozenset[int]] = {}
        self._known_at_s = -TOPICS_LIFE_S
        self._cluster_id = ""

    def stop(self) -> None:
        """End the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def metadata(self) -> ClusterMetadata:
        """Brokers, topics and partitions as they are now."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_metadata())
        return await asyncio.shield(self._asking)

    async def partitions_of(self, topic: str, *, wanted: Iterable[int] = ()) -> frozenset[int]:
        """The topic's partitions; empty if the topic does not exist. Repeats a lookup of a topic or
        partition that did not exist a moment ago.

        Not every broker knows a new topic at once, so the answer "unknown" is accepted only after a
        while.
        """
        known = self._partitions.get(topic, frozenset())
        asked_s = time.monotonic()
        if asked_s - self._known_at_s < TOPICS_LIFE_S and known and known.issuperset(wanted):
            return known
        while True:
            await self.metadata()
            known = self._partitions.get(topic, frozenset())
            if known and known.issuperset(wanted):
                return known
            if time.monotonic() - asked_s > UNKNOWN_AFTER_S:
                await self._check_access(topic)
                return known
            await asyncio.sleep(ASKED_AGAIN_AFTER_S)

    async def _check_access(self, topic: str) -> None:
        """Raises Refused (403) for a topic that this user may not see, because the list of all
        topics does not contain it.
        """
        try:
            await self.describe_topic(topic)
        except Refused as refusal:
            if refusal.status in (401, 403):
                raise

    async def cluster_id(self, *, wanted: str) -> str:
        """The cluster's id; looked up again if it differs from the wanted one."""
        if self._cluster_id != wanted:
            await self.metadata()
        return self._cluster_id

    def forget_topics(self) -> None:
        """Drop the cached metadata, which was wrong."""
        self._known_at_s = -TOPICS_LIFE_S

    async def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """The partition's first offset and its end offset."""
        place = TopicPartition(topic, partition)
        low, high = await asyncio.gather(self._offsets({place: _EARLIEST}), self._offsets({place: _LATEST}))
        return low[topic, partition], high[topic, partition]

    async def ends(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Log ends of partitions; partitions whose leader does not answer are left out."""
        if not places:
            return {}
        return await self._offsets({TopicPartition(*place): _LATEST for place in places})

    async def create_topic(self, topic: NewTopic, *, is_validating: bool) -> None:
        """Make a topic. Refused as the broker refuses."""
        ordered = self._client.create_topics([topic], operation_timeout=self._timeout_s, validate_only=is_validating)
        await self._await_all(ordered.values())
        self.forget_topics()

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        await self._await_all(self._client.delete_topics([topic], operation_timeout=self._timeout_s).values())
        self._partitions.pop(topic, None)

    async def grow_topic(self, topic: str, partition_count: int) -> None:
        """Give a topic more partitions."""
        await self._await_all(self._client.create_partitions([NewPartitions(topic, partition_count)]).values())
        self.forget_topics()

    async def configs(self, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
        """The configs of a topic or broker, by name."""
        asked = self._client.describe_configs([ConfigResource(kind, name)], request_timeout=self._timeout_s)
        (entries,) = await self._await_all(asked.values())
        return dict(entries)

    async def alter_configs(self, kind: ResourceType, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs; None resets a config to its default."""
        entries = [
            ConfigEntry(
                key,
                value or "",
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in changes.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        await self._await_all(self._client.incremental_alter_configs([resource]).values())

    async def groups(self) -> list[str]:
        """Names of the groups that the brokers list; a broker that does not answer in time is left
        out.
        """
        timeout_s = min(self._timeout_s, GROUPS_TIMEOUT_S)
        listing = await self._await(self._client.list_consumer_groups(request_timeout=timeout_s))
        return sorted(group.group_id for group in listing.valid)

    async def describe_groups(self, names: Sequence[str]) -> list[Any]:
        """Descriptions in the order of the names."""
        if not names:
            return []
        asked = self._client.describe_consumer_groups(list(names), request_timeout=self._timeout_s)
        return await self._await_all(asked[name] for name in names)

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The group's committed offsets in existing topics. This uses a consumer without a
        subscription: librdkafka's admin client ends the process when the coordinator answers that
        it has moved (librdkafka #5040).
        """
        await self.metadata()
        wanted = [TopicPartition(topic, index) for topic, held in self._partitions.items() for index in sorted(held)]
        answered = await self._blocking(lambda: self._committed(group, wanted)) if wanted else []
        return {
            (item.topic, item.partition): item.offset for item in answered if item.error is None and item.offset >= 0
        }

    async def describe_topics(self, names: Sequence[str]) -> list[Any]:
        """Descriptions with the internal topics marked, in the order of the names; topics that were
        deleted in between are left out.
        """
        if not names:
            return []
        asked = self._client.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout_s)
        answers = await asyncio.gather(*(self._await(asked[name]) for name in names), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not _is_unknown_topic(answer):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def describe_topic(self, name: str) -> Any:
        """One description. Raises Refused if the topic does not exist."""
        if not name or "\0" in name:  # librdkafka reads C strings
            raise unknown_topic_or_partition()
        asked = self._client.describe_topics(TopicCollection([name]), request_timeout=self._timeout_s)
        return await self._await(asked[name])

    async def topic(self, name: str) -> KnownTopic:
        """The topic's partitions now. Raises Refused if there is no such topic.

        The request names the topic: for a name, brokers also ask the other site, while a topic that
        was just created there can be missing from the list of all topics for a second.
        """
        described = await self.describe_topic(name)
        partitions = {
            item.id: KnownPartition(
                item.id,
                leader=-1 if item.leader is None else item.leader.id,
                replicas=[node.id for node in item.replicas],
                isrs=[node.id for node in item.isr],
            )
            for item in described.partitions
        }
        return KnownTopic(name, partitions)

    async def describe_changed_topic(self, name: str, *, partition_count: int) -> Any:
        """The description when it shows the change: not every broker knows the change when it is
        acknowledged.
        """
        async for attempt in jittered_backoff(retry_on=_NotKnownYet, max_ms=200, budget_ms=self._timeout_s * 1000):
            with attempt:
                found = await self.describe_topics([name])
                if not found or len(found[0].partitions) < partition_count:
                    raise _NotKnownYet(
                        504, 504, f"Topic {name} was changed, but the brokers do not report the change yet."
                    )
        return found[0]

    async def describe_cluster(self) -> Any:
        """Cluster id, controller and brokers with racks."""
        return await self._await(self._client.describe_cluster(request_timeout=self._timeout_s))

    def _committed(self, group: str, wanted: list[TopicPartition]) -> list[TopicPartition]:
        consumer = Consumer({**self._properties, "group.id": group, "enable.auto.commit": False})
        try:
            return consumer.committed(wanted, timeout=self._timeout_s)
        finally:
            consumer.close()

    async def _ask_metadata(self) -> ClusterMetadata:
        self._login_error = ""
        metadata = await self._blocking(lambda: self._client.list_topics(timeout=self._timeout_s))
        self._cluster_id = metadata.cluster_id or ""
        self._known_at_s = time.monotonic()
        self._partitions = {name: frozenset(topic.partitions) for name, topic in metadata.topics.items()}
        return metadata

    async def _offsets(self, asked: dict[TopicPartition, OffsetSpec]) -> dict[tuple[str, int], int]:
        futures = self._client.list_offsets(asked, request_timeout=self._timeout_s)
        found: list[ListOffsetsResultInfo] = await self._await_all(futures.values())
        return {(place.topic, place.partition): info.offset for place, info in zip(futures, found, strict=True)}

    async def _blocking(self, function: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        except KafkaException as error:
            raise self._refused(error) from error

    def _refused(self, error: KafkaException) -> Refused:
        """librdkafka reports a refused login as an event; a request merely fails to reach a
        broker.
        """
        self._client.poll(0)
        if self._login_error and error_of(error).code() in UNREACHED:
            return kafka_refuses_login(self._login_error)
        return refused(error_of(error))

    def _note_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            self._login_error = error.str()

    async def _await(self, future: Future[Result]) -> Result:
        try:
            return await asyncio.wrap_future(future)
        except KafkaException as error:
            raise self._refused(error) from error

    async def _await_all(self, futures: Iterable[Future[Result]]) -> list[Result]:
        return list(await asyncio.gather(*(self._await(future) for future in futures)))


class _NotKnownYet(Refused):
    """The broker that answered does not know the change yet."""


def _is_unknown_topic(error: BaseException) -> bool:
    return isinstance(error, Refused) and error.error_code == UNKNOWN_TOPIC_OR_PARTITION
