"""Orders for damage on a follower's disk: the follower's own site is asked first, and unsound or
missing batches are never offered.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dr.proof.core.equality import DamagedFollower
from dr.repair.core.followers import judge_follower
from dr.repair.core.orders import LogBatch, Refused, ReplaceBatch
from tests.support.disks.log_batches import batch

SOUND = LogBatch(base_offset=4, last_offset=5, leader_epoch=1, content=batch([b"v"] * 2, base_offset=4), is_sound=True)
DAMAGED = replace(SOUND, is_sound=False)
FOUND = DamagedFollower(
    topic="orders",
    partition=3,
    site="b",
    node_id=2002,
    base_offset=4,
    last_offset=5,
    reason="its checksum does not fit its bytes",
)


@pytest.mark.parametrize(
    ("own", "other", "from_site"),
    [(SOUND, SOUND, "b"), (DAMAGED, SOUND, "a"), (None, SOUND, "a")],
)
def test_the_first_sound_batch_is_written_on_the_disk_of_the_named_broker(
    own: LogBatch | None, other: LogBatch, from_site: str
) -> None:
    order = judge_follower(FOUND, [("b", own), ("a", other)])
    assert isinstance(order, ReplaceBatch)
    assert (order.site, order.from_site, order.node_id) == ("b", from_site, 2002)
    assert (order.topic, order.partition, order.first_offset, order.last_offset) == ("orders", 3, 4, 5)
    assert order.content == SOUND.content


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_follower_that_no_batch_is_proven_for_is_refused_with_advice(is_compacted: bool) -> None:
    refused = judge_follower(FOUND, [("b", DAMAGED), ("a", None)], is_compacted=is_compacted)
    assert isinstance(refused, Refused)
    assert (refused.first_offset, refused.last_offset) == (4, 5)
    assert "empty the directory of the replica on broker 2002" in refused.reason
    assert ("compacts the topic on its own" in refused.reason) == is_compacted
