"""The records that a backup at regular intervals would have lost."""

from __future__ import annotations

from dr.drill.core.snapshot_baseline import SnapshotLoss, snapshot_baseline


def losses(times_ms: list[float], *, fault_at_ms: float) -> list[tuple[int, bool]]:
    found = snapshot_baseline(times_ms, fault_at_ms=fault_at_ms, intervals_ms=(1_000, 10_000, 60_000))
    return [(loss.lost_records, loss.is_counted) for loss in found]


def test_a_backup_loses_an_interval_s_worth_and_a_longer_one_than_the_load_by_its_rate() -> None:
    """DR-04, DR-05."""
    # ten records a second for twenty seconds, and some after the fault
    times = [float(at) for at in range(0, 25_000, 100)]
    assert losses(times, fault_at_ms=20_050) == [(10, True), (100, True), (round(201 * 60_000 / 20_050), False)]


def test_records_that_come_in_bursts_are_counted_and_not_averaged() -> None:
    times = [0.0] * 1000 + [9_500.0] * 5
    assert losses(times, fault_at_ms=10_000) == [(5, True), (5, True), (6030, False)]


def test_without_a_record_before_the_fault_there_is_nothing_to_compare() -> None:
    assert losses([], fault_at_ms=10) == []
    assert losses([50.0], fault_at_ms=10) == []
    (only,) = snapshot_baseline([10.0], fault_at_ms=10, intervals_ms=(1,))
    assert only == SnapshotLoss(interval_ms=1, lost_records=1, is_counted=False)
