"""The raw-batch client: a cluster by its bootstrap addresses, with leaders found, remembered and
found again.

Batches go in and out as bytes; nothing here opens them (wire/batches/records.py does, for tests and
tools). Two kinds of calls:

* to a node that the caller chose: `fetch`, `produce_to`, `list_offsets`, `epoch_ends`,
  `mirror_append`. One attempt, errors by partition in the result, so that callers with state of
  their own decide;
* to the responsible broker: `produce`, `offsets_at`, topics, configs, groups, offsets. Retried with
  jittered backoff (tenacity) within `retry_budget_ms`, metadata and coordinators looked up again in
  between.

The calls for topics and groups are in `topic_calls.py` and `group_calls.py`; the common parts are
in `cluster_access.py`. With `site_local` the cluster is one Antipode site alone (SiteMetadata),
without the merged view that a link gives to applications. One client belongs to one event loop.
From code without a loop: `call_client`.
"""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from wire.batches.record_batch import Buffer
from wire.client.client_errors import broker_error, error_code
from wire.client.cluster_access import Result
from wire.client.group_calls import GroupCalls
from wire.client.requests import broker_requests as requests
from wire.client.requests.broker_requests import EpochEndOffset, EpochQuery, ListedOffset, OffsetQuery
from wire.client.requests.fetch_requests import FetchRequest
from wire.client.topic_calls import NewTopic, TopicCalls, TopicOutcome
from wire.protocol.ids import CONSUMER, PartitionKey
from wire.protocol.messages.fetch_codec import FetchResponse
from wire.protocol.messages.link_messages import MIRROR_TRANSACTIONAL_IDS, encode_link_progress
from wire.protocol.messages.mirror_append_codec import MirrorAppend
from wire.protocol.messages.mirror_append_messages import MirrorAppendResponse
from wire.protocol.messages.mirror_report_messages import MIRROR_REPORTS, MirrorReportsResponse
from wire.protocol.messages.produce_codec import (
    PartitionProduced,
    PartitionRecords,
    ProduceRequest,
    ProduceResponse,
    TopicRecords,
)

__all__ = ["KafkaClient", "NewTopic", "TopicOutcome", "call_client"]

INIT_PRODUCER_ID: Final = 22
_TRANSACTION_TIMEOUT: Final = dt.timedelta(seconds=30)


class KafkaClient(TopicCalls, GroupCalls):
    """One cluster, or one site. Use as `async with KafkaClient("host:port") as client`, or call
    `close`.
    """

    # To a node of the caller's choice: one attempt

    async def fetch(self, node_id: int, request: FetchRequest, *, timeout_ms: float | None = None) -> FetchResponse:
        """One Fetch; records are views of the received frame. The default deadline allows for the
        request's own waiting.
        """
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
        self, node_id: int, *, link: str, link_epoch: int, acknowledged: Iterable[tuple[PartitionKey, int]]
    ) -> ErrorCode:
        """Report to a source's broker what a link's target has of the partitions that the broker
        leads: of each, everything below the acknowledged offset.
        """
        body = encode_link_progress(link, link_epoch, acknowledged)
        return await requests.request_link_progress(await self.connection(node_id), body)

    async def mirror_reports(self, node_id: int, values: Mapping[str, Any]) -> MirrorReportsResponse:
        """Report that the source has no new records of the partitions of a session, whose changes
        are in `values` (`mirror_report_messages.py`).
        """
        response: MirrorReportsResponse = await (await self.connection(node_id)).call(MIRROR_REPORTS, values)
        return response

    async def list_offsets(
        self,
        node_id: int,
        queries: Mapping[PartitionKey, OffsetQuery],
        *,
        replica_id: int = CONSUMER,
        isolation_level: int = 0,
    ) -> dict[PartitionKey, ListedOffset]:
        """Offsets by time, or the ends of logs, from the partitions' leader."""
        connection = await self.connection(node_id)
        return await requests.request_offsets(
            connection, queries, replica_id=replica_id, isolation_level=isolation_level
        )

    async def epoch_ends(
        self, node_id: int, queries: Mapping[PartitionKey, EpochQuery], *, replica_id: int = CONSUMER
    ) -> dict[PartitionKey, EpochEndOffset]:
        """OffsetForLeaderEpoch: where leader epochs end, from the partitions' leader."""
        return await requests.request_epoch_ends(await self.connection(node_id), queries, replica_id=replica_id)

    async def mirror_transactional_ids(
        self, node_id: int, producers: Iterable[Mapping[str, Any]], *, link: str, link_epoch: int
    ) -> dict[str, ErrorCode]:
        """Send a coordinator the fields of `MirroredProducer`s as the link's mirror; the outcome
        for each transactional id.
        """
        values = {"link": link, "link_epoch": link_epoch, "producers": list(producers)}
        response = await (await self.connection(node_id)).call(MIRROR_TRANSACTIONAL_IDS, values)
        return {outcome.transactional_id: error_code(outcome.error_code) for outcome in response.outcomes}

    # To the partitions' leaders: retried

    async def produce(
        self,
        topic: str,
        partition: int,
        batches: Buffer,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
    ) -> PartitionProduced:
        """Append raw batches at the leader, which may wait `timeout_ms` for other replicas or a
        standby. At least once: a retry repeats them, which only an idempotent producer's id undoes.
        """
        request = ProduceRequest(
            transactional_id, acks, timeout_ms, [TopicRecords(topic, None, [PartitionRecords(partition, batches)])]
        )

        async def attempt() -> PartitionProduced:
            node_id = await self.leader(topic, partition)
            allowed_ms = (await self.connection(node_id)).request_timeout_ms + timeout_ms
            response = await self.produce_to(node_id, request, timeout_ms=allowed_ms)
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
        partitions: Iterable[PartitionKey],
        timestamp: int,
        *,
        replica_id: int = CONSUMER,
        isolation_level: int = 0,
    ) -> dict[PartitionKey, int]:
        """The offset at a time (or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) of each partition; -1 when
        no record is that young.

        LATEST_TIMESTAMP of a read-committed client is the last stable offset.
        """
        found: dict[PartitionKey, int] = {}
        wanted = list(partitions)

        async def attempt() -> dict[PartitionKey, int]:
            by_leader: dict[int, dict[PartitionKey, OffsetQuery]] = {}
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

    async def new_producer_id(self) -> int:
        """A new producer id, for an idempotent producer without transactions; its epoch is 0."""

        async def attempt() -> int:
            connection = await self._any_connection()
            values = {
                "transactional_id": None,
                "transaction_timeout": _TRANSACTION_TIMEOUT,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            response = await connection.call(INIT_PRODUCER_ID, values)
            if response.error_code:
                node = str(connection.address)
                raise broker_error(response.error_code, node=node, api_key=INIT_PRODUCER_ID)
            return int(response.producer_id)

        return await self._retried(attempt)


def call_client(
    bootstrap: str | Sequence[HostPort], work: Callable[[KafkaClient], Awaitable[Result]], *, site_local: bool = False
) -> Result:
    """Run `work` with a new client on a new event loop: for code without a loop, such as Spark
    tasks.
    """

    async def run() -> Result:
        async with KafkaClient(bootstrap, site_local=site_local) as client:
            return await work(client)

    return asyncio.run(run())
