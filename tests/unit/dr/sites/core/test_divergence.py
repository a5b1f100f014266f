"""Copies that are not the active site's history: found whether or not that site answers, refused,
and accounted for as they are.
"""

from __future__ import annotations

import pytest

from dr.failover.core.assess import assess
from dr.failover.core.steps import FailoverPolicy, Step
from dr.links.core.readiness import readiness
from dr.sites.core.divergence import find_differences
from dr.sites.core.evidence import Promotion
from dr.sites.core.positions import PartitionPosition
from tests.unit.dr.core.link_model import KEY, ModelLink, ModelPartition, Operator
from wire.batches.log_histories import EpochStart, history_of
from wire.protocol.ids import TopicPartition

HEALTHY = TopicPartition("flights", 1)
FLOOR = 1 << 20


def after_an_unplanned_failover(*, abandoned: int, written: int) -> ModelLink:
    """Partition 0 parts at offset 4: a has `abandoned` records that b never got, b has written
    others. Partition 1 is a copy at a.
    """
    link = ModelLink()
    for site in (link.a, link.b):
        site.partitions[HEALTHY] = ModelPartition()
    for number in range(4):
        assert link.a.write(f"v{number}")
        assert link.a.write(f"w{number}", HEALTHY)
    link.mirror()
    for number in range(abandoned):
        assert link.a.write(f"abandoned-{number}")
    link.a.is_up = False
    assert Operator(link).run().step is Step.DONE
    for number in range(written):
        assert link.b.write(f"b{number}")
        assert link.b.write(f"bw{number}", HEALTHY)
    link.a.is_up = True
    link.a.adopt(link.b.record)
    link.a.accounts |= link.b.accounts
    link.mirror()
    return link


ACCEPTING = FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=500, settle_ms=50)


@pytest.mark.parametrize("is_source_up", [True, False], ids=["living source", "dead source"])
@pytest.mark.parametrize("written", [0, 3, 9], ids=["ahead", "inside", "behind"])
def test_f_h_a_diverged_standby_is_refused_with_its_partitions_and_offsets_named(
    *, is_source_up: bool, written: int
) -> None:
    link = after_an_unplanned_failover(abandoned=6, written=written)
    link.b.is_up = is_source_up
    refused = Operator(link, to_site="a").run()
    assert refused.step is Step.REFUSE
    assert "flights-0 differs from offset 4 on: a has 6 records of its own (offsets 4 to 9)" in refused.reason
    assert "flights-1" not in refused.reason
    assert "accept data loss" in refused.reason
    assert link.a.record.epoch == link.b.record.epoch == 2
    assert (
        assess(link.evidence("a"), to_site="a", policy=FailoverPolicy(), now_ms=link.now_ms).refusal == refused.reason
    )


def test_f_h_an_account_of_a_diverged_standby_tells_what_is_kept_lost_and_back() -> None:
    link = after_an_unplanned_failover(abandoned=6, written=3)
    assert Operator(link, to_site="a", policy=ACCEPTING).run().step is Step.DONE
    diverged, healthy = link.a.accounts[link.a.record.epoch].partitions
    assert (diverged.kept_below, diverged.known_lost_records, diverged.returning_records) == (4, 3, 6)
    assert diverged.is_source_end_exact
    assert "6 abandoned records come back, offsets 4 to 9" in diverged.sentence
    assert (healthy.kept_below, healthy.known_lost_records, healthy.returning_records) == (7, 0, 0)
    assert not link.a.accounts[link.a.record.epoch].loses_nothing


