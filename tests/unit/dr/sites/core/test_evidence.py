"""The reports of sites, as values."""

from __future__ import annotations

import pytest

from dr.sites.core.evidence import truncations_of
from wire.control.broker_pb2 import TruncatedLog


@pytest.mark.parametrize(
    ("kept_bytes", "reported"),
    [(50, "all of them are kept in a file"), (20, "20 of 50 bytes are kept in a file"), (0, "none of them are kept")],
)
def test_a_truncation_is_reported_with_its_offset_and_the_kept_records(kept_bytes: int, reported: str) -> None:
    (cut,) = truncations_of(
        "a", [TruncatedLog(topic="t", partition=3, node_id=2, records=5, bytes=50, kept_bytes=kept_bytes)]
    )
    assert cut.sentence == f"t-3: broker 2 of a truncated 5 records of its replica; {reported}"


def test_cuts_come_by_partition_and_broker() -> None:
    reported = [
        TruncatedLog(topic="t", partition=1, node_id=2),
        TruncatedLog(topic="t", partition=1, node_id=1),
        TruncatedLog(topic="s"),
    ]
    assert [(cut.topic, cut.node_id) for cut in truncations_of("a", reported)] == [("s", 0), ("t", 1), ("t", 2)]
