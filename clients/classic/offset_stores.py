"""Stores the offsets of a classic group: in ZooKeeper, in the broker, or in both while the group
moves (`dual.commit.enabled`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from kazoo.exceptions import NodeExistsError, NoNodeError

from runtime.zookeeper.client import ZooKeeper
from wire.client.client_errors import broker_error
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import PartitionKey
from wire.znodes.consumer_znodes import decode_offset, encode_offset, offset_path


class OffsetsRefused(Exception):
    """The coordinator refused some offsets; `is_retriable` if it may accept some of them later."""

    def __init__(self, message: str, *, is_retriable: bool) -> None:
        super().__init__(message)
        self.is_retriable = is_retriable


class OffsetStore(Protocol):
    """The offsets of one group."""

    async def commit(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Store these offsets; without offsets this succeeds."""
        ...

    async def fetch(self, places: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Return the offsets that are known."""
        ...


class ZooKeeperOffsets:
    """Decimal text in persistent nodes. An offset that has not changed since it was last written or
    read is not written.
    """

    def __init__(self, zookeeper: ZooKeeper, group: str) -> None:
        self._zookeeper = zookeeper
        self._group = group
        self._known: dict[PartitionKey, int] = {}
        self.writes = 0

    async def commit(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Write the changed offsets; raises kazoo's errors."""
        moved = {place: offset for place, offset in offsets.items() if self._known.get(place) != offset}
        await asyncio.gather(*(self._write(place, offset) for place, offset in moved.items()))

    async def fetch(self, places: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Read from ZooKeeper, since another process may have written. MalformedZnode."""
        found = {}
        for place in places:
            path = offset_path(self._group, *place)
            stored = await self._zookeeper.get_or_none(path)
            if stored is not None:
                found[place] = self._known[place] = decode_offset(path, stored[0])
            else:
                self._known.pop(place, None)
        return found

    async def _write(self, place: PartitionKey, offset: int) -> None:
        path, value = offset_path(self._group, *place), encode_offset(offset)
        try:
            await self._zookeeper.set(path, value)
        except NoNodeError:
            try:
                await self._zookeeper.create(path, value, make_path=True)
            except NodeExistsError:
                await self._zookeeper.set(path, value)
        self._known[place] = offset
        self.writes += 1


class BrokerOffsets:
    """Keeps offsets in the coordinator's `__consumer_offsets`, as a group without members. The
    client retries and finds a new coordinator.
    """

    def __init__(self, client: KafkaClient, group: str) -> None:
        self._client = client
        self._group = group

    async def commit(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Commit. Raises KafkaClientError if the coordinator is unavailable for too long, and
        OffsetsRefused.
        """
        if not offsets:
            return
        wanted = {place: CommittedOffset(offset, -1, "") for place, offset in offsets.items()}
        outcomes = await self._client.commit(self._group, wanted)
        refused = {place: code for place, code in outcomes.items() if code}
        if refused:
            listed = ", ".join(f"{topic}-{index}: {code.name}" for (topic, index), code in sorted(refused.items()))
            is_retriable = any(code.retriable for code in refused.values())
            raise OffsetsRefused(f"group {self._group}: {listed}", is_retriable=is_retriable)

    async def fetch(self, places: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Ask the coordinator. KafkaClientError, also while it loads."""
        wanted = list(places)
        if not wanted:
            return {}
        found = await self._client.committed(self._group, wanted)
        for (topic, index), offset in found.items():
            if offset.error_code:
                raise broker_error(offset.error_code, message=f"{topic}-{index}", api_key=9)
        return {place: offset.offset for place, offset in found.items() if offset.offset >= 0}


class DualOffsets:
    """Stores offsets in the broker first and then in ZooKeeper; the larger one is valid. A group
    can move from one store to the other, and back, without losing its offsets.
    """

    def __init__(self, broker: BrokerOffsets, zookeeper: ZooKeeperOffsets) -> None:
        self._broker = broker
        self._zookeeper = zookeeper

    async def commit(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Commit to the broker, then write the same offsets to ZooKeeper."""
        await self._broker.commit(offsets)
        await self._zookeeper.commit(offsets)

    async def fetch(self, places: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """The larger offset of both stores."""
        wanted = list(places)
        new, old = await self._broker.fetch(wanted), await self._zookeeper.fetch(wanted)
        return {place: max(new.get(place, -1), old.get(place, -1)) for place in wanted if place in new or place in old}


def offset_store(
    group_id: str, zookeeper: ZooKeeper, client: KafkaClient, *, storage: str, is_dual_commit: bool | None
) -> OffsetStore:
    """The store of a group with `storage` zookeeper or kafka; with kafka, commits go to both unless
    `is_dual_commit` is False.
    """
    in_zookeeper = ZooKeeperOffsets(zookeeper, group_id)
    if storage == "zookeeper":
        return in_zookeeper
    in_broker = BrokerOffsets(client, group_id)
    return in_broker if is_dual_commit is False else DualOffsets(in_broker, in_zookeeper)
