"""Everything that one seed determines: clock, chance, network, ZooKeeper, disks, and the history of
the run.

`World.doors` replaces the parts that would reach the real world (clock, chance, connections, gRPC
channels) for as long as a run lasts; everything behind these doors is the product's own code. The
history consists of its state-change log and the faults, bounded.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import structlog

import controller.watching.liveness
import dr.sites.channels
import mirror.link.link_watch
import mirror.main
import wire.control.clients
from runtime.invariants import InvariantBroken
from tests.sim.disk import Disk
from tests.sim.network import Network
from tests.sim.rpc import RpcChannel
from tests.sim.sockets import send_file
from tests.sim.virtual_loop import CURRENT, VirtualLoop
from tests.sim.zookeeper_ensemble import SERVERS, Ensemble

HISTORY_LINES_MAX = 4_000
EPOCH_MS = 1_700_000_000_000
"""Unix time at which every run begins."""
_TOLD = frozenset({"info", "warning", "warn", "error", "exception", "critical"})


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, story: str) -> None:
        super().__init__(f"{invariant}: {story}")
        self.invariant = invariant
        self.story = story

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.invariant, self.story)


class World:
    """See the module."""

    def __init__(self, seed: int, *, is_told: bool = False, ensembles: Sequence[tuple[str, ...]] = (SERVERS,)) -> None:
        """`ensembles`: the names of the servers of each ZooKeeper ensemble."""
        self.seed = seed
        self.chance = Random(seed)
        self.loop = VirtualLoop()  # type: ignore[abstract]  # only what the product asks of a loop
        self.network = Network(self.loop, Random(seed + 1))
        self.loop.connector = self.network.create_connection
        self.ensembles = [
            Ensemble(self.loop, self.network, Random(seed + 2 + 1000 * number), self.tell, servers)
            for number, servers in enumerate(ensembles)
        ]
        self.disks: dict[int, Disk] = {}
        self.history: deque[str] = deque(maxlen=HISTORY_LINES_MAX)
        self.violations: list[Violation] = []
        self.digest = 0
        self._is_reported = is_told

    @property
    def ensemble(self) -> Ensemble:
        """The first ensemble, the only one of a world with one site."""
        return self.ensembles[0]

    def ensemble_at(self, connect: str) -> Ensemble:
        """The ensemble with the server that a connect string names; the first one for none."""
        host = connect.partition(":")[0]
        return next(
            (one for one in self.ensembles if any(server.name == host for server in one.servers)), self.ensemble
        )

    # --- what happened

    def tell(self, sentence: str) -> None:
        """Add a line to the history."""
        process = CURRENT.get()
        line = f"{self.loop.now_s:9.4f} {process.name if process else '*':>4} {sentence}"
        self.history.append(line)
        self.digest = hash_of(line, self.digest)
        if self._is_reported:
            print(line)

    def violate(self, invariant: str, story: str) -> None:
        """An invariant is broken; the run ends at the next step."""
        self.tell(f"BROKEN {invariant}: {story}")
        self.violations.append(Violation(invariant, story))

    def take_log_line(self, _logger: Any, level: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Collects the log events of the product (a structlog processor)."""
        process = CURRENT.get()
        if not self.loop.is_ending and process is not None and process.is_alive and level in _TOLD:
            event = fields.pop("event", "")
            raised = fields.pop("exc_info", None)
            is_defect = raised or level in ("exception", "critical")
            shown = " ".join(f"{name}={value}" for name, value in fields.items())
            self.tell(f"{event}: {shown}" if shown else str(event))
            if is_defect:
                import traceback

                error = raised if isinstance(raised, BaseException) else sys.exc_info()[1]
                invariant = "machines-are-sound" if _is_of_a_machine(error) else "no-defect"
                self.violate(invariant, f"{process}: {event} {shown} {traceback.format_exc(limit=-3)}")
        raise structlog.DropEvent

    # --- time

    async def pause(self, seconds: float) -> None:
        """Let virtual time pass."""
        future = self.loop.create_future()
        timer = self.loop.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def doors(self) -> Iterator[None]:
        """Nothing real behind the product's doors while this lasts."""
        loop, state = self.loop, random.getstate()
        ids = Random(self.seed + 3)
        random.seed(self.seed)
        former = structlog.get_config()
        structlog.configure(
            processors=[self.take_log_line],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=False,
            logger_factory=structlog.ReturnLoggerFactory(),
        )
        replaced: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
            (time, "monotonic", lambda: loop.now_s),
            (time, "monotonic_ns", lambda: int(loop.now_s * 1e9)),
            (time, "time", lambda: EPOCH_MS / 1000 + loop.now_s),
            (time, "time_ns", lambda: EPOCH_MS * 1_000_000 + int(loop.now_s * 1e9)),
            (os, "sendfile", partial(send_file, loop)),
            (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
            (secrets, "randbelow", ids.randrange),
            (wire.control.clients, "open_channel", lambda address, **_: RpcChannel(self.network, address)),
            (controller.watching.liveness, "open_channel", lambda address: RpcChannel(self.network, address)),
            (dr.sites.channels, "open_channel", lambda address: RpcChannel(self.network, address)),
            (mirror.link.link_watch, "open_channel", lambda address: RpcChannel(self.network, str(address))),
            (mirror.main, "look_for_garbage_rarely", lambda: None),
            (mirror.main, "leave_startup_objects_alone", lambda: None),
        )
        with contextlib.ExitStack() as stack:
            stack.callback(random.setstate, state)
            stack.callback(structlog.configure, **former)
            for owner, name, substitute in replaced:
                stack.enter_context(patch.object(owner, name, substitute))
            yield


def _is_of_a_machine(error: BaseException | None) -> bool:
    """True if a machine of the product has found one of its own invariants broken."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(InvariantBroken) is not None
    return isinstance(error, InvariantBroken)


def hash_of(text: str, former: int) -> int:
    """A hash that does not depend on the process, unlike `hash`."""
    import zlib

    return zlib.crc32(text.encode(), former)


class VirtualClock:
    """The clock door over virtual time. `speed` is how fast it runs, `offset_ms` how far its time
    of day is from the others'.
    """

    def __init__(self, loop: VirtualLoop, *, speed: float = 1.0, offset_ms: int = 0) -> None:
        self._loop = loop
        self._speed = speed
        self._offset_ms = offset_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self._offset_ms + int(self._loop.now_s * 1000 * self._speed)

    def monotonic_ms(self) -> float:
        return self._loop.now_s * 1000 * self._speed
