"""The raw-batch client: a cluster by its bootstrap addresses, with leaders found, remembered and found again.

Batches go in and out as bytes; nothing here opens them (wire/records.py does, for tests and tools). Two kinds of calls:

* to a node that the caller chose: `fetch`, `produce_to`, `list_offsets`, `epoch_ends`, `mirror_append`. One attempt, errors by
  partition in the result, so that callers with state of their own decide;
* to whoever is responsible: `produce`, `offsets_at`, topics, configs, groups, offsets. Retried with jittered backoff (tenacity) within
  `retry_budget_ms`, metadata and coordinators looked up again in between.

With `site_local` the cluster is one Antipode site alone (SiteMetadata), without the merged view that a link gives to applications.
One client belongs to one event loop. From code without a loop: `call_client`.
"""

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from tenacity import AsyncRetrying

from runtime.addresses import HostPort, parse_host_ports
from runtime.retries import jittered_backoff
from wire import broker_requests as requests
from wire.broker_requests import (
    NOBODY,
    CommittedOffset,
    Committer,
    EpochEndOffset,
    EpochQuery,
    FetchedOffset,
    GroupListing,
    ListedOffset,
    OffsetQuery,
    TopicPartition,
)
from wire.client_errors import TRANSIENT, BrokerError, KafkaClientError, Unreachable, broker_error, error_code
from wire.cluster_metadata import NOTHING_KNOWN, ClusterMetadata
from wire.connection import Connection, ConnectionOptions
from wire.connection_pool import ConnectionPool
from wire.fetch_codec import FetchResponse
from wire.fetch_requests import CONSUMER, FetchRequest
from wire.mirror_append_codec import MirrorAppend
from wire.private import LINK_PROGRESS, MIRROR_TRANSACTIONAL_IDS, MirrorAppendResponse
from wire.produce_codec import PartitionProduced, PartitionRecords, ProduceRequest, ProduceResponse, TopicRecords
from wire.record_batch import Buffer

CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
INIT_PRODUCER_ID: Final = 22
CREATE_PARTITIONS: Final = 37
INCREMENTAL_ALTER_CONFIGS: Final = 44
DESCRIBE_CONFIGS: Final = 32

RESOURCE_TOPIC: Final = 2
DYNAMIC_TOPIC_CONFIG: Final = 1
"""Config source of what is set on the topic itself (KIP-226)."""

TOPICS_DESCRIBED_AT_ONCE: Final = 100
"""Topics whose configs one request asks for: a broker of ours answers one request in one go, about 0.2 ms a topic."""

_SET, _DELETE = 0, 1
_ADMIN_TIMEOUT: Final = dt.timedelta(seconds=30)
_NOT_READY: Final = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's default."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutcome:
    """What became of one topic of CreateTopics or DeleteTopics."""

    name: str
    error_code: ErrorCode
    error_message: str | None
    topic_id: UUID | None


