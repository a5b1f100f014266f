"""The parts of a broker that act on what happens to its partitions.

Caller: broker/replication/hosted_partitions.py, which is compiled and can hold no struct of its
own.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from broker.replication.hosted_partition import HostedPartition


def _ignore(*_: object) -> None:
    """No part listens."""


class ReplicaListeners(Struct, frozen=True, kw_only=True):
    """Parts of the broker that act on what happens to partitions here."""

    follower_outside: Callable[[HostedPartition, int], None] = _ignore
    """Called after a fetch of a follower that is not in sync (`isr_proposals.py`)."""
    isr_proposed: Callable[[HostedPartition], None] = _ignore
    """Called when a leader here wants other in-sync replicas (`isr_proposals.py`)."""
    first_reader: Callable[[HostedPartition], None] = _ignore
    """Called when a client begins to read from a follower here (`replica_fetchers.py`)."""
    offline_changed: Callable[[], None] = _ignore
    """Called when a log directory fails, or when an offline replica is unassigned
    (`offline_reports.py`).
    """
