"""Orders for damage at a leader: a follower of the same site is asked first, and its bytes count
only if the checksum of the damaged batch proves them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dr.repair.core.leaders import damaged_batches, judge_leader
from dr.repair.core.orders import LEADER, LogBatch, LogPart
from tests.support.disks.log_batches import batch

KEY = ("orders", 3)


def stored(offset: int, value: bytes = b"v") -> LogBatch:
    content = batch([value], base_offset=offset)
    return LogBatch(base_offset=offset, last_offset=offset, leader_epoch=0, content=content, is_sound=True)


def with_flipped_bit(sound: LogBatch) -> LogBatch:
    return replace(sound, content=sound.content[:-1] + bytes([sound.content[-1] ^ 1]), is_sound=False)


LOG = [stored(offset) for offset in range(3)]
ROTTEN = with_flipped_bit(LOG[1])
PART = LogPart(start_offset=0, end_offset=3, batches=(LOG[0], ROTTEN, LOG[2]))


def test_the_first_follower_whose_batch_is_proven_heals_the_leader() -> None:
    assert damaged_batches(PART) == [ROTTEN]
    offered = [(1, with_flipped_bit(LOG[1])), (2, stored(1, b"another")), (3, LOG[1])]
    healed, (order,) = judge_leader(KEY, "a", PART, {1: offered})
    assert healed.batches == tuple(LOG)
    assert (order.topic, order.partition, order.first_offset, order.last_offset) == ("orders", 3, 1, 1)
    assert (order.site, order.from_site, order.node_id, order.content) == ("a", "a", LEADER, LOG[1].content)
    assert "broker 3, a follower" in order.reason


@pytest.mark.parametrize("offered", [[], [(2, stored(1, b"another"))], [(2, with_flipped_bit(LOG[1]))]])
def test_without_proof_the_batch_stays_damaged(offered: list[tuple[int, LogBatch]]) -> None:
    assert judge_leader(KEY, "a", PART, {1: offered} if offered else {}) == (PART, [])