class KafkaClient:
    """One cluster, or one site. Use as `async with KafkaClient("host:port") as client`, or call `close`."""

    def __init__(
        self,
        bootstrap: str | Sequence[HostPort],
        options: ConnectionOptions | None = None,
        *,
        site_local: bool = False,
        retry_budget_ms: float = 60_000,
    ) -> None:
        self._bootstrap = parse_host_ports(bootstrap) if isinstance(bootstrap, str) else tuple(bootstrap)
        self._pool = ConnectionPool(options or ConnectionOptions())
        self._is_site_local = site_local
        self._retry_budget_ms = retry_budget_ms
        self._cluster = NOTHING_KNOWN
        self._coordinators: dict[str, int] = {}

    @property
    def cluster(self) -> ClusterMetadata:
        """What the last metadata answers said, without asking."""
        return self._cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        await self._pool.close()

    # Who is where

    async def metadata(self, topics: Sequence[str] | None = None, *, may_create: bool = False) -> ClusterMetadata:
        """Brokers and the given topics (None: all), asked of any broker, retried. Topics carry their own error codes."""
        return await self._retried(lambda: self._refresh(topics, may_create=may_create))

    async def connection(self, node_id: int) -> Connection:
        """The connection to a node; its address is looked up if it is not known. Raises Unreachable."""
        if node_id not in self._cluster.brokers:
            await self._refresh([])
        broker = self._cluster.brokers.get(node_id)
        if broker is None:
            raise Unreachable("no broker with this id is known", node=f"node {node_id}")
        try:
            return await self._pool.get(broker.address)
        except Unreachable:
            # It may have come back elsewhere: ask again next time.
            self._forget_broker(node_id)
            raise

    async def leader(self, topic: str, partition: int) -> int:
        """Node id of the leader, from what is known or asked for now. Raises BrokerError: LEADER_NOT_AVAILABLE, unknown topic."""
        known = self._cluster.leader_of(topic, partition)
        if known >= 0:
            return known
        found = await self._refresh([topic])
        metadata = found.topics.get(topic)
        if metadata is not None and metadata.error_code:
            raise broker_error(metadata.error_code, message=topic, api_key=requests.METADATA)
        if metadata is None or partition not in metadata.partitions:
            code = ErrorCode.unknown_topic_or_partition
            raise broker_error(code, message=f"{topic}-{partition}", api_key=requests.METADATA)
        if found.leader_of(topic, partition) < 0:
            code = ErrorCode.leader_not_available
            raise broker_error(code, message=f"{topic}-{partition}", api_key=requests.METADATA)
        return found.leader_of(topic, partition)

    def forget_leaders(self, topics: Iterable[str]) -> None:
        """Look these topics' leaders up again when they are next needed."""
        dropped = set(topics)
        kept = {name: topic for name, topic in self._cluster.topics.items() if name not in dropped}
        self._cluster = self._cluster._replace(topics=kept)

    def learn(self, cluster: ClusterMetadata) -> None:
        """Take over the brokers' addresses that another client of the cluster was told."""
        if cluster.brokers:
            self._cluster = self._cluster._replace(brokers=cluster.brokers)

    # To a node of the caller's choice: one attempt

    async def fetch(self, node_id: int, request: FetchRequest, *, timeout_ms: float | None = None) -> FetchResponse:
        """One Fetch; records are views of the received frame. The default deadline allows for the request's own waiting."""
        connection = await self.connection(node_id)
        return await requests.request_fetch(connection, request, timeout_ms=timeout_ms)

    async def produce_to(
        self, node_id: int, request: ProduceRequest, *, timeout_ms: float | None = None
    ) -> ProduceResponse | None:
        """One Produce of raw batches; None with acks 0."""
        return await requests.request_produce(await self.connection(node_id), request, timeout_ms=timeout_ms)

    async def mirror_append(
        self, node_id: int, request: MirrorAppend, *, timeout_ms: float | None = None
    ) -> MirrorAppendResponse:
        """One MirrorAppend."""
        return await requests.request_mirror_append(await self.connection(node_id), request, timeout_ms=timeout_ms)

    async def link_progress(
        self, node_id: int, *, link: str, link_epoch: int, acknowledged: Mapping[TopicPartition, int]
    ) -> ErrorCode:
        """Tell a source's broker what a sync link's target has of partitions that it leads."""
        by_topic: dict[str, list[dict[str, int]]] = {}
        for (topic, partition), offset in acknowledged.items():
            by_topic.setdefault(topic, []).append({"index": partition, "acknowledged_offset": offset})
        topics = [{"name": topic, "partitions": partitions} for topic, partitions in by_topic.items()]
        values = {"link": link, "link_epoch": link_epoch, "topics": topics}
        response = await (await self.connection(node_id)).call(LINK_PROGRESS, values)
        return error_code(response.error_code)

    async def list_offsets(
        self,
        node_id: int,
        queries: Mapping[TopicPartition, OffsetQuery],
        *,
        replica_id: int = CONSUMER,
        isolation_level: int = 0,
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by time, or the ends of logs, from the partitions' leader."""
        connection = await self.connection(node_id)
        return await requests.request_offsets(
            connection, queries, replica_id=replica_id, isolation_level=isolation_level
        )

    async def epoch_ends(
        self, node_id: int, queries: Mapping[TopicPartition, EpochQuery], *, replica_id: int = CONSUMER
    ) -> dict[TopicPartition, EpochEndOffset]:
        """OffsetForLeaderEpoch: where leader epochs end, from the partitions' leader."""
        return await requests.request_epoch_ends(await self.connection(node_id), queries, replica_id=replica_id)

    # To the partitions' leaders: retried

    async def produce(
        self, topic: str, partition: int, batches: Buffer, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> PartitionProduced:
        """Append raw batches at the leader. At least once: a retry repeats them, which only an idempotent producer's id undoes."""
        request = ProduceRequest(
            None, acks, timeout_ms, [TopicRecords(topic, None, [PartitionRecords(partition, batches)])]
        )

        async def attempt() -> PartitionProduced:
            node_id = await self.leader(topic, partition)
            response = await self.produce_to(node_id, request)
            if response is None:
                return PartitionProduced(partition)
            produced = response.topics[0].partitions[0]
            if produced.error_code:
                code = error_code(produced.error_code)
                raise broker_error(code, message=produced.error_message, node=f"node {node_id}", api_key=0)
            return produced

        return await self._retried(attempt, topics=[topic])

    async def offsets_at(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: int,
        *,
        replica_id: int = CONSUMER,
        isolation_level: int = 0,
    ) -> dict[TopicPartition, int]:
        """The offset at a time (or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) of each partition; -1 when no record is that young.

        LATEST_TIMESTAMP of a read-committed client is the last stable offset.
        """
        found: dict[TopicPartition, int] = {}
        wanted = list(partitions)

        async def attempt() -> dict[TopicPartition, int]:
            by_leader: dict[int, dict[TopicPartition, OffsetQuery]] = {}
            for topic, partition in wanted:
                if (topic, partition) not in found:
                    at_leader = by_leader.setdefault(await self.leader(topic, partition), {})
                    at_leader[topic, partition] = OffsetQuery(timestamp)
            for node_id, queries in by_leader.items():
                listing = self.list_offsets(node_id, queries, replica_id=replica_id, isolation_level=isolation_level)
                for key, listed in (await listing).items():
                    if listed.error_code:
                        node = f"node {node_id}"
                        raise broker_error(
                            listed.error_code, message=f"{key[0]}-{key[1]}", node=node, api_key=requests.LIST_OFFSETS
                        )
                    found[key] = listed.offset
            return found

        return await self._retried(attempt, topics=[topic for topic, _ in wanted])

    # Topics and configs: retried

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicOutcome]:
        """Create topics; outcomes by topic. A retry after a lost answer finds TOPIC_ALREADY_EXISTS."""
        values = {
            "topics": [
                {
                    "name": topic.name,
                    "num_partitions": topic.partition_count,
                    "replication_factor": topic.replication_factor,
                    "assignments": (),
                    "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
                }
                for topic in topics
            ],
            "timeout": _ADMIN_TIMEOUT,
            "validate_only": validate_only,
        }
        response = await self._retried(lambda: self._call_controller(CREATE_TOPICS, values))
        return [_outcome(topic) for topic in response.topics]

    async def delete_topics(self, names: Sequence[str]) -> list[TopicOutcome]:
        """Delete topics; outcomes by topic. A retry after a lost answer finds UNKNOWN_TOPIC_OR_PARTITION."""
        values = {
            "topic_names": names,
            "topics": [{"name": name, "topic_id": None} for name in names],
            "timeout": _ADMIN_TIMEOUT,
        }
        response = await self._retried(lambda: self._call_controller(DELETE_TOPICS, values))
        self.forget_leaders(names)
        return [_outcome(topic) for topic in response.responses]

    async def grow_topic(self, name: str, partition_count: int) -> TopicOutcome:
        """Give a topic as many partitions; INVALID_PARTITIONS when it has them already."""
        values = {
            "topics": [{"name": name, "count": partition_count, "assignments": None}],
            "timeout": _ADMIN_TIMEOUT,
            "validate_only": False,
        }
        response = await self._retried(lambda: self._call_controller(CREATE_PARTITIONS, values))
        self.forget_leaders([name])
        return _outcome(response.results[0])

    async def alter_topic_configs(
        self, name: str, *, to_set: Mapping[str, str], to_remove: Sequence[str] = ()
    ) -> TopicOutcome:
        """Set configs of a topic and take others off, leaving the rest alone (KIP-339)."""
        changes = [{"name": key, "config_operation": _SET, "value": value} for key, value in to_set.items()]
        changes += [{"name": key, "config_operation": _DELETE, "value": None} for key in to_remove]
        resource = {"resource_type": RESOURCE_TOPIC, "resource_name": name, "configs": changes}
        values = {"resources": [resource], "validate_only": False}
        response = await self._retried(lambda: self._call_controller(INCREMENTAL_ALTER_CONFIGS, values))
        altered = response.responses[0]
        return TopicOutcome(
            name=name, error_code=altered.error_code, error_message=altered.error_message, topic_id=None
        )

    async def new_producer_id(self) -> int:
        """A producer id that nobody else has, for an idempotent producer without transactions; its epoch is 0."""

        async def attempt() -> int:
            connection = await self._any_connection()
            values = {
                "transactional_id": None,
                "transaction_timeout": _ADMIN_TIMEOUT,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            response = await connection.call(INIT_PRODUCER_ID, values)
            if response.error_code:
                node = str(connection.address)
                raise broker_error(response.error_code, node=node, api_key=INIT_PRODUCER_ID)
            return int(response.producer_id)

        return await self._retried(attempt)

    async def topic_configs(
        self, names: Sequence[str], *, is_set_only: bool = True
    ) -> dict[str, dict[str, str | None]]:
        """Configs by topic: those set on the topic itself, or all. Topics that do not exist are left out. Raises BrokerError."""
        configs: dict[str, dict[str, str | None]] = {}
        for first in range(0, len(names), TOPICS_DESCRIBED_AT_ONCE):
            some = names[first : first + TOPICS_DESCRIBED_AT_ONCE]
            configs |= await self._some_topic_configs(some, is_set_only=is_set_only)
        return configs

    async def _some_topic_configs(self, names: Sequence[str], *, is_set_only: bool) -> dict[str, dict[str, str | None]]:
        resources = [
            {"resource_type": RESOURCE_TOPIC, "resource_name": name, "configuration_keys": None} for name in names
        ]

        async def attempt() -> dict[str, dict[str, str | None]]:
            connection = await self._any_connection()
            response = await connection.call(DESCRIBE_CONFIGS, {"resources": resources})
            configs = {}
            for result in response.results:
                if result.error_code == ErrorCode.unknown_topic_or_partition:
                    continue
                if result.error_code:
                    node = str(connection.address)
                    message = result.error_message
                    raise broker_error(result.error_code, message=message, node=node, api_key=DESCRIBE_CONFIGS)
                configs[result.resource_name] = {
                    config.name: config.value
                    for config in result.configs
                    if not is_set_only or config.config_source == DYNAMIC_TOPIC_CONFIG
                }
            return configs

        return await self._retried(attempt)

    # Groups: retried

    async def list_groups(self) -> list[GroupListing]:
        """The groups of all brokers."""

        async def attempt() -> list[GroupListing]:
            await self._refresh([])
            found: list[GroupListing] = []
            for node_id in sorted(self._cluster.brokers):
                found += await requests.request_groups(await self.connection(node_id))
            return found

        return await self._retried(attempt)

    async def groups_by_broker(
        self, leave_out: Collection[int] = ()
    ) -> dict[int, list[GroupListing] | KafkaClientError]:
        """The groups of each broker, or why it does not tell. One attempt; raises when no broker names the others."""
        await self._refresh([])
        nodes = sorted(self._cluster.brokers.keys() - set(leave_out))

        async def ask(node_id: int) -> list[GroupListing] | KafkaClientError:
            try:
                return await requests.request_groups(await self.connection(node_id))
            except KafkaClientError as error:
                return error

        return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))

    async def coordinator(self, group_id: str) -> int:
        """Node id of the group's coordinator, remembered. One attempt; raises BrokerError, Unreachable."""
        if group_id not in self._coordinators:
            self._coordinators[group_id] = await requests.request_coordinator(await self._any_connection(), group_id)
        return self._coordinators[group_id]

    def forget_coordinator(self, group_id: str) -> None:
        """Look the group's coordinator up again when it is next needed."""
        self._coordinators.pop(group_id, None)

    async def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, FetchedOffset]:
        """The group's offsets: of these partitions, or all that it has."""
        wanted = None if partitions is None else list(partitions)
        return await self._at_coordinator(
            group_id, lambda connection: requests.request_committed(connection, group_id, wanted)
        )

    async def committed_by_groups(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, FetchedOffset] | KafkaClientError]:
        """All offsets of several groups, a request to each coordinator, or what is in the way of a group. One attempt: groups whose
        coordinator has moved are left out."""
        found: dict[str, dict[TopicPartition, FetchedOffset] | KafkaClientError] = {}
        by_node: dict[int, list[str]] = {}

        async def find(group_id: str) -> None:
            try:
                by_node.setdefault(await self.coordinator(group_id), []).append(group_id)
            except KafkaClientError as error:
                found[group_id] = error

        async def ask(node_id: int, of_node: Sequence[str]) -> None:
            try:
                found.update(await requests.request_committed_by_groups(await self.connection(node_id), of_node))
            except KafkaClientError as error:
                found.update(dict.fromkeys(of_node, error))

        wanted = list(group_ids)
        try:
            await asyncio.gather(*map(find, wanted))
            await asyncio.gather(*(ask(node_id, of_node) for node_id, of_node in by_node.items()))
        finally:
            for group_id in wanted:
                if not isinstance(found.get(group_id), dict):
                    self.forget_coordinator(group_id)
        return found

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        committer: Committer = NOBODY,
    ) -> dict[TopicPartition, ErrorCode]:
        """Write a group's offsets, as a member or while there is none; the outcome by partition."""

        async def ask(connection: Connection) -> dict[TopicPartition, ErrorCode]:
            return _coordinated(await requests.request_commit(connection, group_id, offsets, committer), group_id)

        return await self._at_coordinator(group_id, ask)

    async def mirror_offsets_synced(self, *, link: str, link_epoch: int, synced_at_ms: int) -> None:
        """Say to any broker that the link's mirror has carried what the source's groups had at that time. One attempt."""
        connection = await self._any_connection()
        await requests.request_mirror_synced(connection, link=link, link_epoch=link_epoch, synced_at_ms=synced_at_ms)

    async def mirror_offset_commit(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], *, link: str, link_epoch: int
    ) -> dict[TopicPartition, ErrorCode]:
        """Write a group's offsets as the link's mirror; the outcome by partition."""

        async def ask(connection: Connection) -> dict[TopicPartition, ErrorCode]:
            outcomes = await requests.request_mirror_commit(
                connection, group_id, offsets, link=link, link_epoch=link_epoch
            )
            return _coordinated(outcomes, group_id)

        return await self._at_coordinator(group_id, ask)

    async def transaction_coordinator(self, transactional_id: str) -> int:
        """Node id of the transactional id's coordinator, looked up each time. One attempt; raises BrokerError, Unreachable."""
        return await requests.request_coordinator(
            await self._any_connection(), transactional_id, key_type=requests.TRANSACTION_KEY_TYPE
        )

    async def mirror_transactional_ids(
        self, node_id: int, producers: Iterable[Mapping[str, Any]], *, link: str, link_epoch: int
    ) -> dict[str, ErrorCode]:
        """Tell a coordinator the fields of `MirroredProducer`s as the link's mirror; the outcome for each transactional id."""
        values = {"link": link, "link_epoch": link_epoch, "producers": list(producers)}
        response = await (await self.connection(node_id)).call(MIRROR_TRANSACTIONAL_IDS, values)
        return {outcome.transactional_id: error_code(outcome.error_code) for outcome in response.outcomes}

    # Below the public calls

    def _retrying(self) -> AsyncRetrying:
        return jittered_backoff(retry_on=TRANSIENT, budget_ms=self._retry_budget_ms)

    async def _retried(self, attempt: Callable[[], Awaitable[Result]], *, topics: Sequence[str] = ()) -> Result:
        """`attempt` until it succeeds or the budget is spent; after a failure the topics' leaders are looked up again."""

        async def once() -> Result:
            try:
                return await attempt()
            except TRANSIENT:
                self.forget_leaders(topics)
                raise

        result: Result = await self._retrying()(once)
        return result

    async def _at_coordinator(
        self,
        group_id: str,
        ask: Callable[[Connection], Awaitable[dict[TopicPartition, Result]]],
    ) -> dict[TopicPartition, Result]:
        async def once() -> dict[TopicPartition, Result]:
            try:
                answer = await ask(await self.connection(await self.coordinator(group_id)))
            except (BrokerError, Unreachable):
                self._coordinators.pop(group_id, None)
                raise
            return answer

        result: dict[TopicPartition, Result] = await self._retrying()(once)
        return result

    async def _call_controller(self, api_key: int, values: Mapping[str, Any]) -> Any:
        await self._refresh([])
        controller = self._cluster.controller_id
        connection = await (self.connection(controller) if controller >= 0 else self._any_connection())
        response = await connection.call(api_key, values)
        for outcome in _outcomes(response):
            if outcome.error_code == ErrorCode.not_controller:
                raise broker_error(outcome.error_code, node=str(connection.address), api_key=api_key)
        return response

    async def _refresh(self, topics: Sequence[str] | None, *, may_create: bool = False) -> ClusterMetadata:
        connection = await self._any_connection()
        newer = await requests.request_metadata(
            connection, topics, is_site_local=self._is_site_local, may_create=may_create
        )
        self._cluster = newer if topics is None else self._cluster.merged_with(newer)
        return newer

    async def _any_connection(self) -> Connection:
        """A connection to whichever broker answers: one that stands, then known brokers, then the bootstrap list."""
        standing = self._pool.open_addresses()
        if standing:
            return await self._pool.get(random.choice(standing))  # noqa: S311 (spreads load)
        known = [broker.address for broker in self._cluster.brokers.values()]
        random.shuffle(known)
        bootstrap = [address for address in self._bootstrap if address not in known]
        random.shuffle(bootstrap)
        refusals = []
        for address in (*known, *bootstrap):
            try:
                return await self._pool.get(address)
            except Unreachable as error:
                refusals.append(str(error))
        raise Unreachable("no broker can be reached: " + "; ".join(refusals))

    def _forget_broker(self, node_id: int) -> None:
        kept = {known: broker for known, broker in self._cluster.brokers.items() if known != node_id}
        self._cluster = self._cluster._replace(brokers=kept)


