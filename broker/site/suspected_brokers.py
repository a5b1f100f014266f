"""Suspected brokers: brokers of the site whose connection broke a moment ago. An image listener.

For a moment Metadata waits for the controller instead of naming such a broker as a leader. A client
whose leader dies asks another broker at once; without the wait it would receive the dead leader
again, and many clients then wait for their next regular refresh. The wait is bounded, happens once
for each suspicion, and ends with an image that settles it or with a new connection. A client that
has just connected does not wait, because it has no leader to lose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from runtime.clock import Clock
from runtime.listening import until_refused
from runtime.supervision import Supervisor

if TYPE_CHECKING:
    from broker.network.exchange import RequestOrigin

SUSPICION_MS_MAX: Final = 400.0
"""Time (ms) for which a suspicion may delay answers; an election after a refused connection takes
tens of milliseconds, a new controller some more.
"""
EVIDENCE_MS: Final = 10.0
"""Time (ms) that evidence may take from a dying process to this one: it closes its connections one
after the other, and a client's may be first.
"""
NEWCOMER_MS_MAX: Final = 300.0  # a client that has just connected has no leader to lose
PAUSE_S: Final = 1.0


class SuspectedBrokers:
    """Watches the other brokers by an idle connection to each one's gRPC port."""

    def __init__(self, cluster: Cluster, clock: Clock, *, node_id: int) -> None:
        self._cluster = cluster
        self._clock = clock
        self._node_id = node_id
        self._watches: dict[tuple[int, int], str] = {}
        """Broker and its epoch to the loop that watches it."""
        self._loops = Supervisor()
        self._doubted_at_ms: dict[tuple[int, int], float] = {}

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Watch exactly the brokers that are alive (an `ImageListener`)."""
        # an image of other things than brokers changes no watch
        if before.brokers is after.brokers and self._watches:
            return
        wanted = {
            (broker.node_id, broker.broker_epoch): broker.grpc_address
            for broker in after.brokers.values()
            if broker.grpc_address and broker.node_id != self._node_id
        }
        for key in self._watches.keys() - wanted.keys():
            self._loops.leave(self._watches.pop(key))
            self._doubted_at_ms.pop(key, None)
        for key, address in wanted.items():
            if key not in self._watches:
                self._watches[key] = f"suspected_brokers about broker {key[0]} of epoch {key[1]}"
                self._loops.start(self._watches[key], partial(self._watch, key, address), kind="suspected_brokers")

    async def _watch(self, key: tuple[int, int], address: str) -> None:
        while True:
            await until_refused(address, on_suspicion=self._listener(key))
            await asyncio.sleep(PAUSE_S)

    def _listener(self, key: tuple[int, int]) -> Callable[[bool], None]:
        def on_suspicion(is_doubted: bool) -> None:
            if key not in self._watches:
                return
            if is_doubted:
                self._doubted_at_ms[key] = self._clock.monotonic_ms()
            else:
                self._doubted_at_ms.pop(key, None)
                # callers that wait for the suspicion check again at once
                self._cluster.look_again()

        return on_suspicion

    def note_lost(self, node_id: int) -> None:
        """A connection of another kind to the broker has broken: a dying process may close that one
        first.
        """
        for key in self._watches:
            if key[0] == node_id:
                # the first evidence counts: a later one must not prolong the wait
                self._doubted_at_ms.setdefault(key, self._clock.monotonic_ms())

    def _left_ms(self) -> float:
        """Return the time (ms) for which answers may still wait for the suspected brokers."""
        now_ms = self._clock.monotonic_ms()
        for key in [key for key, at_ms in self._doubted_at_ms.items() if now_ms - at_ms >= SUSPICION_MS_MAX]:
            del self._doubted_at_ms[key]
        return max((at_ms + SUSPICION_MS_MAX - now_ms for at_ms in self._doubted_at_ms.values()), default=0.0)

    def may_concern(self, connection: RequestOrigin) -> bool:
        """True if the client may ask because it has lost a leader: there are other brokers, and the
        client has not just connected.
        """
        return bool(self._watches) and self._clock.monotonic_ms() - connection.opened_at_ms > NEWCOMER_MS_MAX

    async def settled(self) -> None:
        """Return when no doubt is left, or when it has lasted long enough; evidence is given a
        moment to arrive.
        """
        # slept before the look: a client's connection may be the first that a dying broker closes
        await asyncio.sleep(EVIDENCE_MS / 1000)
        left_ms = self._left_ms()
        if left_ms > 0:
            await self._cluster.wait_for(lambda image: not self._concerns(image), timeout_ms=left_ms)

    def _concerns(self, image: ClusterImage) -> bool:
        alive = {(broker.node_id, broker.broker_epoch) for broker in image.brokers.values()}
        return any(key in alive for key in self._doubted_at_ms)

    async def stop(self) -> None:
        """Stop watching."""
        self._watches.clear()
        await self._loops.stop()
