"""A digest of who leads the partitions of a link, by which two processes find out whether they know
the same leaders. Pure.

Callers: `broker/site/link_confirmations.py` and `dr/agent/leases/marks.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

DIGEST_BYTES: Final = 7
"""A digest fits a positive int64."""


class Leadership(NamedTuple):
    """The leader of a partition, and the leader epoch in which it leads."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int


def digest_of(leaderships: Iterable[Leadership], *, floor: int) -> int:
    """A positive number that depends on all of them, in any order. Epochs below the link's `floor`
    count as the floor, because ZooKeeper stores a raise of many partitions with the link alone.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for topic, partition, leader, leader_epoch in sorted(leaderships):
        digest.update(f"{topic}/{partition}/{leader}/{max(leader_epoch, floor)}\n".encode())
    return int.from_bytes(digest.digest(), "big") or 1
