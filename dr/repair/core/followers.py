"""Plans the repair of a damaged batch on a follower's disk. Pure.

The follower's own bytes are not read: its broker replaces them only if their checksum, or their
content, proves that the offered batch was theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from dr.proof.core.equality import DamagedFollower
from dr.repair.core.orders import LogBatch, Refused, ReplaceBatch


def judge_follower(
    damage: DamagedFollower, offered: Sequence[tuple[str, LogBatch | None]], *, is_compacted: bool = False
) -> ReplaceBatch | Refused:
    """The order for one damaged batch. `offered` has, for each site in the order of preference, the
    batch that its leader's log has at the damaged offset; None if no batch begins there.
    """
    again = f"empty the directory of the replica on broker {damage.node_id}: it then copies the log again"
    if is_compacted:
        return _refused(damage, f"each replica compacts the topic on its own, so batches cannot be compared: {again}")
    for site, batch in offered:
        if batch is not None and batch.is_sound:
            return ReplaceBatch(
                topic=damage.topic,
                partition=damage.partition,
                first_offset=batch.base_offset,
                last_offset=batch.last_offset,
                site=damage.site,
                from_site=site,
                node_id=damage.node_id,
                reason=f"the batch on the disk of broker {damage.node_id}, a follower, is damaged: {damage.reason}",
                content=batch.content,
            )
    return _refused(damage, f"no leader has a whole batch that begins there: {again}")


def _refused(damage: DamagedFollower, reason: str) -> Refused:
    return Refused(
        topic=damage.topic,
        partition=damage.partition,
        first_offset=damage.base_offset,
        last_offset=damage.last_offset,
        reason=reason,
    )
