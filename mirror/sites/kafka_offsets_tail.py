"""OffsetsTail over the raw-batch client: long-polling fetches of `__consumer_offsets`, in one
session with each broker that leads a part of it.

The reader has its own connections, because a long poll delays the requests behind it on the same
connection.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from uuid import UUID

from kio.schema.errors import ErrorCode

from clients.reader.single_fetches import is_throttled_away
from mirror.link.ports import Unreachable
from mirror.sites.kafka_site import reached
from runtime.clock import Clock
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.record_batch import InvalidBatch, iterate_headers
from wire.client.client_errors import BrokerError, error_code
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import OffsetQuery
from wire.client.requests.fetch_requests import FetchRequest
from wire.client.session_fetch import FetchPosition, SessionFetch
from wire.protocol.ids import LATEST_TIMESTAMP, MIRROR, READ_COMMITTED
from wire.protocol.messages.fetch_codec import PartitionFetched

FETCH_BYTES = 1 << 20
PARTITION_BYTES = 1 << 18
CATCH_UP_TIMEOUT_S = 10.0


class _Node:
    """One source broker: its partitions, its session, and the fetch under way."""

    def __init__(self, limits: FetchRequest) -> None:
        self.session = SessionFetch(limits, partition_max_bytes=PARTITION_BYTES)
        self.positions: dict[int, FetchPosition] = {}
        self.high_watermarks: dict[int, int] = {}
        self.complete_at_ms = -math.inf
        self.fetch: asyncio.Task[list[tuple[int, bytes]]] | None = None


class KafkaOffsetsTail:
    """OffsetsTail of one site."""

    def __init__(self, asking: KafkaClient, reading: KafkaClient, *, clock: Clock, max_wait_ms: int) -> None:
        """`reading` serves long polls alone."""
        self._asking = asking
        self._reading = reading
        self._clock = clock
        self._limits = FetchRequest([], max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=FETCH_BYTES, replica_id=MIRROR)
        self._topic_id: UUID | None = None
        self._nodes: dict[int, _Node] = {}

    async def begin(self) -> None:
        """Start at the last stable offset of each partition."""
        self.stop()
        known = (await reached(self._asking.metadata([OFFSETS_TOPIC]))).topics.get(OFFSETS_TOPIC)
        if known is None or not known.partitions:
            raise Unreachable(f"the source has no {OFFSETS_TOPIC} yet, or hides it")
        nodes: dict[int, _Node] = {}
        for index, partition in known.partitions.items():
            if partition.leader_id < 0:
                raise Unreachable(f"{OFFSETS_TOPIC}-{index} of the source has no leader")
            node = nodes.setdefault(partition.leader_id, _Node(self._limits))
            node.positions[index] = FetchPosition(0, partition.leader_epoch)
        # records of open transactions count from their markers on, so they must be read too
        for node_id, node in nodes.items():
            for index, offset in (await self._ends(node_id, node, READ_COMMITTED)).items():
                node.positions[index] = node.positions[index]._replace(offset=offset)
        self._topic_id, self._nodes = known.topic_id, nodes

    async def read(self, *, max_wait_ms: float) -> Sequence[tuple[int, bytes]]:
        """Whole batches by partition; empty after `max_wait_ms`."""
        for node_id, node in self._nodes.items():
            if node.fetch is None:
                node.fetch = asyncio.get_running_loop().create_task(self._fetch(node_id, node))
                node.fetch.add_done_callback(_retrieve)
        under_way = [node.fetch for node in self._nodes.values() if node.fetch is not None]
        if not under_way:
            raise Unreachable(f"{OFFSETS_TOPIC} of the source is not followed")
        await asyncio.wait(under_way, timeout=max_wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        found: list[tuple[int, bytes]] = []
        for node in self._nodes.values():
            if node.fetch is not None and node.fetch.done():
                done, node.fetch = node.fetch, None
                found += done.result()
        return found

    async def read_to_end(self) -> Sequence[tuple[int, bytes]]:
        """Read until every record has come that the partitions hold at the time of the call."""
        asked_ms = self._clock.monotonic_ms()
        # ends of all records, not of committed ones: records of open transactions must be read as
        # well
        goals = {node_id: await self._ends(node_id, node) for node_id, node in self._nodes.items()}
        found: list[tuple[int, bytes]] = []
        try:
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                while any(
                    self._nodes[node_id].positions[index].offset < end
                    for node_id, ends in goals.items()
                    for index, end in ends.items()
                ):
                    found += await self.read(max_wait_ms=self._limits.max_wait_ms)
        except TimeoutError as error:
            raise Unreachable(
                f"{OFFSETS_TOPIC} of the source was not read to its end in {CATCH_UP_TIMEOUT_S:.0f} s"
            ) from error
        for node in self._nodes.values():
            node.complete_at_ms = max(node.complete_at_ms, asked_ms)
        return found

    @property
    def complete_at_ms(self) -> float:
        """The monotonic time as of which everything has been read."""
        return min((node.complete_at_ms for node in self._nodes.values()), default=-math.inf)

    def stop(self) -> None:
        """Read no further until `begin`."""
        for node in self._nodes.values():
            if node.fetch is not None:
                node.fetch.cancel()
        self._nodes = {}

    async def close(self) -> None:
        """Drop the connections."""
        self.stop()
        await self._reading.close()

    async def _ends(self, node_id: int, node: _Node, isolation_level: int = 0) -> Mapping[int, int]:
        """The ends of the node's partitions; under READ_COMMITTED their last stable offsets."""
        queries = {
            (OFFSETS_TOPIC, index): OffsetQuery(LATEST_TIMESTAMP, at.leader_epoch)
            for index, at in node.positions.items()
        }
        listed = await reached(self._asking.list_offsets(node_id, queries, isolation_level=isolation_level))
        ends: dict[int, int] = {}
        for topic, index in queries:
            answer = listed.get((topic, index))
            if answer is None or answer.error_code is not ErrorCode.none:
                reason = "no answer" if answer is None else answer.error_code.name
                raise Unreachable(f"the end of {topic}-{index} of the source is not known: {reason}")
            ends[index] = answer.offset
        return ends

    async def _fetch(self, node_id: int, node: _Node) -> list[tuple[int, bytes]]:
        wanted = {(OFFSETS_TOPIC, index): at for index, at in node.positions.items()}
        sent_ms = self._clock.monotonic_ms()
        try:
            request = node.session.request(wanted, {OFFSETS_TOPIC: self._topic_id})
            response = await reached(self._reading.fetch(node_id, request))
            answers = node.session.answered(response)
        except BrokerError as error:
            raise Unreachable(f"source broker {node_id} answers {error.code.name} to a fetch") from error
        if is_throttled_away(response):
            await asyncio.sleep(response.throttle_time_ms / 1000)
            return []
        found = [(answer.partition_index, self._batches(node, answer)) for _, answer in answers]
        # a broker may leave out partitions of a fetch that reached its size limit
        is_all = all(at.offset >= node.high_watermarks.get(index, 0) for index, at in node.positions.items())
        if is_all and not response.error_code:  # An answer that ends the fetch session contains no records.
            # the time of the request: later commits may be missing in the response
            node.complete_at_ms = sent_ms
        return [(index, batches) for index, batches in found if batches]

    def _batches(self, node: _Node, answer: PartitionFetched) -> bytes:
        """The whole batches of an answer; the position moves behind them."""
        index, code = answer.partition_index, error_code(answer.error_code)
        if code is not ErrorCode.none:
            raise Unreachable(f"{OFFSETS_TOPIC}-{index} of the source answers {code.name}")
        node.high_watermarks[index] = answer.high_watermark
        raw = answer.records
        if not isinstance(raw, bytes | bytearray | memoryview) or not raw:
            return b""
        try:
            headers = list(iterate_headers(raw, may_end_in_partial=True))
        except InvalidBatch as error:
            raise Unreachable(f"{OFFSETS_TOPIC}-{index} of the source: {error}") from error
        if not headers:
            return b""
        position, last = headers[-1]
        node.positions[index] = node.positions[index]._replace(offset=last.next_offset)
        return bytes(raw[: position + last.size_bytes])


def _retrieve(fetch: asyncio.Task[list[tuple[int, bytes]]]) -> None:
    """Retrieve the outcome, so that asyncio does not report it as lost when the tail stops."""
    if not fetch.cancelled():
        fetch.exception()
