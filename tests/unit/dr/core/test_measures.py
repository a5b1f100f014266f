"""Counting a drill: recovery point, recovery time, losses against the account, judged by expectations; reconciled findings."""

from __future__ import annotations

from dr.core.expectations import Limits, judge
from dr.core.history import Acknowledged, Delivered, LogRecord
from dr.core.loss import LossAccount, PartitionLoss
from dr.core.measures import Measured, longest_pause, measure
from dr.core.plots import Curve, Span, plot, rate_points
from dr.reconciliation import judge_findings, last_json


def account(kept_below: int) -> LossAccount:
    loss = PartitionLoss(
        topic="t",
        partition=0,
        kept_below=kept_below,
        source_end=kept_below,
        is_source_end_exact=False,
        known_lost_records=0,
        last_contact_ms=5,
    )
    return LossAccount(link="a-b", epoch=2, from_site="a", to_site="b", accounted_at_ms=0, partitions=(loss,))


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


def test_a_loss_below_the_kept_offset_is_not_accounted_for() -> None:
    assert [anomaly.detail for anomaly in a_failover_that_lost_two(kept_below=4).unaccounted] == ["p:3"]


def test_expectations_are_judged_and_those_not_stated_are_not() -> None:
    limits = Limits(
        recovery_point_records_max=1,
        producer_recovery_ms_max=850,
        loss_is_as_accounted=True,
        sites_equal=("before", "after"),
    )
    verdicts = judge(limits, a_failover_that_lost_two())
    assert [(verdict.name, verdict.is_met) for verdict in verdicts] == [
        ("recovery point", False),
        ("recovery time of producers", True),
        ("loss is as accounted", True),
        ("sites equal (before)", True),
        ("sites equal (after)", False),
    ]


def test_a_client_that_never_came_back_meets_no_recovery_time() -> None:
    (verdict,) = judge(Limits(consumer_recovery_ms_max=1e9), Measured())
    assert (verdict.is_met, verdict.found) == (False, "nothing came after the fault")


def test_the_longest_pause_is_one_that_ends_after_the_fault() -> None:
    times = [0.0, 500.0, 600.0, 700.0, 900.0]
    pause = longest_pause(times, fault="f", fault_at_ms=650, until_ms=10_000)
    assert pause is not None
    assert (pause.began_at_ms, pause.ended_at_ms) == (700, 900)
    assert longest_pause(times, fault="f", fault_at_ms=901, until_ms=10_000) is None


def test_findings_at_or_above_the_kept_offset_are_as_accounted() -> None:
    finding = {"topic": "t", "partition": 0, "kind": "diverged", "first_offset": 3, "last_offset": 4}
    extra = {**finding, "kind": "extra", "first_offset": 5, "last_offset": 9}
    assert judge_findings([finding, extra], [account(3)]) == ("as accounted", 2)
    assert judge_findings([{**finding, "first_offset": 2}], [account(3)]) == ("different", 0)
    assert judge_findings([{**finding, "topic": "other"}], [account(3)]) == ("different", 0)
    assert judge_findings([], [account(3)]) == ("different", 0)


def test_json_is_found_as_the_whole_output_or_its_last_line() -> None:
    assert last_json('{\n "findings": []\n}\n') == {"findings": []}
    assert last_json('warning\n{"findings": [1]}\n') == {"findings": [1]}
    assert last_json("nothing") is None


def test_rates_count_events_by_bucket_and_plots_escape_names() -> None:
    assert rate_points([0, 100, 1600], from_ms=0, until_ms=2000, bucket_ms=500) == [
        (0.0, 4.0), (0.5, 0.0), (1.0, 0.0), (1.5, 2.0), (2.0, 0.0),
    ]  # fmt: skip
    curve = Curve(name="<lag>", colour="one", points=[(0, 0), (1, 5)])
    drawn = plot([curve], [Span(name="cut & heal", began_s=0, ended_s=1)], unit="records", duration_s=2)
    assert "&lt;lag&gt;" in drawn
    assert "cut &amp; heal" in drawn
