"""One sentinel for each registered broker: tells the event loop when nothing listens there any more, and when it answers again.

Sentinels follow the cluster: a broker that joins gets one, one whose registration ends loses it. Made for one tenure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from controller.core import commands as ask
from controller.core.cluster import Broker, Cluster
from controller.liveness import until_identified
from runtime.listening import until_refused

Tell = Callable[[ask.Command], Awaitable[None]]


class Sentinels:
    """All sentinels of one tenure."""

    def __init__(self, tell: Tell, *, own_node: int) -> None:
        self._tell = tell
        self._own_node = own_node
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}

    def follow(self, cluster: Cluster) -> None:
        """Have a sentinel for exactly the registered brokers; the one that shares this process cannot die alone."""
        registered = [*cluster.brokers.values(), *cluster.presumed_dead.values()]
        wanted = {(broker.node_id, broker.epoch): broker for broker in registered if broker.registration.grpc_address}
        for key in self._tasks.keys() - wanted.keys():
            self._tasks.pop(key).cancel()
        for key, broker in wanted.items():
            if key not in self._tasks and broker.node_id != self._own_node:
                self._tasks[key] = asyncio.get_running_loop().create_task(
                    self._watch(broker), name=f"sentinel of broker {broker.node_id}"
                )

    async def _watch(self, broker: Broker) -> None:
        address = broker.registration.grpc_address
        while True:
            await until_refused(address)
            await self._tell(ask.BrokerUnreachable(node_id=broker.node_id, broker_epoch=broker.epoch))
            await until_identified(address, broker.epoch)
            await self._tell(ask.BrokerAnswered(node_id=broker.node_id, broker_epoch=broker.epoch))

    async def close(self) -> None:
        """Watch nobody any more."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
