"""Pipelines as programs. Promised: a job says which topics it needs, those that it writes too; a
query leaves lost records out on request alone; a job that fails under spark-submit ends with one
line and no stack trace; each job has a page.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from runtime.process import OperationalFailure
from spark_jobs.connector.topic_frames import TopicSource
from spark_jobs.pipelines.catalogue import PIPELINES, pipeline, submitted, topic_parser

DOCS = Path(__file__).parents[4] / "docs"
SECTIONS = ("Input", "What it guarantees", "At a failover", "What it does not defend against")
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


@pytest.mark.parametrize("has_option", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("word-count", ("--input-topic", "a", "--output-topic", "b", "--checkpoint", "c", "--once")),
        ("log-documents", ("--topic", "a", "--to", "d", "--checkpoint", "c", "--once")),
        ("road-ingest", ("--to", "d", "--checkpoint", "c", "--once")),
    ],
)
def test_a_query_continues_without_lost_records_on_request_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, options: tuple[str, ...], has_option: bool
) -> None:
    class SourceSeen(Exception):
        pass

    def seen(_spark: object, source: TopicSource) -> None:
        raise SourceSeen(source.options["failOnDataLoss"])

    job = pipeline(name).module
    monkeypatch.setattr(job, "stream_of", seen)
    monkeypatch.setattr(job, "run_queries", lambda start, *_: start())
    given = job.parser().parse_args([*BROKERS, *options, *(["--skip-lost"] if has_option else [])])
    with pytest.raises(SourceSeen, match="false" if has_option else "true"):
        job.run(None, given)


def pages_of_jobs() -> dict[str, Path]:
    """The page of each job, from the table of the index."""
    rows = [line.split("|") for line in (DOCS / "pipelines.md").read_text(encoding="utf-8").splitlines()]
    found = {}
    for row in rows:
        link = re.search(r"\]\((pipelines/[\w-]+\.md)\)", row[1]) if len(row) == 6 else None
        if link is not None:
            found.update(dict.fromkeys(re.findall(r"`([\w-]+)`", row[2]), DOCS / link[1]))
    return found


def test_each_job_has_a_page_with_its_command_and_what_a_reader_looks_for() -> None:
    pages = pages_of_jobs()
    assert set(pages) == {one.name for one in PIPELINES}
    for name, path in pages.items():
        text = path.read_text(encoding="utf-8")
        assert f"\n    antipode pipeline run {name} " in text, (name, path)
        assert [heading for heading in SECTIONS if f"\n## {heading}\n" not in text] == [], path
    assert {path.name for path in (DOCS / "pipelines").glob("*.md")} == {path.name for path in pages.values()}


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
