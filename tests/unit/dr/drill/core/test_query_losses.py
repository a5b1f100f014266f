"""Records that a query has read and a failover has lost, against the account: no record below the
kept offset, no more than the account has where it is exact.
"""

from __future__ import annotations

from typing import Any

import pytest

from dr.drill.core.query_losses import judge_lost
from dr.sites.core.loss import LossAccount, PartitionLoss
from wire.protocol.ids import UNKNOWN


def account(kept_below: int, *, lost: int = 0, is_exact: bool = False, partition: int = 0) -> LossAccount:
    loss = PartitionLoss(
        topic="t",
        partition=partition,
        kept_below=kept_below,
        source_end=UNKNOWN if kept_below == UNKNOWN else kept_below + lost,
        is_source_end_exact=is_exact,
        known_lost_records=lost,
        last_contact_ms=5,
    )
    return LossAccount(link="a-b", epoch=2, from_site="a", to_site="b", accounted_at_ms=0, partitions=(loss,))


def lost(first_offset: int, records: int) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "first_offset": first_offset, "records": records}


@pytest.mark.parametrize(
    ("accounts", "problem", "is_number_known"),
    [
        ([account(100)], "", False),
        ([account(101)], "t-0: offset 100 is lost, and the account keeps everything below offset 101", False),
        ([account(UNKNOWN)], "", False),
        ([account(100, lost=50, is_exact=True)], "", True),
        ([account(100, lost=49, is_exact=True)], "t-0: 50 records are lost, and the account has 49", True),
        ([account(100, lost=49)], "", False),
        ([account(140), account(100)], "", False),
        ([account(100, lost=30, is_exact=True), account(120, lost=20, is_exact=True)], "", True),
        ([account(100, partition=1)], "t-0: 50 records are lost, and no account has the partition", True),
        ([], "t-0: 50 records are lost, and no account has the partition", True),
    ],
)
def test_the_lost_records_of_a_partition_are_those_of_the_account(
    accounts: list[LossAccount], problem: str, is_number_known: bool
) -> None:
    found = judge_lost([lost(100, 50)], accounts)
    assert found.problems == ((problem,) if problem else ())
    assert found.is_number_known is is_number_known


def test_nothing_lost_needs_no_account() -> None:
    assert judge_lost([], []) == ((), True)
