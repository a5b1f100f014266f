"""The distribution of delays, by nearest rank."""

from __future__ import annotations

import pytest

from spark_jobs.pipelines import trigger_delay
from spark_jobs.pipelines.core.delay_distribution import DelayDistribution, delay_distribution


def test_quantiles_are_delays_of_records() -> None:
    assert delay_distribution(list(range(100, 0, -1))) == DelayDistribution(100, 50.5, 50, 90, 99, 100)
    assert delay_distribution([7]) == DelayDistribution(1, 7.0, 7, 7, 7, 7)
    assert delay_distribution([1, 1, 1, 10]) == DelayDistribution(4, 3.2, 1, 10, 10, 10)


def test_intervals_are_a_list_of_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    required = ("--bootstrap-server", "h:1", "--topic", "t")
    assert trigger_delay.parser().parse_args([*required, "--intervals-ms", "100, 2000"]).intervals_ms == [100, 2_000]
    with pytest.raises(SystemExit):
        trigger_delay.parser().parse_args([*required, "--intervals-ms", "100,soon"])
    assert "argument --intervals-ms: accepted: a number from 1 on, not 'soon'" in capsys.readouterr().err
