"""Pipelines as programs. Promised: a job says which topics it needs, those that it writes too, and
a job that fails under spark-submit ends with one line and no stack trace.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from runtime.process import OperationalFailure
from spark_jobs.pipelines.catalogue import pipeline, submitted, topic_parser

BROKERS = ("--bootstrap-server", "127.0.0.1:9092")


@pytest.mark.parametrize(
    ("name", "options", "needed"),
    [
        ("files-to-topic", ("--from", "texts", "--topic", "lines"), ["lines"]),
        ("trigger-delay", ("--topic", "delays"), ["delays"]),
        ("log-produce", ("--topic", "lines"), ["lines"]),
        ("road-produce", ("--topic", "road-data"), ["road-data"]),
        ("follow-topics", ("--topics", "a, b", "--to", "x", "--checkpoint", "c"), ["a", "b"]),
        ("word-count", ("--input-topic", "a", "--output-topic", "b", "--checkpoint", "c"), ["a", "b"]),
    ],
)
def test_a_job_names_the_topics_that_have_to_be_there(name: str, options: tuple[str, ...], needed: list[str]) -> None:
    parser = pipeline(name).module.parser()
    assert parser.topics_of(parser.parse_args([*BROKERS, *options])) == needed


def test_a_submitted_job_that_fails_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(spark: object, given: argparse.Namespace) -> str:
        raise OperationalFailure(f"no broker at {given.bootstrap_server} answers")

    monkeypatch.setattr("spark_jobs.pipelines.catalogue.session", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="1"):
        submitted(topic_parser("A job."), failing, BROKERS)
    assert capsys.readouterr().err == "error: no broker at 127.0.0.1:9092 answers\n"


@pytest.mark.parametrize("content", [None, "[]", "{", '{"a": "far"}'])
def test_a_report_refuses_a_file_without_places_and_a_directory_without_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    parser, places = pipeline("road-report").module.parser(), tmp_path / "places.json"
    if content is not None:
        places.write_text(content)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--from", str(tmp_path), "--places", str(places)])
    assert "has no JSON object of kilometres by checkpoint id" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--from", str(tmp_path)])
    assert f"--from {tmp_path} has no tables of road-ingest" in capsys.readouterr().err
    (tmp_path / "stored").mkdir()
    places.write_text('{"a": 12.5}')
    assert parser.parse_args(["--from", str(tmp_path), "--places", str(places)]).places == {"a": 12.5}
