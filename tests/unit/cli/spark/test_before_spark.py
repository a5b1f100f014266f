"""What commands refuse before they start Spark: brokers that do not answer, and archives that are
not there.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runtime.process import OperationalFailure
from spark_jobs.auditing.audit_run import AuditRequest
from tests.support.embedded.commands import app
from tests.support.processes.ports import LOOPBACK, free_port

HINT = "is it running, is the address right, and does security.protocol of --command-config fit this listener?"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("spark_jobs.session.session", started)
    monkeypatch.setattr("cli.shared.brokers.ANSWERED_WITHIN_MS", 300)


@pytest.fixture
def dead() -> str:
    """An address at which nothing listens."""
    return f"{LOOPBACK}:{free_port()}"


def refused(*arguments: str) -> str:
    """The error of a command that ends with 1."""
    ended = CliRunner().invoke(app, list(arguments))
    assert ended.exit_code == 1, (ended.output, ended.exception)
    return ended.output


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_an_archive_names_brokers_that_do_not_answer_and_writes_nothing(
    tmp_path: Path, dead: str, dry: tuple[str, ...]
) -> None:
    to = tmp_path / "archive"
    output = refused("archive", "--bootstrap-server", dead, "--to", to.as_uri(), *dry)
    assert f"no broker at {dead} answers" in output
    assert HINT in output
    assert not to.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("pipeline", "run", "word-count", "--input-topic", "a", "--output-topic", "b", "--checkpoint", "c", "--once"),
        ("pipeline", "run", "follow-topics", "--topics", "a", "--to", "b", "--checkpoint", "c", "--once"),
        ("archive", "verify", "--from", "/nowhere"),
    ],
)
def test_commands_name_brokers_that_do_not_answer(command: tuple[str, ...], dead: str) -> None:
    assert f"no broker at {dead} answers" in refused(*command, "--bootstrap-server", dead)


def test_a_pipeline_that_takes_its_brokers_from_a_file_asks_those(tmp_path: Path, dead: str) -> None:
    file, other = tmp_path / "brokers", f"{LOOPBACK}:{free_port()}"
    file.write_text(f"{other}\n")
    given = ("--topics", "a", "--to", "b", "--checkpoint", "c", "--brokers", str(file))
    output = refused("pipeline", "run", "follow-topics", "--bootstrap-server", dead, *given)
    assert f"no broker at {other} answers" in output


def environment_of(directory: Path, **addresses: str) -> str:
    """An environment file of two sites and their link."""
    file = directory / "environment.json"
    sites = {name: {"bootstrap_servers": at, "grpc": [at], "processes": []} for name, at in addresses.items()}
    file.write_text(json.dumps({"sites": sites, "links": [{"name": "a-b", "source": "a", "target": "b"}]}))
    return str(file)


def test_an_audit_names_both_sites_when_none_answers(tmp_path: Path, dead: str) -> None:
    other = f"{LOOPBACK}:{free_port()}"
    file = environment_of(tmp_path, a=dead, b=other)
    output = refused("audit", "run", "a-b", "--environment", file, "--state", str(tmp_path / "state"))
    for site, address in (("a", dead), ("b", other)):
        assert f"site {site}: no broker at {address} answers" in output


@pytest.mark.parametrize("away", [{}, {"b": "site b: no broker answers."}])
def test_an_audit_refuses_a_topic_of_counts_that_no_site_has_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: dict[str, str]
) -> None:
    async def problems(_: object) -> dict[str, str]:
        return away

    asked: list[str] = []

    def names(servers: str) -> list[str]:
        asked.append(servers)
        return ["counts", "orders"]

    monkeypatch.setattr("cli.spark.audit.problems_of_sites", problems)
    monkeypatch.setattr("spark_jobs.auditing.audit_run.topic_names", names)
    state = tmp_path / "state"
    given = ("--environment", environment_of(tmp_path, a="a:1", b="b:1"), "--state", str(state))
    output = refused("audit", "run", "a-b", *given, "--counts-topic", "count")
    places = "site a" if away else "sites a, b"
    assert f"--counts-topic 'count': not at {places}, or this user may not describe it; accepted: " in output
    assert asked == ["a:1"] + ["b:1"] * (not away)
    assert not state.exists()
    AuditRequest(sites={}, state=state, topics=".*", counts_topic="counts").check({"a": "a:1"})


def test_an_audit_refuses_an_expression_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OperationalFailure, match=r"--topics '\[': .*; accepted: a regular expression"):
        AuditRequest(sites={}, state=tmp_path, topics="[").check({})


@pytest.mark.parametrize(
    "command",
    [
        ("archive", "verify", "--from"),
        ("archive", "expire", "--bytes-max", "0", "--from"),
        ("restore", "--from"),
    ],
)
def test_a_missing_archive_and_a_wrong_address_are_named(command: tuple[str, ...], tmp_path: Path) -> None:
    nothing, file = (tmp_path / "nothing").as_uri(), tmp_path / "file"
    file.touch()
    assert f"there is no archive at {nothing}: it holds no manifest" in refused(*command, nothing)
    assert f"the archive {file}/below cannot be used: " in refused(*command, f"{file}/below")
    assert "accepted: file:///dir, hdfs://host:port/dir, s3a://bucket/dir" in refused(*command, "ftp://host/archive")


def test_wrong_brokers_are_named(tmp_path: Path) -> None:
    output = refused("archive", "--bootstrap-server", "host", "--to", tmp_path.as_uri())
    assert "the brokers 'host' are not usable: 'host' has no port; accepted: host:port" in output


def test_an_audit_names_the_option_that_its_state_fixes(tmp_path: Path) -> None:
    request = AuditRequest(sites={}, state=tmp_path, topics=".*", counts_topic="counts")
    request.keep_settings()
    request.keep_settings()
    with pytest.raises(OperationalFailure, match="an audit with --counts-topic 'counts', not 'others'"):
        replace(request, counts_topic="others").keep_settings()
