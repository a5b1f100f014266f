"""Acknowledgements at the source and arrivals at the target become lags."""

from __future__ import annotations

import numpy as np

from bench.loads.lag import journeys

MS = 1_000_000


def test_a_record_has_come_when_its_whole_batch_has() -> None:
    acknowledged = {
        "partition": np.array([0, 0, 0, 1]),
        "offset": np.array([0, 1, 2, 0]),
        "acknowledged_ns": np.array([10, 11, 12, 20]) * MS,
    }
    arrivals = [[(1, 15 * MS), (2, 18 * MS)], [(0, 21 * MS)]]
    assert journeys(acknowledged, arrivals, skip_s=0).lags_ms == [5, 4, 6, 1]


def test_records_of_the_first_seconds_do_not_count() -> None:
    acknowledged = {
        "partition": np.array([0, 0]),
        "offset": np.array([0, 1]),
        "acknowledged_ns": np.array([0, 2000]) * MS,
    }
    assert journeys(acknowledged, [[(0, 900 * MS), (1, 2003 * MS)]], skip_s=1).lags_ms == [3]


def test_a_partition_without_records_is_left_out() -> None:
    acknowledged = {"partition": np.array([1]), "offset": np.array([0]), "acknowledged_ns": np.array([5 * MS])}
    assert journeys(acknowledged, [[], [(0, 5 * MS)]], skip_s=0).lags_ms == [0]
