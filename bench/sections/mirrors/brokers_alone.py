"""Measures two brokers without a mirror between them: one process reads a topic from one broker
while another process writes the same amount to the other broker.

`python -m bench.sections.mirrors.brokers_alone read BROKERS TOPIC` and `... write BROKERS TOPIC
FROM_BROKERS FROM_TOPIC` are those processes. The processes send the requests of a mirror, over two
connections each and with the same sizes. The reader drops the records, and the writer repeats the
same few batches. Each process prints a line when it is ready, begins when it gets a line, and
prints the seconds that it took.

For a pair of sites, the benchmark reads from the standby and writes to the other site, since a
standby accepts records only from its mirror; both brokers are the same program.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import uvloop

from bench.measuring.warm_memory import touch_free_memory
from bench.peers.systems import create_topic, delete_topic, end_offset_sum
from runtime.compiled import ROOT
from runtime.process import OperationalFailure
from wire.batches.record_batch import iterate_headers, patch_placement
from wire.client.raw_client import KafkaClient
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.ids import DEBUGGING_CONSUMER, LATEST_TIMESTAMP
from wire.protocol.messages.fetch_codec import PartitionFetched
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

TOPIC = "alone"
CONNECTIONS = 2
PARTITION_BYTES = 1024 * 1024
FETCH_BYTES = 4 * 1024 * 1024 - 64 * 1024
IN_FLIGHT_MAX = 5
WITHIN_S = 120
READY = "ready"

Transfer = Callable[[], Awaitable[None]]


def carried_mb_per_s(*, read_from: str, write_to: str, topic: str, size_bytes: float) -> float:
    """MB a second of the slower of two processes: one reads the `size_bytes` of `topic` from one
    broker, the other writes as many to another.
    """
    create_topic(write_to, TOPIC)
    touch_free_memory(size_bytes)
    commands = (("read", read_from, topic), ("write", write_to, TOPIC, read_from, topic))
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.sections.mirrors.brokers_alone", *command],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    try:
        for process in processes:
            _expect(process, READY)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        took_s = max(float(process.communicate(timeout=WITHIN_S)[0]) for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    delete_topic(write_to, TOPIC)
    return size_bytes / 1e6 / took_s


def _expect(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    reported = process.stdout.readline().strip()
    if reported != word:
        raise OperationalFailure(f"a process without a mirror printed {reported!r}, expected {word!r}")


async def _begin(transfers: Sequence[Transfer]) -> None:
    print(READY, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    began = time.monotonic()
    await asyncio.gather(*(transfer() for transfer in transfers))
    print(time.monotonic() - began)


class _Partitions:
    """The partitions of one connection, which have the same leader, and the offset up to which each
    has been read.
    """

    def __init__(self, client: KafkaClient, topic: str, leader: int, ends: dict[int, int]) -> None:
        self._client = client
        self._topic = topic
        self._leader = leader
        self._ends = ends
        self._positions = dict.fromkeys(ends, 0)

    async def read(self) -> None:
        """Read to the ends, and discard the bytes."""
        pending = asyncio.ensure_future(self.fetch())
        while True:
            for partition in await pending:
                for _, header in iterate_headers(_received(partition), may_end_in_partial=True):
                    self._positions[partition.partition_index] = header.next_offset
            if all(self._positions[index] >= end for index, end in self._ends.items()):
                return
            pending = asyncio.ensure_future(self.fetch())

    async def fetch(self) -> Sequence[PartitionFetched]:
        """Fetch the next batches of all partitions; the partition that was answered last comes
        first.
        """
        wanted = [
            PartitionToFetch(index, self._positions[index], PARTITION_BYTES)
            for index, end in sorted(self._ends.items(), key=lambda item: self._positions[item[0]])
            if self._positions[index] < end
        ]
        known = self._client.cluster.topics[self._topic]
        request = FetchRequest(
            [TopicToFetch(self._topic, known.topic_id, wanted)],
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            replica_id=DEBUGGING_CONSUMER,
        )
        response = await self._client.fetch(self._leader, request)
        return [partition for topic in response.topics for partition in topic.partitions]


def _received(partition: PartitionFetched) -> memoryview:
    """The partition's batches; the last one may be truncated."""
    records = partition.records
    return records if isinstance(records, memoryview) else memoryview(b"")


async def _partitions(client: KafkaClient, topic: str) -> list[_Partitions]:
    """Each connection's share of a topic whose partitions have one leader."""
    known = (await client.metadata([topic])).topics[topic].partitions
    leader = known[0].leader_id
    places = [(topic, index) for index in known]
    ends = await client.offsets_at(places, LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
    return [
        _Partitions(
            client, topic, leader, {index: ends[topic, index] for index in known if index % CONNECTIONS == number}
        )
        for number in range(CONNECTIONS)
    ]


async def _read(brokers: str, topic: str) -> None:
    clients = [KafkaClient(brokers, site_local=True) for _ in range(CONNECTIONS)]
    shares = [(await _partitions(client, topic))[number] for number, client in enumerate(clients)]
    await _begin([share.read for share in shares])
    for client in clients:
        await client.close()


class _Writer:
    """One connection that writes the same records to its partitions, with a given number of
    requests.
    """

    def __init__(
        self, client: KafkaClient, topic: str, *, partitions: Sequence[int], records: memoryview, requests: int
    ) -> None:
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._records = records
        self._left = requests

    async def write(self) -> None:
        """Keep several requests in flight until all are answered."""
        await asyncio.gather(*(self._work() for _ in range(IN_FLIGHT_MAX)))

    async def _work(self) -> None:
        known = self._client.cluster.topics[self._topic]
        while self._left > 0:
            self._left -= 1
            first = self._left * 2
            partitions = [
                PartitionRecords(self._partitions[(first + number) % len(self._partitions)], self._records)
                for number in range(2)
            ]
            request = ProduceRequest(None, 1, 30_000, [TopicRecords(self._topic, known.topic_id, partitions)])
            response = await self._client.produce_to(known.partitions[0].leader_id, request)
            failed = (
                []
                if response is None
                else [answer for topic in response.topics for answer in topic.partitions if answer.error_code]
            )
            if failed:
                raise OperationalFailure(f"a broker refused what was written: {failed[0]}")


async def _write(brokers: str, topic: str, from_brokers: str, from_topic: str) -> None:
    async with KafkaClient(from_brokers, site_local=True) as source:
        shares = await _partitions(source, from_topic)
        (fetched, *_) = [partition for partition in await shares[0].fetch() if partition.records]
        record_count = await end_offset_sum(source, from_topic)
    received = _received(fetched)
    headers = list(iterate_headers(received, may_end_in_partial=True))
    # A producer sends one batch for each partition, and the batch's base offset is 0.
    position, header = max(headers, key=lambda found: found[1].size_bytes)
    records = memoryview(b"".join(patch_placement(received, position, header, base_offset=0, leader_epoch=-1)))
    requests = record_count // header.record_count // 2 // CONNECTIONS
    clients = [KafkaClient(brokers, site_local=True) for _ in range(CONNECTIONS)]
    writers = []
    for number, client in enumerate(clients):
        partitions = [
            index
            for index in (await client.metadata([topic])).topics[topic].partitions
            if index % CONNECTIONS == number
        ]
        writers.append(_Writer(client, topic, partitions=partitions, records=records, requests=requests))
    await _begin([writer.write for writer in writers])
    for client in clients:
        await client.close()


if __name__ == "__main__":
    uvloop.run(_read(*sys.argv[2:]) if sys.argv[1] == "read" else _write(*sys.argv[2:]))
