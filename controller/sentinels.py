"""One sentinel for each registered broker: tells the event loop when nothing listens there any more, and when it answers again.

Sentinels follow the cluster: a broker that joins gets one, one whose registration ends loses it. Made for one tenure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from controller.core import commands as ask
from controller.core.cluster import Broker, Cluster
from controller.liveness import until_identified
from runtime.listening import until_refused

PROBE_S = 0.2
"""How long a controller that takes over waits for brokers that neither accept connections nor refuse them."""

Tell = Callable[[ask.Command], Awaitable[None]]


async def refusing(brokers: Iterable[Broker], *, own_node: int) -> frozenset[int]:
    """Node ids of the brokers where nothing listens now; who is silent counts as there, and is left to its sentinel and its session."""
    asked = [broker for broker in brokers if broker.node_id != own_node]
    answers = await asyncio.gather(*(_is_refused(broker.registration.grpc_address) for broker in asked))
    return frozenset(broker.node_id for broker, is_refused in zip(asked, answers, strict=True) if is_refused)


async def _is_refused(address: str) -> bool:
    accepted = asyncio.Event()

    def on_doubt(is_doubted: bool) -> None:
        if not is_doubted:
            accepted.set()

    refused = asyncio.ensure_future(until_refused(address, on_doubt=on_doubt))
    waits: list[asyncio.Future[Any]] = [refused, asyncio.ensure_future(accepted.wait())]
    try:
        await asyncio.wait(waits, timeout=PROBE_S, return_when=asyncio.FIRST_COMPLETED)
        return refused.done() and not accepted.is_set()
    finally:
        for wait in waits:
            wait.cancel()


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
