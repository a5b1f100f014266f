"""The state of two sites beside their records: each kind of difference is named, and values that a
mirror translates are not differences.
"""

from __future__ import annotations

from dr.proof.core.surroundings import (
    LogSpan,
    QuarantinedRange,
    SiteSurroundings,
    SurroundingKind,
    compare_surroundings,
)
from wire.rules.acls import AccessEntry, Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from wire.rules.topic_configs import COPY_BEGINS

SPANS = {("t", 0): LogSpan(start_offset=10, end_offset=50), ("t", 1): LogSpan(start_offset=0, end_offset=5)}


def acl(principal: str) -> Acl:
    pattern = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
    return Acl(pattern, AccessEntry(principal, "*", Operation.READ, Permission.ALLOW))


def named(source: SiteSurroundings, target: SiteSurroundings) -> list[tuple[str, str, str | None, str | None]]:
    return [(one.kind.value, one.name, one.source, one.target) for one in compare_surroundings(source, target, SPANS)]


def test_orphans_at_either_side_and_partition_counts_are_named() -> None:
    source = SiteSurroundings(partition_counts={"same": 1, "grown": 3, "only-here": 2})
    target = SiteSurroundings(partition_counts={"same": 1, "grown": 2, "only-there": 1})
    assert named(source, target) == [
        ("partition count", "grown", "3 partitions", "2 partitions"),
        ("orphan topic", "only-here", "2 partitions", None),
        ("orphan topic", "only-there", None, "1 partitions"),
    ]


def test_configs_are_compared_without_those_that_each_site_has_for_itself() -> None:
    source = SiteSurroundings(configs={"t": {"retention.ms": "5", COPY_BEGINS: "1"}, "orphan": {"retention.ms": "1"}})
    target = SiteSurroundings(
        configs={"t": {"cleanup.policy": "compact", "leader.replication.throttled.replicas": "*"}}
    )
    assert named(source, target) == [
        ("topic config", "t cleanup.policy", None, "compact"),
        ("topic config", "t retention.ms", "5", None),
    ]


def test_group_offsets_are_compared_as_a_mirror_writes_them() -> None:
    places = {("g", ("t", 0)): 40, ("clamped", ("t", 1)): 9, ("early", ("t", 0)): 3, ("moved", ("t", 0)): 40}
    source = SiteSurroundings(offsets={**places, ("active", ("t", 0)): 40, ("elsewhere", ("u", 0)): 1})
    target = SiteSurroundings(
        offsets={("clamped", ("t", 1)): 5, ("early", ("t", 0)): 10, ("moved", ("t", 0)): 20},
        groups_with_members=frozenset({"active"}),
    )
    assert named(source, target) == [("group offset", "g t-0", "40", None), ("group offset", "moved t-0", "40", "20")]


def test_acls_are_compared_where_both_sites_have_some() -> None:
    source = SiteSurroundings(acls=frozenset({acl("User:a"), acl("User:b")}))
    target = SiteSurroundings(acls=frozenset({acl("User:b"), acl("User:c")}))
    found = compare_surroundings(source, target, {})
    assert [(one.kind, "User:a" in one.name, one.source, one.target) for one in found] == [
        (SurroundingKind.ACL, True, "there", None),
        (SurroundingKind.ACL, False, None, "there"),
    ]
    assert compare_surroundings(source, SiteSurroundings(), {}) == []


def test_quotas_and_users_are_compared_where_both_sites_list_them() -> None:
    source = SiteSurroundings(
        quotas={"user a producer_byte_rate": "5", "same": "1"}, users={"a SCRAM-SHA-256": "4096 iterations"}
    )
    target = SiteSurroundings(quotas={"user a producer_byte_rate": "6", "same": "1", "client-id c x": "2"}, users={})
    assert named(source, target) == [
        ("client quota", "client-id c x", None, "2"),
        ("client quota", "user a producer_byte_rate", "5", "6"),
        ("SCRAM user", "a SCRAM-SHA-256", "4096 iterations", None),
    ]
    assert named(source, SiteSurroundings()) == []


def test_quarantined_records_of_one_site_and_those_of_a_topic_that_it_does_not_have_are_named() -> None:
    both, mine, orphan = (QuarantinedRange(topic, 0, 5, 9) for topic in ("both", "mine", "gone"))
    counts = {"both": 1, "mine": 1}
    source = SiteSurroundings(partition_counts=counts, quarantined={both: 100, mine: 70})
    target = SiteSurroundings(partition_counts=counts, quarantined={both: 100, orphan: 30})
    assert named(source, target) == [
        ("quarantined records", "gone-0 offsets 5 to 8", None, "30 bytes, orphan"),
        ("quarantined records", "mine-0 offsets 5 to 8", "70 bytes", None),
    ]
    assert named(source, SiteSurroundings(partition_counts=counts)) == []
