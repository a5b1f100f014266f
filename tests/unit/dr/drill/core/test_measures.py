"""Counting a drill: recovery point, recovery time, losses against the account, judged by
expectations; reconciled findings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import pytest

from dr.drill.core.checkers import Anomaly, CatchUp
from dr.drill.core.expectations import Limits, judge
from dr.drill.core.history import Acknowledged, Delivered, LogRecord
from dr.drill.core.measures import Measured, longest_pause, measure, unaccounted_losses
from dr.drill.core.plots import POINTS_MAX, Curve, Span, plot, rate_points
from dr.failover.reconciliation import judge_findings, last_json
from dr.sites.core.loss import LossAccount, PartitionLoss
from wire.protocol.ids import TopicPartition


def account(kept_below: int, *, epoch: int = 2, accounted_at_ms: int = 0, from_site: str = "a") -> LossAccount:
    loss = PartitionLoss(
        topic="t",
        partition=0,
        kept_below=kept_below,
        source_end=kept_below,
        is_source_end_exact=False,
        known_lost_records=0,
        last_contact_ms=5,
    )
    return LossAccount(
        link="a-b",
        epoch=epoch,
        from_site=from_site,
        to_site="b" if from_site == "a" else "a",
        accounted_at_ms=accounted_at_ms,
        partitions=(loss,),
    )


def ack(number: int, offset: int, at_ms: float) -> Acknowledged:
    return Acknowledged("p", number, "t", 0, offset, at_ms - 1, at_ms)


def given(number: int, offset: int, at_ms: float) -> Delivered:
    return Delivered("m", 1, "t", 0, offset, f"p:{number}", at_ms)


def a_failover_that_lost_two(kept_below: int = 3) -> Measured:
    """Records 3 and 4 were acknowledged at the old site only; their offsets were used again."""
    acknowledged = [ack(0, 0, 10), ack(1, 1, 20), ack(2, 2, 30), ack(3, 3, 40), ack(4, 4, 50), ack(5, 3, 900)]
    log = [LogRecord("b", "t", 0, offset, f"p:{number}") for offset, number in enumerate((0, 1, 2, 5))]
    return measure(
        acknowledged=acknowledged,
        failed=0,
        delivered={"g": [given(0, 0, 11), given(1, 1, 21), given(2, 2, 31), given(3, 3, 41), given(5, 3, 950)]},
        log=log,
        accounts=[account(kept_below)],
        fault=("kill site a", 60),
        healed_at_ms=[925],
        ends_at_ms=1000,
        reconciliations={"before": "equal"},
    )


def test_lost_records_are_counted_with_their_age_and_reused_offsets_are_no_gap() -> None:
    measured = a_failover_that_lost_two()
    assert [anomaly.detail for anomaly in measured.missing] == ["p:3", "p:4"]
    assert measured.recovery_point_ms == 20
    assert (measured.gaps, measured.order_violations, measured.duplicates, measured.undelivered) == ((), (), (), ())
    assert measured.unaccounted == ()
    assert measured.producer_outage is not None
    assert measured.producer_outage.duration_ms == 850
    assert measured.consumer_outage is not None
    assert measured.consumer_outage.duration_ms == 909
    assert measured.catch_up is not None
    assert (measured.catch_up.offset, measured.catch_up.duration_ms) == (3, 25)


def test_a_loss_below_the_kept_offset_is_not_accounted_for() -> None:
    assert [anomaly.detail for anomaly in a_failover_that_lost_two(kept_below=4).unaccounted] == ["p:3"]


def test_expectations_are_judged_and_those_not_stated_are_not() -> None:
    limits = Limits(
        recovery_point_records_max=1,
        producer_recovery_ms_max=850,
        consumer_catch_up_ms_max=24,
        loss_is_as_accounted=True,
        sites_equal=("before", "after"),
    )
    verdicts = judge(limits, a_failover_that_lost_two())
    assert [(verdict.name, verdict.is_met) for verdict in verdicts] == [
        ("recovery point", False),
        ("recovery time of producers", True),
        ("catch-up of consumers", False),
        ("loss is as accounted", True),
        ("sites equal (before)", True),
        ("sites equal (after)", False),
    ]


def test_a_client_that_never_came_back_meets_no_recovery_time() -> None:
    (verdict,) = judge(Limits(consumer_recovery_ms_max=1e9), Measured())
    assert (verdict.is_met, verdict.found) == (False, "nothing came after the fault")


def test_a_record_that_is_never_delivered_meets_no_catch_up_time() -> None:
    lost = CatchUp(10.0, TopicPartition("t", 0), 3, math.inf)
    (verdict,) = judge(Limits(consumer_catch_up_ms_max=1e9), Measured(catch_up=lost))
    assert (verdict.is_met, verdict.found) == (False, "nothing came after the fault")
    (verdict,) = judge(Limits(consumer_catch_up_ms_max=0), Measured())
    assert verdict.is_met


def test_the_longest_pause_is_one_that_ends_after_the_fault() -> None:
    times = [0.0, 500.0, 600.0, 700.0, 900.0]
    pause = longest_pause(times, fault="f", fault_at_ms=650, until_ms=10_000)
    assert pause is not None
    assert (pause.began_at_ms, pause.ended_at_ms) == (700, 900)
    assert longest_pause(times, fault="f", fault_at_ms=901, until_ms=10_000) is None


def test_findings_at_or_above_the_kept_offset_are_as_accounted() -> None:
    finding = {"topic": "t", "partition": 0, "kind": "diverged", "first_offset": 3, "last_offset": 4}
    extra = {**finding, "kind": "extra", "first_offset": 5, "last_offset": 9}

    def judged(*findings: dict[str, Any], kept_below: int = 3) -> tuple[str, int]:
        return judge_findings(findings, [account(kept_below)], source_site="a")

    assert judged(finding, extra) == ("as accounted", 2)
    assert judged({**finding, "first_offset": 2}) == ("different", 0)
    assert judged({**finding, "topic": "other"}) == ("different", 0)
    assert judged() == ("different", 0)
    for kind in ("corrupt", "duplicate"):
        assert judged(finding, {**finding, "kind": kind, "first_offset": 7, "last_offset": 7}) == ("different", 0)


def test_findings_after_two_failovers_are_judged_by_the_second() -> None:
    accounts = [account(500, epoch=3, from_site="b"), account(100, epoch=2)]
    only_old = {"topic": "t", "partition": 0, "kind": "extra", "first_offset": 500, "last_offset": 504}
    since = {**only_old, "kind": "missing", "first_offset": 505, "last_offset": 600}
    assert judge_findings([only_old, since], accounts, source_site="a") == ("as accounted", 5)
    between = {**only_old, "first_offset": 300}
    assert judge_findings([between], accounts, source_site="a") == ("different", 0)


def two_failovers(lost: Acknowledged, *, log_offsets: Iterable[int]) -> list[str]:
    """Names of lost records that neither account explains: 100 were kept at 1000 ms, 500 at 2000
    ms.
    """
    accounts = [
        account(100, epoch=2, accounted_at_ms=1000),
        account(500, epoch=3, accounted_at_ms=2000, from_site="b"),
    ]
    log = [LogRecord("a", "t", 0, offset, f"other:{offset}") for offset in log_offsets]
    missing = [Anomaly("A3", TopicPartition("t", 0), lost.offset, lost.value)]
    return [anomaly.detail for anomaly in unaccounted_losses(missing, accounts, [lost], log)]


@pytest.mark.parametrize(
    ("offset", "at_ms", "log_offsets", "is_accounted"),
    [
        (300, 1500, range(299), False),  # acknowledged between the failovers, kept by the second, and gone
        (105, 900, range(600), True),  # lost with the first site
        (99, 900, range(600), False),
        (510, 1500, range(500), True),  # lost with the second site
        (105, 1500, range(600), True),  # taken by the first site while it was cut off: the offset is another record's
        (510, 2500, range(600), True),
        (700, 2500, range(600), True),  # this one was as well, as far as is known
        (550, 2500, [*range(540), *range(560, 600)], False),  # a hole in what the active site has written
    ],
)
def test_a_loss_is_accounted_for_by_the_failover_that_ended_the_site_that_took_it(
    offset: int, at_ms: float, log_offsets: Iterable[int], *, is_accounted: bool
) -> None:
    """A2."""
    unexplained = two_failovers(ack(1, offset, at_ms), log_offsets=log_offsets)
    assert unexplained == ([] if is_accounted else ["p:1"])


def test_json_is_found_as_the_whole_output_or_its_last_line() -> None:
    assert last_json('{\n "findings": []\n}\n') == {"findings": []}
    assert last_json('warning\n{"findings": [1]}\n') == {"findings": [1]}
    assert last_json("nothing") is None


@pytest.mark.parametrize("value", [0.0, 900.0], ids=["an outage", "a peak"])
def test_a_moment_of_a_long_drill_is_in_the_plot(value: float) -> None:
    points = [(float(second), 100.0) for second in range(10_000)]
    points[7_777] = (7_777.0, value)
    drawn = plot([Curve(name="rate", colour="c", points=points)], (), unit="records/s", duration_s=10_000)
    (shown,) = re.findall(r'<polyline class="c" points="([^"]*)"', drawn)
    heights = {point.split(",")[1] for point in shown.split()}
    assert len(heights) == 2
    assert len(shown.split()) <= 2 * POINTS_MAX


def test_rates_count_events_by_bucket_and_plots_escape_names() -> None:
    assert rate_points([0, 100, 1600], from_ms=0, until_ms=2000, bucket_ms=500) == [
        (0.0, 4.0), (0.5, 0.0), (1.0, 0.0), (1.5, 2.0), (2.0, 0.0),
    ]  # fmt: skip
    curve = Curve(name="<lag>", colour="one", points=[(0, 0), (1, 5)])
    drawn = plot([curve], [Span(name="cut & heal", began_s=0, ended_s=1)], unit="records", duration_s=2)
    assert "&lt;lag&gt;" in drawn
    assert "cut &amp; heal" in drawn


@pytest.mark.parametrize(
    ("last_ack_ms", "sending_until_ms", "is_met"),
    [(1_001.0, 60_000.0, False), (1_001.0, None, True), (1_001.0, 5_000.0, True), (999.0, 60_000.0, False)],
    ids=["on its way at the fault", "ended by itself", "back in time", "none after the fault"],
)
def test_an_acknowledgement_on_its_way_is_no_recovery(
    last_ack_ms: float, sending_until_ms: float | None, *, is_met: bool
) -> None:
    measured = measure(
        acknowledged=[ack(0, 0, 990), ack(1, 1, last_ack_ms)],
        failed=0,
        delivered={},
        log=[],
        accounts=[],
        fault=("kill site a", 1_000.0),
        healed_at_ms=[],
        ends_at_ms=70_000,
        reconciliations={},
        sending_until_ms=sending_until_ms,
    )
    (verdict,) = judge(Limits(producer_recovery_ms_max=10_000), measured)
    assert verdict.is_met is is_met
