"""The part of a log that this site keeps for its standbys."""

from __future__ import annotations

import pytest

from broker.log.core.retention import RetentionHold
from broker.replication.core.retention_holds import FOLLOWS_THE_LEADER, REPORT_AGE_MS_MAX, HoldBounds, StandbyEnds
from wire.control.cluster_pb2 import LinkRecord

KEY = ("orders", 3)
BOUNDS = HoldBounds(ms_max=1_000, bytes_max=2_000)


def link(name: str = "a-b", *, epoch: int = 1) -> LinkRecord:
    return LinkRecord(name=name, epoch=epoch)


def from_offset(ends: StandbyEnds, *links: LinkRecord) -> int:
    found = ends.hold(KEY, links, BOUNDS, is_leader=True)
    assert found == RetentionHold(found.from_offset if found else -1, 1_000, 2_000)
    return found.from_offset


def note(
    ends: StandbyEnds, end_offset: int, of: LinkRecord, *, high_watermark: int | None = None, now_ms: float = 0
) -> None:
    known = end_offset if high_watermark is None else high_watermark
    ends.note(KEY, end_offset, of, high_watermark=known, now_ms=now_ms)


def test_everything_is_held_until_the_standby_has_reported() -> None:
    ends = StandbyEnds()
    assert from_offset(ends, link()) == 0
    note(ends, 120, link())
    assert from_offset(ends, link()) == 120
    note(ends, 150, link())
    assert from_offset(ends, link()) == 150


def test_of_several_standbys_the_one_that_has_the_least_counts() -> None:
    ends = StandbyEnds()
    note(ends, 150, link())
    assert from_offset(ends, link(), link("a-c")) == 0
    note(ends, 120, link("a-c"))
    assert from_offset(ends, link(), link("a-c")) == 120


def test_a_report_counts_in_its_link_epoch() -> None:
    """The standby of another epoch may have had another history."""
    ends = StandbyEnds()
    note(ends, 150, link(epoch=1))
    assert from_offset(ends, link(epoch=3)) == 0
    note(ends, 20, link(epoch=3))
    assert from_offset(ends, link(epoch=3)) == 20


def test_a_partition_that_is_made_anew_begins_without_a_report() -> None:
    ends = StandbyEnds()
    note(ends, 150, link())
    ends.forget(KEY)
    assert from_offset(ends, link()) == 0


def test_a_follower_gives_nothing_up_by_itself() -> None:
    assert StandbyEnds().hold(KEY, [link()], BOUNDS, is_leader=False) == FOLLOWS_THE_LEADER


@pytest.mark.parametrize("bounds", [HoldBounds(0, 2_000), HoldBounds(1_000, 0)])
@pytest.mark.parametrize("is_leader", [True, False])
def test_a_bound_of_nothing_turns_it_off(bounds: HoldBounds, is_leader: bool) -> None:
    assert StandbyEnds().hold(KEY, [link()], bounds, is_leader=is_leader) is None


def test_a_topic_that_no_link_mirrors_from_here_is_not_held() -> None:
    assert StandbyEnds().hold(KEY, [], BOUNDS, is_leader=True) is None


def readable(ends: StandbyEnds, offset: int, *, now_ms: float = 0, epoch: int = 1) -> int | None:
    return ends.readable(KEY, link(epoch=epoch), offset, now_ms=now_ms)


def test_a_consumer_reads_at_the_standby_what_it_has() -> None:
    ends = StandbyEnds()
    assert readable(ends, 0) is None
    note(ends, 100, link(), high_watermark=500)
    assert (readable(ends, 99), readable(ends, 100)) == (100, None)
    assert readable(ends, 99, epoch=2) is None


def test_a_standby_that_is_close_takes_consumers_at_the_end_of_the_log() -> None:
    """The records that it lacks arrive within a moment."""
    ends = StandbyEnds()
    note(ends, 100, link(), high_watermark=500)
    note(ends, 500, link(), high_watermark=800)
    assert readable(ends, 820) == 500
    note(ends, 600, link(), high_watermark=900)
    assert readable(ends, 820) is None


def test_a_standby_without_news_takes_no_consumers() -> None:
    ends = StandbyEnds()
    note(ends, 100, link(), now_ms=1_000)
    assert readable(ends, 10, now_ms=1_000 + REPORT_AGE_MS_MAX) == 100
    assert readable(ends, 10, now_ms=1_001 + REPORT_AGE_MS_MAX) is None
