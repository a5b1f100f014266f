"""Options that name sites: both forms give the same result, and an unusable value is a usage error
that names the accepted ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from cli.shared.sites import agents, environment_file, needed_environment


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _environment(file: Path) -> Path:
    site = {"bootstrap_servers": "127.0.0.1:9092", "grpc": ["127.0.0.1:9190"], "processes": []}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"sites": {"a": site, "b": {**site, "grpc": ["127.0.0.1:9290"]}}}))
    return file


def test_addresses_come_from_the_environment_and_an_option_wins(tmp_path: Path) -> None:
    file = _environment(tmp_path / "environment.json")
    assert agents(file, None) == {"a": ("127.0.0.1:9190",), "b": ("127.0.0.1:9290",)}
    assert agents(file, ["b=h:1, h:2"]) == {"a": ("127.0.0.1:9190",), "b": ("h:1", "h:2")}


def test_options_alone_do_not_look_for_an_environment(tmp_path: Path) -> None:
    _environment(tmp_path / "out/sites/environment.json")
    assert agents(None, ["a=h:1"]) == {"a": ("h:1",)}


def test_the_environment_that_up_leaves_is_found_without_an_option(tmp_path: Path) -> None:
    _environment(tmp_path / "out/sites/environment.json")
    assert environment_file(None) == needed_environment(None) == Path("out/sites/environment.json")
    assert set(agents(None, None)) == {"a", "b"}


@pytest.mark.parametrize("text", ["a", "a=", "=h:1", "a=h", "a=h:x", "a=h:70000"])
def test_a_site_that_cannot_be_read_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        agents(None, [text])
    assert ended.value.exit_code == 2
    assert "name=host:port" in capsys.readouterr().err


def test_no_word_on_where_the_sites_are_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        agents(None, None)
    assert ended.value.exit_code == 2
    with pytest.raises(typer.Exit):
        needed_environment(None)
    assert "--environment" in capsys.readouterr().err
