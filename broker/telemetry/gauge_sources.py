"""The parts of a broker that are asked for figures at each scrape."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from runtime.clock import Clock
from runtime.zookeeper.sessions import SessionState

if TYPE_CHECKING:
    from broker.groups.coordinator import GroupCoordinator
    from broker.log.directories.log_store import LogStore
    from broker.log.scrubbing import Scrubber
    from broker.network.connection_server import ConnectionServer
    from broker.replication.core.fetch_sessions import FetchSessions
    from broker.replication.following.replica_fetchers import ReplicaFetchers
    from broker.replication.isr_proposals import IsrProposals
    from broker.replication.replicas import Replicas
    from broker.transactions.transaction_coordinator import TransactionCoordinator


SECOND_MS: Final = 1000


class BrokerState(IntEnum):
    """The phase in the life of a broker, by Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERING = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class LoopShare:
    """The share of the time since the last scrape in which the event loop's thread had nothing to
    do.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._at_s = time.monotonic()
        self._used_s = self._cpu_s()

    def _cpu_s(self) -> float:
        if sys.platform != "linux":
            return time.process_time()
        # The clock of the loop's thread: the thread of the metrics server asks.
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread))

    def idle(self) -> float:
        """0 to 1."""
        now_s, used_s = time.monotonic(), self._cpu_s()
        elapsed_s, busy_s = now_s - self._at_s, used_s - self._used_s
        self._at_s, self._used_s = now_s, used_s
        # The two clocks are read one after the other, so the share may leave its range a little.
        return min(max(1 - busy_s / elapsed_s, 0.0), 1.0) if elapsed_s > 0 else 1.0


class GaugeSources(Struct, frozen=True, kw_only=True):
    """The parts that are asked."""

    replicas: Replicas
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    fetchers: ReplicaFetchers
    proposals: IsrProposals
    connections: ConnectionServer
    session_changes: Mapping[SessionState, int]
    logs: LogStore
    scrubber: Scrubber
    clock: Clock
    fetch_sessions: Callable[[], FetchSessions]
    state: Callable[[], BrokerState]
    loop: LoopShare = field(default_factory=LoopShare)
    network_loop: LoopShare = field(default_factory=LoopShare)
    """The same loop, asked under another name: each counts from its own last question."""

    def seconds_since_cleaning(self) -> float:
        """Return the time since the last pass over compacted logs; 0 before the first."""
        ended_at_ms = self.logs.cleaning.figures.ended_at_ms
        return (self.clock.now_ms() - ended_at_ms) / SECOND_MS if ended_at_ms else 0.0


Read = Callable[[GaugeSources], float]
