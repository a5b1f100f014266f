"""Verifies the registration after a long pause of the process, before the broker answers as
coordinator.

A paused process (SIGSTOP, a paused container, a host without CPU) continues with old state, and the
first requests reach it before the controller does. If another broker leads by then, the replicas
refuse the coordinator's writes. But an answer that needs no write, such as a refusal, comes from
old state, and some refusals are final for a client. So coordinators answer NOT_COORDINATOR until
ZooKeeper confirms that the registration still exists and belongs to the image. Clients then look
for the coordinator at other brokers, and return if there is no other. A late timer or the first
request detects the pause.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from kazoo.exceptions import KazooException

from broker.metadata.cluster import Cluster
from runtime.clock import Clock
from runtime.logs import state_change_logger
from runtime.retries import jittered_backoff
from runtime.supervision import Supervisor, until_done

state_change = state_change_logger()

BEATS: Final = 8
"""Number of clock checks within the allowed pause."""
ASK_TIMEOUT_MS: Final = 3_000
RETRY_INITIAL_MS: Final = 20
RETRY_MAX_MS: Final = 500


class Registered(Protocol):
    """The broker's registration (`broker/site/membership.py`)."""

    broker_epoch: int

    async def is_registered(self) -> bool:
        """True if ZooKeeper has the newest registration now. Raises KazooException."""
        ...


class _NotYet(Exception):
    """The registration, or the image made for it, does not exist yet."""


class RegistrationCheck:
    """Withholds the coordinators' answers after a long pause. Made inside the running loop."""

    def __init__(
        self, registered: Registered, cluster: Cluster, clock: Clock, *, node_id: int, session_timeout_ms: int
    ) -> None:
        self._registered = registered
        self._cluster = cluster
        self._clock = clock
        self._node_id = node_id
        # a session is renewed after each third of its time, so it ends after a stop of two thirds
        # at the earliest
        self._patience_ms = session_timeout_ms / 2
        self._ran_at_ms = float("inf")
        self._stop_count = 0
        self._loops = Supervisor()
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to notice pauses."""
        self._ran_at_ms = self._clock.monotonic_ms()
        self._loops.start("registration check", self._beat)

    async def stop(self) -> None:
        """Verify nothing more."""
        await self._loops.stop()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def holds(self) -> bool:
        """False while another broker may already lead."""
        now_ms = self._clock.monotonic_ms()
        away_ms, self._ran_at_ms = now_ms - self._ran_at_ms, now_ms
        if away_ms > self._patience_ms:
            self._stop_count += 1
            state_change.warning(
                "process was paused; verifying registration before serving as coordinator", away_ms=away_ms
            )
            if self._asking is None:
                # an unconfirmed registration stays in doubt
                asking = until_done("registration verification", self._ask)
                self._asking = asyncio.get_running_loop().create_task(asking, name="registration verification")
                self._asking.add_done_callback(self._settled)
        return self._asking is None

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._patience_ms / BEATS / 1000)
            self.holds()

    async def _ask(self) -> None:
        retrying = jittered_backoff(
            retry_on=(KazooException, TimeoutError, _NotYet), initial_ms=RETRY_INITIAL_MS, max_ms=RETRY_MAX_MS
        )
        async for attempt in retrying:
            with attempt:
                stop_count = self._stop_count
                async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
                    is_registered = await self._registered.is_registered()
                self.holds()
                # an answer from before a second pause proves nothing
                if not is_registered or self._stop_count != stop_count or not self._is_in_image():
                    raise _NotYet("the registration or its image is missing")

    def _is_in_image(self) -> bool:
        found = self._cluster.image.brokers.get(self._node_id)
        return found is not None and found.broker_epoch == self._registered.broker_epoch

    def _settled(self, asking: asyncio.Task[None]) -> None:
        if not asking.cancelled():
            self._asking = None
            state_change.info(
                "registration verified; serving as coordinator", broker_epoch=self._registered.broker_epoch
            )
