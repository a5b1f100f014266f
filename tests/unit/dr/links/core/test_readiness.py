"""Whether a failover now would lose anything, by topic and group."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dr.links.core.readiness import GroupLack, Readiness, TopicLack, readiness
from dr.sites.core.evidence import Evidence, GroupPartition, SiteEvidence, SiteGroups
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import UnprotectedTopic
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import TopicPartition

NOW_MS = 10_000
RECORD = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    epoch=1,
    active_site="a",
    phase=LinkPhase.MIRRORING,
    topic_whitelist=[".*"],
    is_routed=True,
)


def site(name: str, ends: dict[int, int], offset: int, *, start: int = 0) -> SiteEvidence:
    positions = {
        TopicPartition("orders", index): PartitionPosition(
            leader_epoch=0, last_log_epoch=0, log_start_offset=start, log_end_offset=end, is_writable=name == "a"
        )
        for index, end in ends.items()
    }
    groups = SiteGroups(offsets={GroupPartition("readers", "orders", 0): offset}, synced_at_ms=NOW_MS - 700)
    return SiteEvidence(site=name, seen_at_ms=NOW_MS, record=RECORD, partitions=positions, groups=groups)


def checked(source: SiteEvidence | None, target: SiteEvidence | None) -> Readiness:
    problem = "" if source is not None else "site a does not answer"
    evidence = Evidence(link="a-b", target_site="b", target=target, source=source, source_problem=problem)
    return readiness(evidence, now_ms=NOW_MS)


def is_ready(found: Readiness, *, lag_max: int = 0, age_max: int = 0) -> bool:
    return found.is_ready(lag_records_max=lag_max, groups_age_ms_max=age_max)


def test_a_standby_that_has_everything_is_ready() -> None:
    found = checked(site("a", {0: 10, 1: 5}, 7), site("b", {0: 10, 1: 5}, 7))
    assert (found.topics, found.groups, found.groups_age_ms, found.standby) == ((), (), 700, "b")
    assert is_ready(found)


def test_missing_records_and_offsets_are_counted_by_topic_and_group_and_may_be_allowed() -> None:
    found = checked(site("a", {0: 10, 1: 5, 2: 4}, 9, start=1), site("b", {0: 8, 1: 5}, 5))
    assert found.topics == (TopicLack(topic="orders", partitions=(0, 2), missing_records=2 + 3),)
    assert found.groups == (GroupLack(group="readers", missing_offsets=1),)
    assert not is_ready(found, lag_max=5)
    assert not is_ready(found, lag_max=4, age_max=1000)
    assert is_ready(found, lag_max=5, age_max=1000)


@pytest.mark.parametrize("is_source_silent", [True, False])
def test_an_unknown_site_or_topic_is_not_ready_whatever_is_allowed(*, is_source_silent: bool) -> None:
    target = site("b", {0: 10}, 7)
    if is_source_silent:
        found = checked(None, target)
        assert found.problems == ("site a does not answer",)
    else:
        absent = UnprotectedTopic(topic="new", partitions=(0,), reason="topic new is not at b yet")
        found = checked(site("a", {0: 10}, 7), replace(target, unprotected=(absent,)))
        assert found.problems == ("topic new is not at b yet",)
    assert not is_ready(found, lag_max=1000, age_max=1_000_000)


def test_a_source_that_another_link_made_passive_is_a_problem() -> None:
    deposed = replace(site("a", {0: 10}, 7), deposed=("site a is passive for orders",))
    found = checked(deposed, site("b", {0: 10}, 7))
    assert found.problems == ("site a is passive for orders",)
    assert not is_ready(found)
