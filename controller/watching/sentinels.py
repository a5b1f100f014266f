"""One sentinel per registered broker: reports that it refuses connections or answers again.

Sentinels follow the cluster: a broker that joins gets one, and loses it when its registration ends.
They report to the event loop and exist for one tenure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from controller.core import commands as ask
from controller.core.state.cluster import Cluster
from controller.core.state.site_values import Broker
from controller.watching.liveness import until_identified
from runtime.grpc_server import Dial, open_channel
from runtime.listening import until_refused
from runtime.supervision import Supervisor

PROBE_S = 0.2
"""Time (s) that a new controller waits for brokers that neither accept connections nor refuse them.
"""

Tell = Callable[[ask.Command], Awaitable[None]]


async def refusing(brokers: Iterable[Broker], *, own_node: int) -> frozenset[int]:
    """Node ids of the brokers that refuse connections now. A broker that does not answer counts as
    alive; its sentinel and its session decide later.
    """
    asked = [broker for broker in brokers if broker.node_id != own_node]
    answers = await asyncio.gather(*(_is_refused(broker.registration.grpc_address) for broker in asked))
    return frozenset(broker.node_id for broker, is_refused in zip(asked, answers, strict=True) if is_refused)


async def _is_refused(address: str) -> bool:
    accepted = asyncio.Event()

    def on_suspicion(is_doubted: bool) -> None:
        if not is_doubted:
            accepted.set()

    refused = asyncio.ensure_future(until_refused(address, on_suspicion=on_suspicion))
    waits: list[asyncio.Future[Any]] = [refused, asyncio.ensure_future(accepted.wait())]
    try:
        await asyncio.wait(waits, timeout=PROBE_S, return_when=asyncio.FIRST_COMPLETED)
        # an accepted connection overrides a refusal: a port that was just opened may have refused
        # before
        return refused.done() and refused.exception() is None and not accepted.is_set()
    finally:
        for wait in waits:
            wait.cancel()


class Sentinels:
    """All sentinels of one tenure."""

    def __init__(self, tell: Tell, *, own_node: int, dial: Dial = open_channel) -> None:
        self._tell = tell
        self._own_node = own_node
        self._dial = dial
        self._watched: dict[tuple[int, int], str] = {}
        """Maps a broker and its epoch to the loop that watches it."""
        self._presumed_dead: set[tuple[int, int]] = set()
        self._loops = Supervisor()

    def follow(self, cluster: Cluster) -> None:
        """Start and stop sentinels, so that each registered broker has one, except the broker in
        this process, which fails only together with it.
        """
        registered = [*cluster.brokers.values(), *cluster.presumed_dead.values()]
        wanted = {(broker.node_id, broker.epoch): broker for broker in registered if broker.registration.grpc_address}
        for key in self._watched.keys() - wanted.keys():
            self._loops.leave(self._watched.pop(key))
        for key, broker in wanted.items():
            if key not in self._watched and broker.node_id != self._own_node:
                self._watched[key] = f"sentinel of broker {key[0]} of epoch {key[1]}"
                self._loops.start(self._watched[key], partial(self._watch, broker), kind="sentinel")
        self._presumed_dead = {(broker.node_id, broker.epoch) for broker in cluster.presumed_dead.values()}

    async def _watch(self, broker: Broker) -> None:
        address = broker.registration.grpc_address
        if (broker.node_id, broker.epoch) in self._presumed_dead:
            # the broker may have recovered before this tenure began: then no refusal would be seen
            await self._take_back(broker)
        while True:
            await until_refused(address)
            await self._tell(ask.BrokerUnreachable(node_id=broker.node_id, broker_epoch=broker.epoch))
            await self._take_back(broker)

    async def _take_back(self, broker: Broker) -> None:
        await until_identified(broker.registration.grpc_address, broker.epoch, dial=self._dial)
        await self._tell(ask.BrokerAnswered(node_id=broker.node_id, broker_epoch=broker.epoch))

    async def close(self) -> None:
        """Stop watching."""
        self._watched.clear()
        await self._loops.stop()
