"""`__consumer_offsets` in memory, with the failures that a coordinator must handle. See
`broker/groups/group_shard.py: InternalLog`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kio.schema.errors import ErrorCode

from broker.replication.hosted_partition import PartitionFailure
from wire.batches.record_batch import iterate_headers
from wire.batches.records import decode_records
from wire.protocol.ids import NO_EPOCH


class MemoryLog:
    """Partitions as lists of appended bytes. `gate` holds appends and reads back while it is
    cleared.
    """

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.appends: dict[int, list[bytes]] = {}
        self.failures: list[tuple[ErrorCode, bool]] = []
        """Errors for the next appends, and whether the bytes are in the log all the same."""
        self.load_failures: list[ErrorCode] = []
        """Errors for the next reads."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.append_count = 0

    def leader_epoch(self, partition: int) -> int | None:
        return self.epochs.get(partition)

    def producer_epoch(self, partition: int, producer_id: int) -> int:
        headers = (header for piece in self.appends.get(partition, ()) for _, header in iterate_headers(piece))
        return max((header.producer_epoch for header in headers if header.producer_id == producer_id), default=NO_EPOCH)

    async def append(self, partition: int, records: bytes) -> int:
        self.append_count += 1
        await self.gate.wait()
        if partition not in self.epochs:
            raise PartitionFailure(ErrorCode.not_leader_or_follower)
        if self.failures:
            code, is_appended = self.failures.pop(0)
            if is_appended:
                self.appends.setdefault(partition, []).append(records)
            raise PartitionFailure(code)
        self.appends.setdefault(partition, []).append(records)
        return sum(1 for _ in self.records(partition)) - 1

    async def read_all(self, partition: int) -> AsyncIterator[bytes]:
        await self.gate.wait()
        if self.load_failures:
            raise PartitionFailure(self.load_failures.pop(0))
        for batches in tuple(self.appends.get(partition, ())):
            await asyncio.sleep(0)
            yield batches

    def records(self, partition: int) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values in the partition."""
        return [
            (found.key, found.value) for piece in self.appends.get(partition, ()) for found in decode_records(piece)
        ]