def call_client(
    bootstrap: str | Sequence[HostPort], work: Callable[[KafkaClient], Awaitable[Result]], *, site_local: bool = False
) -> Result:
    """Run `work` with a client of its own on an event loop of its own: for code without a loop, such as Spark tasks."""

    async def run() -> Result:
        async with KafkaClient(bootstrap, site_local=site_local) as client:
            return await work(client)

    return asyncio.run(run())


def _coordinated(outcomes: dict[TopicPartition, ErrorCode], group_id: str) -> dict[TopicPartition, ErrorCode]:
    """The outcomes, unless they say that the coordinator is elsewhere or not ready: then a transient error."""
    for code in outcomes.values():
        if code in _NOT_READY:
            raise broker_error(code, message=group_id)
    return outcomes


def _outcomes(response: Any) -> Sequence[Any]:
    """The outcomes by topic, whatever the API calls them."""
    for name in ("topics", "results", "responses"):
        if hasattr(response, name):
            found: Sequence[Any] = getattr(response, name)
            return found
    return ()


def _outcome(topic: Any) -> TopicOutcome:
    return TopicOutcome(
        name=topic.name or "",
        error_code=topic.error_code,
        error_message=getattr(topic, "error_message", None),
        topic_id=getattr(topic, "topic_id", None),
    )
