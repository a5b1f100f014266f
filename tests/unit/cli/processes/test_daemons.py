"""A command checks a daemon's configuration before it starts anything. One message names a wrong
key, its value and what is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from cli.processes import daemons
from runtime.process import ExitCode

BROKER = {
    "node.id": "1",
    "listeners": "CLIENT://127.0.0.1:0",
    "log.dirs": "data",
    "zookeeper.connect": "127.0.0.1:2181",
    "antipode.site.name": "a",
    "antipode.site.number": "0",
    "antipode.allow.plaintext": "true",
}
BRIDGE = {"bootstrap.servers": "127.0.0.1:9092"}
MIRROR = {"link.name": "a-b", "site.agents": "127.0.0.1:9190", "antipode.allow.plaintext": "true"}


def _file(directory: Path, properties: dict[str, str]) -> Path:
    file = directory / "daemon.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return file


@pytest.mark.parametrize(
    ("command", "properties"),
    [
        (daemons.broker, BROKER),
        (daemons.controller, BROKER),
        (daemons.mirror, MIRROR),
        (daemons.bridge, BRIDGE),
    ],
)
def test_a_dry_run_checks_the_file_and_starts_nothing(
    command: Callable[..., None], properties: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(typer.Exit) as ended:
        command(_file(tmp_path, properties), is_dry_run=True)
    assert ended.value.exit_code == 0


@pytest.mark.parametrize(
    ("command", "properties", "override", "words"),
    [
        (daemons.broker, BROKER, "node.id=minus one", ("node.id", "minus one")),
        (daemons.broker, BROKER, "broker.id=7", ("broker.id", "7", "node.id=1")),
        (daemons.broker, BROKER, "listeners=nowhere", ("listeners", "nowhere", "NAME://host:port")),
        (daemons.controller, BROKER, "antipode.site.name=a b", ("antipode.site.name", "a b", "letters")),
        (daemons.mirror, MIRROR, "num.streams=0", ("num.streams", "0", "1 to 64")),
        (daemons.mirror, MIRROR, "whitelist=(", ("whitelist", "(")),
        (daemons.bridge, BRIDGE, "listeners=nowhere", ("listeners", "nowhere", "http://host:port")),
        (daemons.bridge, BRIDGE, "producer.acks=many", ("producer.acks", "many")),
        (daemons.mirror, MIRROR, "no separator", ("--override", "key=value")),
    ],
)
def test_a_bad_setting_is_named_with_what_is_accepted(
    command: Callable[..., None],
    properties: dict[str, str],
    override: str,
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended:
        command(_file(tmp_path, properties), override=[override])
    assert ended.value.exit_code == 2
    reported = capsys.readouterr().err
    assert all(word in reported for word in words), reported
    assert "Traceback" not in reported


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        daemons.broker(tmp_path / "nowhere.properties")
    assert ended.value.exit_code == 2
    assert "nowhere.properties" in capsys.readouterr().err


def test_all_wrong_settings_are_named_with_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(
        tmp_path, {**BROKER, "num.partitions": "-5", "antipode.site.number": "x", "auto.create.topics.enable": "?"}
    )
    with pytest.raises(typer.Exit) as ended:
        daemons.broker(file, is_dry_run=True)
    assert ended.value.exit_code == 2
    reported = capsys.readouterr().err
    for named in ("num.partitions='-5'", "antipode.site.number='x'", "auto.create.topics.enable='?'"):
        assert f"{file}: configuration {named} is not usable" in reported


def test_an_unexpected_error_of_a_file_is_logged_with_its_stack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> ExitCode:
        raise FileNotFoundError(2, "No such file or directory", "/somewhere")

    async def main(_: object) -> None:
        """Not called."""

    monkeypatch.setattr(daemons, "run_daemon", fail)
    with pytest.raises(FileNotFoundError):
        daemons._run(main, lambda: None, config=tmp_path, is_dry_run=False, background=None)
    assert "Traceback" in caplog.text