def test_f_h_with_a_dead_source_the_account_of_its_promotion_tells_where_the_histories_part() -> None:
    link = after_an_unplanned_failover(abandoned=6, written=3)
    link.b.is_up = False
    policy = FailoverPolicy(accepts_data_loss=True, settle_ms=50)
    planned = assess(link.evidence("a"), to_site="a", policy=policy, now_ms=link.now_ms).account
    assert Operator(link, to_site="a", policy=policy).run().step is Step.DONE
    kept = link.a.accounts[3]
    assert planned is not None
    for account in (planned, kept):
        diverged, healthy = account.partitions
        assert (diverged.kept_below, diverged.returning_records, diverged.is_source_end_exact) == (4, 6, False)
        assert "records that the old site acknowledged at or above 4 are lost" in diverged.sentence
        assert healthy.kept_below == 7
    assert not kept.loses_nothing


def test_f_h_a_copy_of_which_nothing_is_known_is_refused_and_not_called_kept() -> None:
    link = after_an_unplanned_failover(abandoned=6, written=3)
    link.b.is_up = False
    link.a.accounts.clear()
    refused = Operator(link, to_site="a").run()
    assert "nothing shows that a's copy of flights-0, which ends at 10, is the history of b" in refused.reason
    assert "flights-1" not in refused.reason
    assert Operator(link, to_site="a", policy=ACCEPTING).run().step is Step.DONE
    unproven, _ = link.a.accounts[3].partitions
    assert "nothing shows that the log, which ends at 10, is the old site's history" in unproven.sentence
    assert not link.a.accounts[3].is_exact


def test_a_diverged_standby_is_not_ready_although_it_is_longer() -> None:
    link = after_an_unplanned_failover(abandoned=6, written=3)
    found = readiness(link.evidence("a"), now_ms=link.now_ms)
    assert found.missing_records == 3
    assert any("flights-0 differs from offset 4 on" in problem for problem in found.problems)
    assert not found.is_ready(lag_records_max=1_000, groups_age_ms_max=1_000_000)


def test_a_standby_without_records_of_its_own_fails_over_again_although_nothing_was_written_in_between() -> None:
    link = after_an_unplanned_failover(abandoned=0, written=0)
    link.b.is_up = False
    for partition in link.a.partitions.values():
        partition.heard_end = -1
    assert Operator(link, to_site="a").run().step is Step.DONE
    assert [item.kept_below for item in link.a.accounts[3].partitions] == [4, 4]


def position(end: int, *epochs: tuple[int, int], received: int = -1) -> PartitionPosition:
    return PartitionPosition(
        leader_epoch=0,
        last_log_epoch=epochs[-1][0] if epochs else -1,
        log_start_offset=0,
        log_end_offset=end,
        is_writable=False,
        source_high_watermark=received,
        epochs=tuple(EpochStart(*entry) for entry in epochs),
    )


@pytest.mark.parametrize(
    ("copy", "is_unproven", "parts_at"),
    [
        (position(0), False, None),
        (position(10, (0, 0), received=10), False, None),
        (position(10, (0, 0), (FLOOR, 4)), False, None),
        (position(4, (0, 0)), False, None),
        (position(10, (0, 0)), False, 4),
    ],
    ids=["empty", "heard of by a mirror", "records of the source", "ends at the promotion", "goes on alone"],
)
def test_a_copy_proves_by_its_records_that_it_is_the_history_of_a_silent_source(
    copy: PartitionPosition, *, is_unproven: bool, parts_at: int | None
) -> None:
    promotion = Promotion(epoch=2, to_site="b", leader_epoch_floor=FLOOR, kept_below={KEY: 4})
    found = find_differences({KEY: copy}, {}, is_source_final={}, promotion=promotion)
    assert (KEY in found.unproven) is is_unproven
    assert (found.diverged[KEY].parts_at if found.diverged else None) == parts_at


def test_a_copy_that_went_on_after_the_source_was_last_seen_is_no_divergence() -> None:
    copy, seen = {KEY: position(12, (0, 0), received=12)}, {KEY: history_of(0, 10, [(0, 0)])}
    assert not find_differences(copy, seen, is_source_final={KEY: False}, promotion=None)
    assert find_differences(copy, seen, is_source_final={KEY: True}, promotion=None).diverged[KEY].parts_at == 10
