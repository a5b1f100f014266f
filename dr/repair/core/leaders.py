"""Plans the repair of a damaged batch at a leader with the bytes of a follower of the same site.
Pure.

The own site is asked before the other one: a follower may have a batch that is not mirrored yet,
and a mirror does not copy a damaged batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dr.repair.core.orders import LogBatch, LogPart, ReplaceBatch
from wire.batches.damage import is_same_batch
from wire.protocol.ids import PartitionKey


def damaged_batches(part: LogPart) -> list[LogBatch]:
    """Return the batches of the leader whose bytes do not fit their checksum."""
    return [batch for batch in part.batches if not batch.is_sound]


def judge_leader(
    key: PartitionKey, site: str, part: LogPart, offered: Mapping[int, Sequence[tuple[int, LogBatch]]]
) -> tuple[LogPart, list[ReplaceBatch]]:
    """Return the part as it is after the returned orders. `offered` has, for each damaged batch by
    its base offset, what the followers hold there, by node id. A batch that no follower is proven
    to have stays damaged.
    """
    batches, orders = list[LogBatch](), list[ReplaceBatch]()
    for batch in part.batches:
        found = None if batch.is_sound else _proven(batch, offered.get(batch.base_offset, ()))
        if found is None:
            batches.append(batch)
            continue
        node_id, sound = found
        batches.append(sound)
        orders.append(
            ReplaceBatch(
                topic=key[0],
                partition=key[1],
                first_offset=sound.base_offset,
                last_offset=sound.last_offset,
                site=site,
                from_site=site,
                reason=f"the batch at the leader of site {site} is damaged, and the one of broker {node_id}, a "
                "follower, fits its checksum",
                content=sound.content,
            )
        )
    return replace(part, batches=tuple(batches)), orders


def _proven(damaged: LogBatch, offered: Sequence[tuple[int, LogBatch]]) -> tuple[int, LogBatch] | None:
    return next(
        ((node, one) for node, one in offered if one.is_sound and is_same_batch(damaged.content, one.content)), None
    )
