"""Everything that one seed determines: clock, chance, network, ZooKeeper, disks, and the history of
the run.

`process_doors` (`doors.py`) are the doors of each process. What belongs to no process,
`World.doors` sets for as long as a run lasts: the product's log and the chance of shared code. The
history consists of the product's log and the faults, bounded.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from random import Random
from typing import Any

import structlog

from runtime.chance import end_chance, use_chance
from runtime.invariants import InvariantBroken
from tests.sim.disk import Disk
from tests.sim.network import Network
from tests.sim.rpc import RpcChannel
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
    """The world of one seed."""

    def __init__(self, seed: int, *, is_told: bool = False, ensembles: Sequence[tuple[str, ...]] = (SERVERS,)) -> None:
        """`ensembles`: the names of the servers of each ZooKeeper ensemble."""
        self.seed = seed
        self.chance = Random(seed)
        self.loop = VirtualLoop(seed)  # type: ignore[abstract]  # only what the product asks of a loop
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

    def dial(self, address: str, *, connect_within_ms: int = 0) -> Any:
        """The door to gRPC."""
        del connect_within_ms
        return RpcChannel(self.network, address)

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
        chance = use_chance(self.loop.chance)
        former = structlog.get_config()
        structlog.configure(
            processors=[self.take_log_line],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=False,
            logger_factory=structlog.ReturnLoggerFactory(),
        )
        try:
            yield
        finally:
            structlog.configure(**former)
            end_chance(chance)


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
