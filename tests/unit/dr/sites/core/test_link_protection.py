"""Whether a standby protects its active site: since when, and if not, why."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.link_protection import LinkProtection, ProtectionWatch
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import UnprotectedTopic
from wire.batches.log_histories import EpochStart
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition

NEW_TOPIC = UnprotectedTopic(topic="new", partitions=(0,), reason="topic new is not at b yet")


def site(name: str, end: int, *, epoch: int = 1, epochs: tuple[EpochStart, ...] = (), **fields: Any) -> SiteEvidence:
    record = LinkRecord(name="a-b", source_site="a", target_site="b", epoch=epoch, active_site="a")
    position = PartitionPosition(
        leader_epoch=0,
        last_log_epoch=0,
        log_start_offset=0,
        log_end_offset=end,
        is_writable=name == "a",
        epochs=epochs,
    )
    partitions = {TopicPartition("orders", 0): position}
    defaults = {"mirror_age_ms": 400} if name == "b" else {}
    return SiteEvidence(site=name, seen_at_ms=0, record=record, partitions=partitions, **{**defaults, **fields})


def seen(source: SiteEvidence | None, target: SiteEvidence | None) -> Evidence:
    return Evidence(
        link="a-b",
        target_site="b",
        target=target,
        source=source,
        target_problem="" if target else "no answer within 2 s",
        source_problem="" if source else "a does not answer",
    )


def test_a_standby_that_has_everything_protects_since_it_was_seen_so() -> None:
    watch = ProtectionWatch()
    assert watch.observe(seen(site("a", 10), site("b", 10)), now_ms=1_000) == LinkProtection(epoch=1, since_ms=1_000)
    assert watch.observe(seen(site("a", 90), site("b", 20)), now_ms=2_000).since_ms == 1_000, "it may lag"


def test_a_first_copy_protects_once_it_has_what_was_there_when_it_was_seen_first() -> None:
    watch = ProtectionWatch()
    first = watch.observe(seen(site("a", 100), site("b", 30)), now_ms=1_000)
    assert first.reason == "b has not caught up once: 70 records are missing there"
    assert watch.observe(seen(site("a", 150), site("b", 99)), now_ms=2_000).reason
    assert watch.observe(seen(site("a", 200), site("b", 100)), now_ms=3_000) == LinkProtection(epoch=1, since_ms=3_000)


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (site("a", 10), None, "no answer within 2 s"),
        (site("a", 10), site("b", 10, epoch=2), "b has epoch 2 of the link, a epoch 1"),
        (site("a", 10), site("b", 10, mirror_age_ms=-1), "b has no mirror that carries all (no report yet); start one"),
        (site("a", 10), site("b", 10, mirror_age_ms=30_000), "b has no mirror that carries all (no report for 30 s)"),
        (site("a", 10), site("b", 10, mirror_problems=("offsets of g fail",)), "offsets of g fail"),
        (site("a", 10), site("b", 10, unprotected=(NEW_TOPIC,)), "topic new is not at b yet"),
        (site("a", 10, deposed=("site a is passive for orders",)), site("b", 10), "site a is passive for orders"),
        (
            site("a", 10, leaderless=frozenset({TopicPartition("orders", 1)})),
            site("b", 10),
            "orders-1 has no leader at a",
        ),
        (
            site("a", 7, epochs=(EpochStart(0, 0), EpochStart(9, 4))),
            site("b", 10, epochs=(EpochStart(0, 0),)),
            "orders-0 differs from offset 4 on",
        ),
    ],
)
def test_each_obstacle_is_named_and_the_standby_must_catch_up_afterwards(
    source: SiteEvidence, target: SiteEvidence | None, reason: str
) -> None:
    watch = ProtectionWatch()
    watch.observe(seen(site("a", 10), site("b", 10)), now_ms=1_000)
    found = watch.observe(seen(source, target), now_ms=2_000)
    assert found.reason.startswith(reason)
    assert found.since_ms == 2_000
    assert watch.observe(seen(source, target), now_ms=3_000).since_ms == 2_000
    assert "has not caught up once" in watch.observe(seen(site("a", 20), site("b", 10)), now_ms=4_000).reason
    assert watch.observe(seen(site("a", 30), site("b", 20)), now_ms=5_000) == LinkProtection(epoch=1, since_ms=5_000)


def test_many_reasons_are_counted() -> None:
    topics = tuple(replace(NEW_TOPIC, reason=f"topic {number}") for number in range(5))
    found = ProtectionWatch().observe(seen(site("a", 1), site("b", 1, unprotected=topics)), now_ms=1)
    assert found.reason == "topic 0; topic 1; topic 2; and 2 more"


def test_the_verdict_goes_on_from_the_stored_one_in_the_same_epoch_only() -> None:
    stored = LinkProtection(epoch=1, since_ms=500)
    both = seen(site("a", 30), site("b", 20))
    assert ProtectionWatch(stored).observe(both, now_ms=9_000) == stored
    assert ProtectionWatch(replace(stored, epoch=0)).observe(both, now_ms=9_000).reason
    equal = seen(site("a", 20), site("b", 20))
    assert ProtectionWatch(replace(stored, epoch=0)).observe(equal, now_ms=9_000).since_ms == 9_000


def test_without_an_answer_of_the_active_site_nothing_is_judged() -> None:
    with pytest.raises(ValueError, match="a does not answer"):
        ProtectionWatch().observe(seen(None, site("b", 1)), now_ms=1)
