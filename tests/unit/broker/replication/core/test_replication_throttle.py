"""The replicas that a replication throttle applies to, and when its rate is exceeded (KIP-73)."""

from __future__ import annotations

from broker.replication.core.replication_throttle import ReplicationThrottle, names_replica
from broker.settings.core.topic_configs import LogConfig


def test_a_list_names_replicas_by_partition_and_broker() -> None:
    named = LogConfig.from_topic_configs(
        {}, {"leader.replication.throttled.replicas": "0:1001,3:1002"}
    ).throttled_leaders
    assert names_replica(named, partition=0, node_id=1001)
    assert not names_replica(named, partition=0, node_id=1002)
    assert not names_replica(named, partition=1, node_id=1001)


def test_a_star_names_all_and_nothing_names_none() -> None:
    def followers(text: str) -> frozenset[str]:
        return LogConfig.from_topic_configs({}, {"follower.replication.throttled.replicas": text}).throttled_followers

    assert names_replica(followers("*"), partition=7, node_id=1)
    assert not names_replica(followers("none"), partition=7, node_id=1)
    assert not names_replica(followers(""), partition=7, node_id=1)


def test_a_throttle_is_exceeded_until_the_bytes_are_spread_over_enough_time() -> None:
    throttle = ReplicationThrottle(samples=11, window_ms=1000, bytes_per_second_max=100)
    assert not throttle.is_exceeded(0)
    throttle.record(0, 1500)
    assert throttle.is_exceeded(0)
    assert throttle.is_exceeded(9_000)
    assert not throttle.is_exceeded(11_000)


def test_without_a_bound_nothing_is_ever_exceeded() -> None:
    throttle = ReplicationThrottle(samples=11, window_ms=1000)
    throttle.record(0, 1 << 60)
    assert not throttle.is_exceeded(1)
    assert throttle.rate_per_second(1) > 0
