"""The replica that a consumer reads from (KIP-392)."""

from __future__ import annotations

from broker.metadata.core.read_replicas import ReadableReplica, replica_in_rack


def follower(node_id: int, rack: str, log_end_offset: int = 10, caught_up_at_ms: float = 0) -> ReadableReplica:
    return ReadableReplica(node_id, rack, log_end_offset, caught_up_at_ms)


def test_the_follower_in_the_consumers_rack_is_read_from() -> None:
    followers = [follower(2, "b"), follower(3, "c")]
    assert replica_in_rack("c", leader_rack="a", followers=followers) == 3


def test_the_leader_serves_its_own_rack_racks_without_a_replica_and_those_that_say_none() -> None:
    followers = [follower(2, "a"), follower(3, "")]
    for rack in ("a", "z", ""):
        assert replica_in_rack(rack, leader_rack="a", followers=followers) is None


def test_of_several_in_the_rack_the_furthest_is_taken_then_the_one_last_seen_at_the_end() -> None:
    ahead, behind = follower(2, "b", 11), follower(3, "b", 10, caught_up_at_ms=9)
    assert replica_in_rack("b", leader_rack="a", followers=[behind, ahead]) == 2
    later, earlier = follower(4, "b", 10, caught_up_at_ms=9), follower(2, "b", 10, caught_up_at_ms=3)
    assert replica_in_rack("b", leader_rack="a", followers=[earlier, later]) == 4
    assert replica_in_rack("b", leader_rack="a", followers=[follower(5, "b"), follower(4, "b")]) == 4
