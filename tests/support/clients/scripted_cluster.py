"""A cluster of scripted brokers that keeps logs in memory: for tests of our clients that need
faults at a certain request.

`fail` gives codes that the next requests of an API are answered with, partition by partition; while
`going` is not set no Produce and no Fetch is answered; APIs in `silent` get no answer at all.
`move` gives a partition another leader under the next epoch.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections import deque
from contextlib import AsyncExitStack
from typing import Any, Self

from kio.schema.errors import ErrorCode

from tests.support.clients.scripted_broker import NO_TIME, ScriptedBroker
from wire.batches.record_batch import iterate_headers, patch_placement, read_header
from wire.batches.records import Record, decode_records, encode_batch
from wire.protocol.streams.frames import VersionRange

PRODUCE, FETCH, LIST_OFFSETS, METADATA, INIT_PRODUCER_ID, EPOCH_ENDS = 0, 1, 2, 3, 22, 23
EARLIEST, LATEST = -2, -1
TOPIC_ID = uuid.UUID(int=7)


class Log:
    """One partition: batches as they were appended."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = self.end = 0
        self.leader = 0
        self.epoch = 0

    def append(self, raw: bytes) -> int:
        base = self.end
        for position, header in iterate_headers(raw):
            placed = patch_placement(raw, position, header, base_offset=self.end, leader_epoch=self.epoch)
            self.batches.append(placed.prefix + bytes(placed.rest))
            self.end += header.last_offset_delta + 1
        return base

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_records(batch)]

    def read(self, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for batch in self.batches:
            if read_header(batch).next_offset > offset:
                if found and size + len(batch) > max_bytes:
                    break
                found.append(batch)
                size += len(batch)
        return b"".join(found)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above this one, and where it ends."""
        best, end = -1, -1
        for batch in self.batches:
            header = read_header(batch)
            if header.partition_leader_epoch <= epoch:
                best, end = header.partition_leader_epoch, header.next_offset
        return (best, end) if best >= 0 else (-1, -1)

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if read_header(batch).next_offset <= offset]
        self.end = offset

    def expire(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if read_header(batch).base_offset >= offset]
        self.start = offset


class ScriptedCluster:
    """Use as `async with ScriptedCluster(nodes=2, partitions=3) as cluster`; its topic is "t"."""

    def __init__(self, nodes: int = 1, partitions: int = 1) -> None:
        self.brokers = {number: ScriptedBroker() for number in range(1, nodes + 1)}
        self.logs = [Log() for _ in range(partitions)]
        for index, log in enumerate(self.logs):
            log.leader = 1 + index % nodes
        self.errors: dict[int, deque[ErrorCode]] = {}
        self.is_topic_there = True
        self.batch_bytes_max = 1 << 30
        self.going = asyncio.Event()
        self.going.set()
        self.silent: set[int] = set()
        self.aborted_transactions: list[tuple[int, int]] = []
        """Producer ids and first offsets that every fetch answers."""
        self.throttled_fetches_ms: deque[int] = deque()
        """How long the next fetches are throttled: as at Apache Kafka, their answers name no
        partition.
        """
        self.producer_ids = 0
        self.seen_sequences: dict[tuple[int, int], int] = {}
        self._stack = AsyncExitStack()
        for node_id, broker in self.brokers.items():
            self._script(node_id, broker)

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await self._stack.enter_async_context(broker)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.going.set()
        await self._stack.aclose()

    @property
    def bootstrap(self) -> str:
        return ",".join(str(broker.address) for broker in self.brokers.values())

    def move(self, partition: int, node_id: int) -> None:
        self.logs[partition].leader = node_id
        self.logs[partition].epoch += 1

    def fail(self, api_key: int, *codes: ErrorCode) -> None:
        self.errors.setdefault(api_key, deque()).extend(codes)

    def fill(self, partition: int, count: int, *, batch: int = 1, first: int = 0) -> None:
        """Records numbered from `first`, so many in a batch."""
        for start in range(first, first + count, batch):
            records = [Record(None, b"%d" % number, 1000 + number) for number in range(start, start + batch)]
            self.logs[partition].append(encode_batch(records))

    def count(self, api_key: int) -> int:
        return sum(len(broker.requests(api_key)) for broker in self.brokers.values())

    def _script(self, node_id: int, broker: ScriptedBroker) -> None:
        broker.on(METADATA, lambda request, header: self._metadata(request))
        broker.on(PRODUCE, lambda request, header: self._produce(node_id, request), VersionRange(3, 12))
        broker.on(FETCH, lambda request, header: self._fetch(node_id, request), VersionRange(4, 12))
        broker.on(LIST_OFFSETS, lambda request, header: self._list_offsets(node_id, request), VersionRange(1, 7))
        broker.on(INIT_PRODUCER_ID, lambda request, header: self._init_producer_id())
        broker.on(EPOCH_ENDS, lambda request, header: self._epoch_ends(node_id, request), VersionRange(2, 4))

    def _code(self, api_key: int, node_id: int, index: int) -> ErrorCode:
        if self.errors.get(api_key):
            return self.errors[api_key].popleft()
        return ErrorCode.none if self.logs[index].leader == node_id else ErrorCode.not_leader_or_follower

    def _metadata(self, request: Any) -> dict[str, Any]:
        partitions = [
            {
                "error_code": ErrorCode.none if log.leader > 0 else ErrorCode.leader_not_available,
                "partition_index": index,
                "leader_id": log.leader,
                "leader_epoch": log.epoch,
                "replica_nodes": (1,),
                "isr_nodes": (1,),
                "offline_replicas": (),
            }
            for index, log in enumerate(self.logs)
        ]
        named = ["t"] if request.topics is None else [topic.name for topic in request.topics]
        topics = [
            {
                "error_code": ErrorCode.none,
                "name": "t",
                "topic_id": TOPIC_ID,
                "is_internal": False,
                "partitions": partitions,
            }
            if name == "t" and self.is_topic_there
            else {
                "error_code": ErrorCode.unknown_topic_or_partition,
                "name": name,
                "topic_id": None,
                "is_internal": False,
                "partitions": (),
            }
            for name in named
        ]
        brokers = [
            {"node_id": node_id, "host": broker.address.host, "port": broker.address.port, "rack": None}
            for node_id, broker in self.brokers.items()
        ]
        return {"throttle_time": NO_TIME, "brokers": brokers, "cluster_id": "c", "controller_id": -1, "topics": topics}

    async def _produce(self, node_id: int, request: Any) -> dict[str, Any] | None:
        await self.going.wait()
        answers = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                code = self._code(PRODUCE, node_id, data.index)
                if len(data.records) > self.batch_bytes_max:
                    code = ErrorCode.message_too_large
                if PRODUCE in self.silent:
                    code = ErrorCode.none
                base = self._append(data.index, data.records) if not code else -1
                answers.append({"index": data.index, "error_code": code, "base_offset": base, "record_errors": ()})
        if request.acks == 0 or PRODUCE in self.silent:
            return None
        responses = [{"name": "t", "topic_id": TOPIC_ID, "partition_responses": answers}]
        return {"responses": responses, "throttle_time": NO_TIME}

    def _append(self, index: int, records: bytes) -> int:
        header = read_header(records)
        if header.producer_id >= 0:
            if self.seen_sequences.get((index, header.producer_id), -1) >= header.base_sequence:
                return -1
            self.seen_sequences[index, header.producer_id] = header.base_sequence
        return self.logs[index].append(records)

    async def _fetch(self, node_id: int, request: Any) -> dict[str, Any] | None:
        await self.going.wait()
        if self.throttled_fetches_ms:
            throttle_time = dt.timedelta(milliseconds=self.throttled_fetches_ms.popleft())
            return {"throttle_time": throttle_time, "error_code": ErrorCode.none, "session_id": 0, "responses": ()}
        wanted = [(topic.topic, one) for topic in request.topics for one in topic.partitions]
        responses = [
            {"topic": name, "topic_id": TOPIC_ID, "partitions": [self._fetched(node_id, one)]} for name, one in wanted
        ]
        if not any(response["partitions"][0]["records"] for response in responses):
            await asyncio.sleep(0.01)
        if FETCH in self.silent:
            return None
        # No session: every request names everything.
        return {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "session_id": 0, "responses": responses}

    def _fetched(self, node_id: int, wanted: Any) -> dict[str, Any]:
        log = self.logs[wanted.partition]
        code = self._code(FETCH, node_id, wanted.partition)
        if not code and not log.start <= wanted.fetch_offset <= log.end:
            code = ErrorCode.offset_out_of_range
        return {
            "partition_index": wanted.partition,
            "error_code": code,
            "high_watermark": -1 if code else log.end,
            "last_stable_offset": -1 if code else log.end,
            "log_start_offset": -1 if code else log.start,
            "aborted_transactions": tuple(
                {"producer_id": producer_id, "first_offset": first_offset}
                for producer_id, first_offset in self.aborted_transactions
            ),
            "preferred_read_replica": -1,
            "records": b"" if code else log.read(wanted.fetch_offset, wanted.partition_max_bytes),
        }

    def _list_offsets(self, node_id: int, request: Any) -> dict[str, Any]:
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                log = self.logs[one.partition_index]
                code = self._code(LIST_OFFSETS, node_id, one.partition_index)
                found = {EARLIEST: log.start, LATEST: log.end}.get(one.timestamp)
                if found is None:
                    later = [record.offset for record in log.records() if record.timestamp_ms >= one.timestamp]
                    found = min(later, default=-1)
                answers.append(
                    {
                        "partition_index": one.partition_index,
                        "error_code": code,
                        "timestamp": -1,
                        "offset": -1 if code else found,
                        "leader_epoch": log.epoch,
                    }
                )
            topics.append({"name": topic.name, "partitions": answers})
        return {"throttle_time": NO_TIME, "topics": topics}

    def _init_producer_id(self) -> dict[str, Any]:
        self.producer_ids += 1
        return {
            "throttle_time": NO_TIME,
            "error_code": ErrorCode.none,
            "producer_id": self.producer_ids,
            "producer_epoch": 0,
        }

    def _epoch_ends(self, node_id: int, request: Any) -> dict[str, Any]:
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                code = self._code(EPOCH_ENDS, node_id, one.partition)
                epoch, end = self.logs[one.partition].epoch_end(one.leader_epoch)
                answers.append(
                    {"error_code": code, "partition": one.partition, "leader_epoch": epoch, "end_offset": end}
                )
            topics.append({"topic": topic.topic, "partitions": answers})
        return {"throttle_time": NO_TIME, "topics": topics}
