"""The time until which a link's target has everything: reported only on evidence, and never
reduced.
"""

from __future__ import annotations

import pytest

from dr.links.core.completeness import NEVER, Completeness, PartitionCompleteness, by_topic
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.positions import PartitionPosition
from wire.batches.log_histories import EpochStart
from wire.control.cluster_pb2 import LinkRecord
from wire.control.mirror_pb2 import DescribeMirrorReply, MirrorPartition
from wire.protocol.ids import UNKNOWN, TopicPartition

KEY = TopicPartition("orders", 0)


def at(
    end: int,
    *epochs: tuple[int, int],
    start: int = 0,
    safe: int = -1,
    newest_ms: int = -1,
    received: tuple[int, int] = (-1, -1),
) -> PartitionPosition:
    return PartitionPosition(
        leader_epoch=1,
        last_log_epoch=1,
        log_start_offset=start,
        log_end_offset=end,
        is_writable=False,
        high_watermark=safe if safe >= 0 else end,
        max_timestamp_ms=newest_ms,
        source_high_watermark=received[0],
        source_seen_at_ms=received[1],
        epochs=tuple(EpochStart(*entry) for entry in epochs),
    )


def site(name: str, position: PartitionPosition | None, *, is_led: bool = True) -> SiteEvidence:
    partitions = {KEY: position} if position is not None else {}
    leaderless = frozenset() if is_led else frozenset({KEY})
    return SiteEvidence(site=name, seen_at_ms=0, record=LinkRecord(), partitions=partitions, leaderless=leaderless)


def evidence(
    source: PartitionPosition | None, target: PartitionPosition | None, *, is_source_silent: bool = False
) -> Evidence:
    there = None if is_source_silent else site("a", source, is_led=source is not None)
    return Evidence(link="a-b", target_site="b", target=site("b", target, is_led=target is not None), source=there)


def looked(*looks: tuple[int, Evidence]) -> PartitionCompleteness:
    seen = Completeness()
    for asked_at_ms, one in looks:
        seen.take(one, asked_at_ms=asked_at_ms)
    (partition,) = seen.partitions()
    return partition


def test_a_target_that_has_reached_the_sources_end_is_complete_until_the_question() -> None:
    found = looked((1000, evidence(at(10), at(10))))
    assert (found.complete_until_ms, found.behind_records) == (1000, 0)


def test_records_that_the_sources_replicas_lack_yet_count_as_well() -> None:
    found = looked((1000, evidence(at(12, safe=10), at(10))))
    assert (found.complete_until_ms, found.behind_records) == (NEVER, 2)


def test_records_that_only_the_targets_leader_has_do_not_count() -> None:
    assert looked((1000, evidence(at(10), at(10, safe=9)))).complete_until_ms == NEVER


def test_a_target_that_is_always_behind_is_complete_until_the_look_whose_end_it_has_passed() -> None:
    looks = [(1000 * number, evidence(at(10 * number), at(10 * number - 5))) for number in range(1, 5)]
    assert looked(*looks[:1]).complete_until_ms == NEVER
    assert looked(*looks[:2]).complete_until_ms == 1000
    assert looked(*looks).complete_until_ms == 3000


def test_its_newest_record_tells_how_far_a_target_is_that_is_behind() -> None:
    assert looked((1000, evidence(at(20), at(10, newest_ms=900)))).complete_until_ms == 900


@pytest.mark.parametrize("source_end", [4, 7, 10, 12])
def test_nothing_is_claimed_of_a_copy_with_another_history_however_long_it_is(source_end: int) -> None:
    source, copy = at(source_end, (0, 0), (9, 4)), at(10, (0, 0), newest_ms=900)
    found = looked((1000, evidence(source, copy)))
    assert (found.complete_until_ms, found.behind_records) == (NEVER, source_end - 4)


def test_nothing_is_claimed_of_a_copy_that_nothing_proves_while_the_source_is_silent() -> None:
    found = looked((1000, evidence(None, at(10, (0, 0), newest_ms=900), is_source_silent=True)))
    assert (found.complete_until_ms, found.behind_records) == (NEVER, UNKNOWN)


def test_a_record_from_a_clock_that_is_ahead_proves_nothing() -> None:
    assert looked((1000, evidence(at(20), at(10, newest_ms=5000)))).complete_until_ms == NEVER


def test_of_a_silent_source_only_its_last_answers_are_claimed() -> None:
    level = evidence(None, at(10, received=(10, 700)), is_source_silent=True)
    behind = evidence(None, at(9, received=(10, 700)), is_source_silent=True)
    unheard = evidence(None, at(9), is_source_silent=True)
    assert [looked((1000, one)).complete_until_ms for one in (level, behind, unheard)] == [700, NEVER, NEVER]
    assert looked((1000, level)).behind_records == UNKNOWN


def test_a_partition_that_is_not_at_the_target_is_complete_only_while_it_is_empty() -> None:
    assert looked((1000, evidence(at(4, start=4), None))).complete_until_ms == 1000
    assert looked((1000, evidence(at(5, start=4), None))).complete_until_ms == NEVER


def test_a_partition_without_a_leader_at_either_site_is_not_passed_over() -> None:
    assert looked((1000, evidence(None, None))).complete_until_ms == NEVER


def test_a_claim_stays_when_the_target_falls_back_or_goes_silent() -> None:
    level = evidence(at(10), at(10))
    found = looked((1000, level), (2000, evidence(at(20), at(10))), (3000, evidence(at(20), None)))
    assert found.complete_until_ms == 1000


def test_a_mirror_is_believed_about_times_and_not_about_its_lag() -> None:
    """A lag may count from the start of the mirror, or belong to the last answer of its source."""

    def reported(**fields: int) -> int:
        seen = Completeness()
        reply = DescribeMirrorReply(partitions=[MirrorPartition(topic="orders", partition=0, **fields)])
        seen.take_mirror(reply, asked_at_ms=1000)
        (partition,) = seen.partitions()
        return partition.complete_until_ms

    assert reported(lag_records=0, lag_ms=0) == NEVER
    assert reported(lag_records=5, lag_ms=40, mirrored_records=9) == NEVER
    assert reported(lag_records=0, lag_ms=0, complete_ms_ago=300) == 700
    assert reported(lag_records=-1, lag_ms=40, complete_ms_ago=900) == 100


def test_a_topic_is_as_complete_as_its_last_partition() -> None:
    partitions = [
        PartitionCompleteness(topic=topic, partition=index, complete_until_ms=until_ms, behind_records=behind)
        for topic, index, until_ms, behind in (("a", 0, 900, 1), ("a", 1, 400, 2), ("b", 0, 900, UNKNOWN))
    ]
    first, second = by_topic(partitions, until_ms=500)
    assert (first.is_complete, first.complete_until_ms, first.partitions_complete, first.behind_records) == (
        False,
        400,
        1,
        3,
    )
    assert (second.is_complete, second.behind_records) == (True, UNKNOWN)
