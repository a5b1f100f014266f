"""Chooses the replica that a consumer should read from: the one in its own rack (KIP-392), else the
leader. Pure.

Pure. A leader calls this for every fetch of a consumer that names its rack; candidates are replicas
that are in sync, alive, reachable on the consumer's listener, and have the requested offset. The
rule has the name of Kafka's class in `replica.selector.class`.

Callers: broker/replication/read_routing.py, broker/settings/config.py for the names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
SELECTORS: Final = (LEADER_SELECTOR, RACK_AWARE_SELECTOR)


class ReadableReplica(NamedTuple):
    """A follower that has what the consumer wants."""

    node_id: int
    rack: str
    log_end_offset: int
    caught_up_at_ms: float


def replica_in_rack(rack: str, *, leader_rack: str, followers: Iterable[ReadableReplica]) -> int | None:
    """The follower to read from, None for the leader, if the leader is in the rack itself or no
    replica is.

    Of several, the one with the highest offset, then the one that was most recently at the log's
    end; the lowest id breaks ties.
    """
    if not rack or rack == leader_rack:
        return None
    near = [follower for follower in followers if follower.rack == rack]
    if not near:
        return None
    best = max(near, key=lambda follower: (follower.log_end_offset, follower.caught_up_at_ms, -follower.node_id))
    return best.node_id
