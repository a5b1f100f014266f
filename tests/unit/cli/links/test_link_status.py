"""A mirror in one line."""

from __future__ import annotations

import pytest

from cli.links.link_status import is_well, summary
from wire.control.mirror_pb2 import DescribeMirrorReply, Disagreement, MirrorPartition, RefusedChange


def partition(number: int, state: str = "MIRRORING", **times: int) -> MirrorPartition:
    return MirrorPartition(topic="orders", partition=number, state=state, **times)


def test_lags_are_added_up_and_the_longest_time_counts() -> None:
    partitions = [
        partition(0, lag_records=3, lag_bytes=30, lag_ms=500),
        partition(1, "GAP", lag_records=4, lag_bytes=40, lag_ms=90),
    ]
    found = summary(DescribeMirrorReply(link="a-b", state="GAP", partitions=partitions))
    assert found["partitions"] == {"GAP": 1, "MIRRORING": 1}
    assert (found["lag_records"], found["lag_bytes"], found["lag_ms"]) == (7, 70, 500)


def test_a_lag_that_one_partition_does_not_know_is_not_known() -> None:
    """A failure never makes a lag look smaller."""
    partitions = [partition(0), partition(1, "SOURCE_UNAVAILABLE", lag_records=-1, lag_bytes=-1, lag_ms=700)]
    found = summary(DescribeMirrorReply(link="a-b", state="SOURCE_UNAVAILABLE", partitions=partitions))
    assert (found["lag_records"], found["lag_bytes"], found["lag_ms"]) == (None, None, 700)


def test_a_mirror_that_has_not_found_its_link_has_no_partitions() -> None:
    found = summary(DescribeMirrorReply(link="a-b", state="PREPARING", reason="no agent answers"))
    assert (found["partitions"], found["reason"]) == ({}, "no agent answers")
    assert (found["lag_records"], found["lag_bytes"], found["lag_ms"]) == (None, None, None)


@pytest.mark.parametrize(
    ("reply", "is_so"),
    [
        (DescribeMirrorReply(state="MIRRORING", partitions=[partition(0)]), True),
        (DescribeMirrorReply(state="MIRRORING"), True),
        (DescribeMirrorReply(state="MIRRORING", partitions=[partition(0), partition(1, stalled_ms=31_000)]), False),
        (DescribeMirrorReply(state="PREPARING", partitions=[partition(0, lag_ms=5000)]), True),
        (DescribeMirrorReply(state="PREPARING", partitions=[partition(0, lag_ms=500_000)]), False),
        (DescribeMirrorReply(state="PREPARING", reason="no agent answers"), False),
        (DescribeMirrorReply(state="PAUSED", partitions=[partition(0, "PAUSED")]), False),
        (DescribeMirrorReply(state="MIRRORING", group_problems={"billing": "no answer"}), False),
        (DescribeMirrorReply(state="MIRRORING", refused_changes=[RefusedChange(topic="orders")]), False),
        (DescribeMirrorReply(state="MIRRORING", mirror_maker_problem="heartbeats cannot be written: no"), False),
        (DescribeMirrorReply(state="MIRRORING", failing_daemons={"m2:9391": "billing: refused"}), False),
        (DescribeMirrorReply(state="MIRRORING", disagreements=[Disagreement(key="whitelist")]), False),
        (DescribeMirrorReply(state="MIRRORING", untaken_count=1), False),
    ],
)
def test_when_a_mirror_needs_a_person(reply: DescribeMirrorReply, is_so: bool) -> None:
    assert is_well(reply) is is_so
