"""The nodes that a member of a classic group owns in ZooKeeper: its registration and its claims.

All are ephemeral. Creating the owner's node of a partition makes a member its owner. A node of
another session belongs to another member, even under the same name.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from kazoo.exceptions import NodeExistsError, NoNodeError

from clients.classic.classic_settings import ZooKeeperConsumerOptions
from runtime.clock import Clock
from runtime.process import OperationalFailure
from runtime.zookeeper.client import ZooKeeper
from wire.protocol.ids import PartitionKey
from wire.znodes.consumer_znodes import (
    ConsumerRegistration,
    encode_registration,
    id_path,
    ids_path,
    owner_path,
    owners_path,
)


class PartitionOwned(Exception):
    """Another consumer still owns a partition."""


class MemberNodes:
    """The nodes of one member; `claimed` holds its partitions and their threads."""

    def __init__(self, zookeeper: ZooKeeper, consumer_id: str, options: ZooKeeperConsumerOptions, clock: Clock) -> None:
        self._zookeeper = zookeeper
        self._group_id = options.group_id
        self._path = id_path(options.group_id, consumer_id)
        self._retry_ms = options.rebalance_backoff_ms
        self._session_timeout_ms = options.session_timeout_ms
        self._clock = clock
        self.claimed: dict[PartitionKey, str] = {}

    async def register(self, registration: ConsumerRegistration) -> None:
        """Register the member. Raises OperationalFailure when another member has this consumer's
        id.
        """
        await self._zookeeper.ensure_path(ids_path(self._group_id))
        deadline_ms = self._clock.monotonic_ms() + 2 * self._session_timeout_ms
        while True:
            try:
                await self._zookeeper.create(self._path, encode_registration(registration), is_ephemeral=True)
            except NodeExistsError:
                stat = await self._zookeeper.exists(self._path)
                if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
                    return
                # A session of ours that has ended for us may still exist in ZooKeeper.
                if self._clock.monotonic_ms() > deadline_ms:
                    raise OperationalFailure(f"another consumer is registered as {self._path}") from None
                await asyncio.sleep(self._retry_ms / 1000)
            else:
                return

    async def unregister(self) -> None:
        """Delete the registration."""
        await self._zookeeper.delete(self._path)

    async def claim(self, own: Mapping[PartitionKey, str]) -> None:
        """Claim these partitions; releases all and raises PartitionOwned when one is taken."""
        for topic, partition in sorted(own):
            thread = own[topic, partition]
            await self._zookeeper.ensure_path(owners_path(self._group_id, topic))
            path = owner_path(self._group_id, topic, partition)
            # Recorded before it is created: the next attempt releases an interrupted claim.
            self.claimed[topic, partition] = thread
            try:
                await self._zookeeper.create(path, thread.encode(), is_ephemeral=True)
            except NodeExistsError:
                del self.claimed[topic, partition]
                await self.release()
                raise PartitionOwned(f"{topic}-{partition} is still owned by another member") from None

    async def release(self) -> None:
        """Give all claimed partitions back."""
        for (topic, partition), thread in list(self.claimed.items()):
            path = owner_path(self._group_id, topic, partition)
            stored = await self._zookeeper.get_or_none(path)
            if (
                stored is not None
                and stored[1].ephemeral_owner == self._zookeeper.session_id
                and stored[0] == thread.encode()
            ):
                with contextlib.suppress(NoNodeError):
                    await self._zookeeper.delete(path)
            del self.claimed[topic, partition]
