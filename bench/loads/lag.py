"""Steady-state lag of a mirror: from the acknowledgement of a record at the source until it can be
read at the target.

A paced producer writes to the source; a reader long-polls the target and records the arrival time
of each batch. Mirrored records must have the offsets of the source, which both mirrors preserve for
a topic that was empty at the start; the log ends are compared to check this.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.loads.paced_load import PacedLoad
from bench.peers.systems import PARTITION_COUNT
from runtime.compiled import ROOT
from runtime.process import OperationalFailure
from wire.batches.record_batch import Buffer, iterate_headers
from wire.client.raw_client import KafkaClient
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.ids import DEBUGGING_CONSUMER
from wire.protocol.messages.fetch_codec import PartitionFetched

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Times = NDArray[int64]

RECORD_BYTES = 1_000
FETCH_MAX_WAIT_MS = 500
PARTITION_BYTES_MAX = 1 << 20
CATCH_UP_WITHIN_S = 60

Arrivals = list[list[tuple[int, int]]]
"""For each partition: the last offset of each batch and its arrival (monotonic ns)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journeys:
    """Arrays with one element for each record: its partition and offset, when the source
    acknowledged it, and when it was read at the target (monotonic ns).
    """

    partition: Times
    offset: Times
    acknowledged_ns: Times
    came_ns: Times

    @property
    def lags_ms(self) -> list[float]:
        """Arrival less acknowledgement."""
        found: list[float] = ((self.came_ns - self.acknowledged_ns) / 1e6).tolist()
        return found


def followed(
    source: str,
    target: str,
    topics: tuple[str, str],
    directory: Path,
    *,
    bytes_per_s: float,
    duration_s: float,
    skip_s: float,
) -> Journeys:
    """The records of a steady load after the first `skip_s` seconds, with the topic's names at the
    source and at the target.
    """
    load = PacedLoad(
        bootstrap_servers=source,
        topic=topics[0],
        partition_count=PARTITION_COUNT,
        records_per_s=bytes_per_s / RECORD_BYTES,
        record_bytes=RECORD_BYTES,
        duration_s=duration_s,
        result=str(directory / f"{topics[0]}.npz"),
    )
    arrivals = asyncio.run(_watch(load, target, topics[1], directory))
    return journeys(_acknowledged(load), arrivals, skip_s=skip_s)


def journeys(acknowledged: Mapping[str, Times], arrivals: Arrivals, *, skip_s: float) -> Journeys:
    """The times of each record, without those acknowledged in the first `skip_s` seconds."""
    import numpy as np

    times = acknowledged["acknowledged_ns"]
    counted = times >= times.min() + int(skip_s * 1e9)
    came_ns = np.zeros_like(times)
    for partition, batches in enumerate(arrivals):
        chosen = counted & (acknowledged["partition"] == partition)
        if not chosen.any():
            continue
        last_offsets, seen_ns = (np.array(column, dtype=np.int64) for column in zip(*batches, strict=True))
        came_ns[chosen] = seen_ns[np.searchsorted(last_offsets, acknowledged["offset"][chosen])]
    return Journeys(
        partition=acknowledged["partition"][counted],
        offset=acknowledged["offset"][counted],
        acknowledged_ns=times[counted],
        came_ns=came_ns[counted],
    )


async def _watch(load: PacedLoad, target: str, topic: str, directory: Path) -> Arrivals:
    """Read the target while the load runs, and until all of it has arrived."""
    settings = directory / f"{load.topic}.json"
    load.write(settings)
    arrivals: Arrivals = [[] for _ in range(load.partition_count)]
    async with KafkaClient(target, site_local=True) as client:
        reading = asyncio.create_task(_read(client, topic, arrivals))
        producing = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.loads.paced_load", str(settings), cwd=ROOT
        )
        try:
            if await producing.wait() != 0:
                raise OperationalFailure(f"the paced load ended with {producing.returncode}")
            await _until_all_came(load, arrivals, reading)
        finally:
            if producing.returncode is None:
                producing.kill()
                await producing.wait()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    return arrivals


async def _until_all_came(load: PacedLoad, arrivals: Arrivals, reading: asyncio.Task[None]) -> None:
    acknowledged = _acknowledged(load)
    wanted = [
        int(acknowledged["offset"][acknowledged["partition"] == partition].max(initial=-1))
        for partition in range(load.partition_count)
    ]
    deadline = time.monotonic() + CATCH_UP_WITHIN_S
    while (came := [batches[-1][0] if batches else -1 for batches in arrivals]) != wanted:
        if reading.done() or time.monotonic() > deadline:
            why = f"; its reader ended with {reading.exception()!r}" if reading.done() else ""
            raise OperationalFailure(f"the source ends at {wanted}, the mirror came to {came}{why}")
        await asyncio.sleep(0.05)


async def _read(client: KafkaClient, topic: str, arrivals: Arrivals) -> None:
    """Fetch all partitions forever from offset 0 on; the site's only broker leads all of them."""
    node_id = await client.leader(topic, 0)
    topic_id = client.cluster.topics[topic].topic_id
    next_offsets = [0] * len(arrivals)
    while True:
        partitions = [PartitionToFetch(index, offset, PARTITION_BYTES_MAX) for index, offset in enumerate(next_offsets)]
        request = FetchRequest(
            [TopicToFetch(topic, topic_id, partitions)], max_wait_ms=FETCH_MAX_WAIT_MS, replica_id=DEBUGGING_CONSUMER
        )
        response = await client.fetch(node_id, request)
        now_ns = time.monotonic_ns()
        for fetched in (partition for answer in response.topics for partition in answer.partitions):
            for _, header in iterate_headers(_parsed(fetched), may_end_in_partial=True):
                arrivals[fetched.partition_index].append((header.last_offset, now_ns))
                next_offsets[fetched.partition_index] = header.next_offset


def _parsed(fetched: PartitionFetched) -> Buffer:
    """The records of a parsed response, as bytes."""
    records = fetched.records or b""
    assert isinstance(records, bytes | bytearray | memoryview)
    return records


def _acknowledged(load: PacedLoad) -> Mapping[str, Times]:
    import numpy as np

    with np.load(load.result) as stored:
        return {name: stored[name] for name in stored.files}
