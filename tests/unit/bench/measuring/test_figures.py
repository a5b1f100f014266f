"""Samples become rows: picks, ratios, targets, percentiles."""

from __future__ import annotations

import pytest

from bench.measuring.figures import Pick, Sample, Side, Target, percentile, picked
from bench.measuring.section_figures import FIGURES, rows


def _produce(side: Side, mb_per_s: float, cpu_s_per_gb: float) -> Sample:
    values = {"mb_per_s": mb_per_s, "cpu_s_per_gb": cpu_s_per_gb}
    return Sample(section="produce", case="java, 1 KB", side=side, values=values)


def test_each_figure_takes_the_best_of_its_samples_on_both_sides() -> None:
    throughput, cpu = rows(
        [
            _produce(Side.ANTIPODE, 300, 1.5),
            _produce(Side.PEER, 200, 4),
            _produce(Side.ANTIPODE, 250, 1.0),
            _produce(Side.PEER, 100, 5),
        ]
    )
    assert (throughput.ours, throughput.theirs, throughput.ratio, throughput.is_reached) == (300, 200, 1.5, True)
    assert (cpu.ours, cpu.theirs, cpu.ratio, cpu.is_reached) == (1.0, 4, 0.25, True)


def test_a_figure_that_misses_its_ratio_is_not_reached() -> None:
    throughput, cpu = rows([_produce(Side.ANTIPODE, 99, 2.7), _produce(Side.PEER, 100, 4)])
    assert (throughput.is_reached, cpu.is_reached) == (False, False)


def test_without_a_peer_a_ratio_is_neither_reached_nor_missed() -> None:
    throughput, _ = rows([_produce(Side.ANTIPODE, 300, 1)])
    assert (throughput.theirs, throughput.ratio, throughput.is_reached) == (None, None, None)


def test_an_absolute_target_needs_no_peer() -> None:
    sample = Sample(section="start-up", case="broker", side=Side.ANTIPODE, values={"ready_s": 0.5})
    assert [row.is_reached for row in rows([sample])] == [True]


def test_a_figure_without_a_target_has_no_verdict() -> None:
    sample = Sample(section="requests", case="acks=all", side=Side.ANTIPODE, values={"p50_ms": 1})
    (row,) = rows([sample])
    assert (row.target, row.is_reached) == ("", None)


@pytest.mark.parametrize(
    ("section", "case", "name", "target"),
    [
        ("produce", "Java, 1 KB, acks=1", "cpu_s_per_gb", "≤ 0.65x"),
        ("produce", "Java, 10 KB, acks=1", "cpu_s_per_gb", "≤ 0.75x"),
        ("compiled", "produce, 10 KB", "cpu_s_per_gb", "≤ 0.75x"),
        ("compiled", "consume, 10 KB", "cpu_s_per_gb", "≤ 0.8x"),
        ("transactions", "8 producers, 10 records each", "per_s", "≥ 1.2x"),
        ("transactions", "1 producer, 10 records each", "per_s", ""),
    ],
)
def test_some_cases_have_targets_of_their_own(section: str, case: str, name: str, target: str) -> None:
    (row,) = rows([Sample(section=section, case=case, side=Side.ANTIPODE, values={name: 1})])
    assert row.target == target


def test_a_peer_that_used_nothing_gives_no_ratio() -> None:
    _, cpu = rows([_produce(Side.ANTIPODE, 1, 1), _produce(Side.PEER, 1, 0)])
    assert cpu.ratio is None


def test_one_missed_part_of_a_target_decides_even_when_another_is_unknown() -> None:
    assert Target(ratio_min=1, below=5).is_reached(6, None) is False
    assert Target(ratio_min=1, below=5).is_reached(4, None) is None


def test_targets_read_as_one_would_write_them() -> None:
    assert [str(Target(ratio_min=3)), str(Target(ratio_max=0.5)), str(Target(below=150))] == ["≥ 3x", "≤ 0.5x", "< 150"]
    assert [str(Target(least=0.8)), str(Target(most=2))] == ["≥ 0.8", "≤ 2"]


def test_the_limit_of_a_target_reaches_it_unless_the_figure_must_be_below() -> None:
    assert Target(most=2).is_reached(2, None) is True
    assert Target(most=2).is_reached(2.1, None) is False
    assert Target(below=2).is_reached(2, None) is False


@pytest.mark.parametrize(("pick", "expected"), [(Pick.HIGHEST, 9), (Pick.LOWEST, 1), (Pick.MEDIAN, 2)])
def test_picks_make_one_figure_of_several(pick: Pick, expected: float) -> None:
    assert picked(pick, [2, 9, 1]) == expected
    assert picked(pick, []) is None


def test_percentiles_are_values_that_occurred() -> None:
    values = list(range(1, 1001))
    assert [percentile(values, p) for p in (0, 50, 99, 99.9, 100)] == [1, 500, 990, 999, 1000]
    assert percentile([7], 99) == 7


def test_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


def test_every_section_has_figures_with_units() -> None:
    assert all(figure.unit and figure.title for figures in FIGURES.values() for figure in figures.values())
