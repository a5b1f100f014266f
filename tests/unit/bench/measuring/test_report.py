"""Rows become a table and a document."""

from __future__ import annotations

import json
from pathlib import Path

from bench.measuring import report
from bench.measuring.figures import Sample, Side
from bench.measuring.section_figures import rows

SAMPLES = [
    Sample(
        section="produce",
        case="librdkafka, 1 KB",
        side=Side.ANTIPODE,
        values={"mb_per_s": 1234.5, "cpu_s_per_gb": 1.2},
        other_cores=0.25,
    ),
    Sample(
        section="produce",
        case="librdkafka, 1 KB",
        side=Side.PEER,
        values={"mb_per_s": 617.25, "cpu_s_per_gb": 1.6},
        other_cores=0.5,
        steal_cores=0.5,
    ),
    Sample(section="start-up", case="broker", side=Side.ANTIPODE, values={"ready_s": 0.55}),
]


def test_the_table_names_section_and_case_once_and_says_what_was_missed() -> None:
    assert report.table(rows(SAMPLES)) == [
        ["produce", "librdkafka, 1 KB", "throughput", "MB/s", "1,234", "617", "2.00", "≥ 1x", "yes"],
        ["", "", "broker CPU", "s/GB", "1.2", "1.6", "0.75", "≤ 0.65x", "NO"],
        ["start-up", "broker", "start to first answer", "s", "0.55", "-", "-", "< 0.6", "yes"],
    ]


def test_the_same_case_of_another_section_is_named_again() -> None:
    other = Sample(section="consume", case="librdkafka, 1 KB", side=Side.ANTIPODE, values={"mb_per_s": 1})
    assert [line[:2] for line in report.table(rows([SAMPLES[0], other]))] == [
        ["produce", "librdkafka, 1 KB"],
        ["", ""],
        ["consume", "librdkafka, 1 KB"],
    ]


def test_the_summary_counts_targets_that_could_be_judged() -> None:
    assert report.summary(rows(SAMPLES)) == "2 of 3 targets reached"
    assert report.summary(rows(SAMPLES[:1])) == "0 of 0 targets reached"


def test_the_noise_counts_other_programs_and_what_the_host_withheld() -> None:
    assert report.noise(SAMPLES) == "load of others while measuring: median 0.25 cores, highest 1.00 cores"
    assert report.noise([]) == "nothing was measured"


def test_the_document_keeps_every_sample_under_the_time_at_which_it_began(tmp_path: Path) -> None:
    document = report.document(began="2026-01-02T03:04:05Z", took_s=1.23, machine={}, options={}, samples=SAMPLES)
    file = report.write(document, tmp_path / "results")
    assert file.name == "20260102T030405Z.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert stored["took_s"] == 1.2
    assert [sample["side"] for sample in stored["samples"]] == ["antipode", "peer", "antipode"]
    assert stored["rows"][0]["ratio"] == 2
