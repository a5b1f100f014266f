"""The ends of leader epochs, from leaders that change meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from spark_jobs.logs.epoch_ends import epoch_ends
from wire.client.requests.broker_requests import EpochEndOffset, EpochQuery
from wire.protocol.ids import PartitionKey


class Leaders:
    """Two leaders; the client's metadata name a former one until it forgets them."""

    def __init__(self) -> None:
        self.leaders = {("t", 0): 1, ("t", 1): 1}
        self.asked: list[tuple[int, Mapping[PartitionKey, EpochQuery], int]] = []

    async def leader(self, topic: str, partition: int) -> int:
        return self.leaders[topic, partition]

    def forget_leaders(self, topics: Sequence[str]) -> None:
        assert topics == ["t"]
        self.leaders["t", 1] = 2

    async def epoch_ends(self, node: int, queries: Mapping[PartitionKey, EpochQuery], *, replica_id: int) -> Any:
        self.asked.append((node, queries, replica_id))
        is_known = {key: key[1] == node - 1 for key in queries}
        return {
            key: EpochEndOffset(ErrorCode.none, query.leader_epoch, 9)
            if is_known[key]
            else EpochEndOffset(ErrorCode.not_leader_or_follower, -1, -1)
            for key, query in queries.items()
        }


async def test_all_leaders_are_asked_and_again_after_one_has_changed() -> None:
    leaders = Leaders()
    found = await epoch_ends(leaders, {("t", 0): 3, ("t", 1): 4}, replica_id=-2)  # type: ignore[arg-type]
    assert {key: one[1:] for key, one in found.items()} == {("t", 0): (3, 9), ("t", 1): (4, 9)}
    assert [(node, list(queries), replica) for node, queries, replica in leaders.asked] == [
        (1, [("t", 0), ("t", 1)], -2),
        (1, [("t", 0)], -2),
        (2, [("t", 1)], -2),
    ]
