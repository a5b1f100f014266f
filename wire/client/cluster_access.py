"""Finds and keeps the parts of a cluster: connections, metadata, leaders, coordinators, with
retries.

The common parts of a client's calls; the calls are in `raw_client.py`, `topic_calls.py` and
`group_calls.py`. Retries have jittered backoff (tenacity) within `retry_budget_ms`, and look
metadata and coordinators up again in between.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Self, TypeVar

from kio.schema.errors import ErrorCode
from tenacity import AsyncRetrying

from runtime.addresses import HostPort, parse_host_ports
from runtime.chance import jitter
from runtime.retries import jittered_backoff
from wire.client.client_errors import TRANSIENT, Unreachable, broker_error
from wire.client.cluster_metadata import NOTHING_KNOWN, ClusterMetadata
from wire.client.connection import Connection, ConnectionOptions
from wire.client.connection_pool import ConnectionPool
from wire.client.requests import broker_requests as requests
from wire.client.requests.group_requests import TRANSACTION_KEY_TYPE, request_coordinator
from wire.client.security import secured_by_default

Result = TypeVar("Result")


class ClusterAccess:
    """One cluster, or one site: its brokers by their role. Use as a context, or call `close`."""

    def __init__(
        self,
        bootstrap: str | Sequence[HostPort],
        options: ConnectionOptions | None = None,
        *,
        site_local: bool = False,
        retry_budget_ms: float = 60_000,
    ) -> None:
        self._bootstrap = parse_host_ports(bootstrap) if isinstance(bootstrap, str) else tuple(bootstrap)
        self._pool = ConnectionPool(secured_by_default(options or ConnectionOptions()))
        self._is_site_local = site_local
        self._retry_budget_ms = retry_budget_ms
        self._cluster = NOTHING_KNOWN
        # The last answer about every topic: clients that ask again and again get the same one.
        self._last_of_all: requests.MetadataAnswer | None = None
        self._coordinators: dict[str, int] = {}

    @property
    def cluster(self) -> ClusterMetadata:
        """The last metadata answers, without a request."""
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
        """Brokers and the given topics (None: all), asked of any broker, retried. Topics carry
        their own error codes.
        """
        return await self._retried(lambda: self._refresh(topics, may_create=may_create))

    async def connection(self, node_id: int) -> Connection:
        """The connection to a node; its address is looked up if it is not known. Raises
        Unreachable.
        """
        if node_id not in self._cluster.brokers:
            # an empty list asks for the brokers alone; None would ask for all topics
            await self._refresh([])
        broker = self._cluster.brokers.get(node_id)
        if broker is None:
            raise Unreachable("no broker with this id is known", node=f"node {node_id}")
        try:
            return await self._pool.get(broker.address)
        except Unreachable:
            # The broker may have restarted at another address: refresh the metadata before the next
            # request.
            self._forget_broker(node_id)
            raise

    async def leader(self, topic: str, partition: int) -> int:
        """Node id of the leader, from known metadata or from a new request. Raises BrokerError:
        LEADER_NOT_AVAILABLE, unknown topic.
        """
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
        """Use the brokers' addresses that another client of the cluster has learned."""
        if cluster.brokers:
            self._cluster = self._cluster._replace(brokers=cluster.brokers)

    async def coordinator(self, group_id: str) -> int:
        """Node id of the group's coordinator, remembered. One attempt; raises BrokerError,
        Unreachable.
        """
        if group_id not in self._coordinators:
            self._coordinators[group_id] = await request_coordinator(await self._any_connection(), group_id)
        return self._coordinators[group_id]

    def forget_coordinator(self, group_id: str) -> None:
        """Look the group's coordinator up again when it is next needed."""
        self._coordinators.pop(group_id, None)

    async def transaction_coordinator(self, transactional_id: str) -> int:
        """Node id of the transactional id's coordinator, looked up each time. One attempt; raises
        BrokerError, Unreachable.
        """
        return await request_coordinator(await self._any_connection(), transactional_id, key_type=TRANSACTION_KEY_TYPE)

    # For the calls

    def _retrying(self) -> AsyncRetrying:
        return jittered_backoff(retry_on=TRANSIENT, budget_ms=self._retry_budget_ms)

    async def _retried(self, attempt: Callable[[], Awaitable[Result]], *, topics: Sequence[str] = ()) -> Result:
        """`attempt` until it succeeds or the budget is spent; after a failure the topics' leaders
        are looked up again.
        """

        async def once() -> Result:
            try:
                return await attempt()
            except TRANSIENT:
                self.forget_leaders(topics)
                raise

        result: Result = await self._retrying()(once)
        return result

    async def _refresh(self, topics: Sequence[str] | None, *, may_create: bool = False) -> ClusterMetadata:
        connection = await self._any_connection()
        answer = await requests.request_metadata(
            connection,
            topics,
            is_site_local=self._is_site_local,
            may_create=may_create,
            last=self._last_of_all if topics is None else None,
        )
        newer = answer.metadata
        if topics is None:
            self._last_of_all, self._cluster = answer, newer
        else:
            # an answer about some topics says nothing about the others
            self._cluster = self._cluster.merged_with(newer)
        return newer

    async def _any_connection(self) -> Connection:
        """A connection to any broker that answers: an open one first, then known brokers, then the
        bootstrap list.
        """
        open_addresses = self._pool.open_addresses()
        if open_addresses:
            return await self._pool.get(jitter().choice(open_addresses))
        # in random order: many clients lose a broker at the same moment, and must not all go to the
        # same next one
        known = [broker.address for broker in self._cluster.brokers.values()]
        jitter().shuffle(known)
        bootstrap = [address for address in self._bootstrap if address not in known]
        jitter().shuffle(bootstrap)
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
