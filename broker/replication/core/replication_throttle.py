"""A bound on the bytes of replication that an operator throttles, so that moving partitions leaves
room for everything else (KIP-73).

Pure: time enters as `now_ms` (monotonic). A leader and a follower each have a throttle; topic
configs name the replicas that it holds for (`partition:broker`, or `*` for all). All bytes for
these are counted; only replicas that are not in sync are throttled, so that a throttle never
removes one from the in-sync replicas.

Callers: broker/handlers/records/fetch.py (leader), broker/replication/following/replica_fetcher.py
(follower), broker/telemetry/gauges.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.quotas.core.rates import WindowedRate
from wire.rules.topic_config_kinds import ALL_REPLICAS

UNLIMITED: Final = 2**63 - 1


def names_replica(named: Collection[str], *, partition: int, node_id: int) -> bool:
    """True when a topic's list of throttled replicas has this one."""
    return bool(named) and (ALL_REPLICAS in named or f"{partition}:{node_id}" in named)


class ReplicationThrottle:
    """The rate at which a leader sends or a follower receives, in bytes per second."""

    def __init__(self, *, samples: int, window_ms: float, bytes_per_second_max: int = UNLIMITED) -> None:
        self._rate = WindowedRate(samples, window_ms)
        self.bytes_per_second_max = bytes_per_second_max

    def record(self, now_ms: float, size_bytes: int) -> None:
        """Record bytes of throttled replicas."""
        self._rate.record(now_ms, size_bytes)

    def is_exceeded(self, now_ms: float) -> bool:
        """True if replicas that are not in sync must get no bytes at present."""
        return self.bytes_per_second_max < UNLIMITED and self.rate_per_second(now_ms) > self.bytes_per_second_max

    def rate_per_second(self, now_ms: float) -> float:
        """Bytes per second of throttled replicas."""
        return self._rate.rate_per_second(now_ms)
