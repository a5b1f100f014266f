"""The invariants of `core/partition.py`, checked after every command by tests and the simulator.

P1  high watermark <= mirrorable end <= own log end offset.
P2  Under one leadership none of the three decreases, unless the log is truncated or restarted.
P3  Leader epoch and partition epoch never decrease.
P4  A leader knows the progress of exactly its other replicas. Another replica knows none, and has
    no proposal, no standby and no flush to wait for.
P5  Only a follower outside the in-sync replicas is joining.
P6  A proposal names replicas, with this one among them, and differs from the in-sync replicas in
    force.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.replication.core.partition_state import PartitionState, Reached


def violations(partition: PartitionState, before: Reached | None) -> Iterator[str]:
    """Each invariant that does not hold, with its letter; `before` is what the last check saw."""
    if not 0 <= partition.high_watermark <= partition.mirrorable_end <= partition.log_end_offset:
        yield (
            f"P1: high watermark {partition.high_watermark}, mirrorable end {partition.mirrorable_end}, "
            f"log end {partition.log_end_offset}"
        )
    if before is not None:
        now = Reached.of(partition)
        if now.leader_epoch < before.leader_epoch:
            yield f"P3: the leader epoch fell from {before.leader_epoch} to {now.leader_epoch}"
        if now.leader_epoch == before.leader_epoch and now.partition_epoch < before.partition_epoch:
            yield f"P3: the partition epoch fell from {before.partition_epoch} to {now.partition_epoch}"
        # another leader, epoch or truncation count: the ends may fall then
        is_unbroken = (now.leader_epoch, *now[2:4]) == (before.leader_epoch, *before[2:4])
        if is_unbroken and any(end < former for end, former in zip(now[4:], before[4:], strict=True)):
            yield f"P2: {before[4:]} fell to {now[4:]} under leader epoch {now.leader_epoch}"
    others = {replica for replica in partition.replicas if replica != partition.node_id}
    if partition.is_leader:
        if set(partition.followers) != others:
            yield f"P4: progress of {sorted(partition.followers)} is known, replicas are {partition.replicas}"
    elif partition.followers or partition.proposed_isr or partition.hold or partition.flushed_end is not None:
        yield "P4: a replica that does not lead remembers what a leader waits for"
    if not partition.joining <= set(partition.followers) - set(partition.isr):
        yield f"P5: {sorted(partition.joining)} are joining, in sync are {partition.isr}"
    proposed = partition.proposed_isr
    if proposed is not None and (
        not set(proposed) <= set(partition.replicas)
        or partition.node_id not in proposed
        or set(proposed) == set(partition.isr)
    ):
        yield f"P6: {proposed} are proposed of {partition.replicas}, in sync are {partition.isr}"
