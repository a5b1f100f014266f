"""README promises of every command a help with an example, and `--output json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.main import DAEMONS
from runtime import compiled
from tests.support.embedded.commands import app
from wire.client.connection import installed_version

SILENT = ("bridge", "broker", "controller", "mirror")
"""Speak through their logs and metrics."""
SHOWN_LIVE = ("demo",)


def _commands(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in getattr(node, "commands", {}).items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path}{name} ")
        if getattr(command, "invoke_without_command", True):
            yield f"{path}{name}", command


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_has_an_example_and_speaks_json(name: str) -> None:
    command = COMMANDS[name]
    assert f"Example: antipode {name}" in command.help
    if name not in (*SILENT, *SHOWN_LIVE):
        assert "--output" in [option for parameter in command.params for option in parameter.opts]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - DAEMONS))
def test_a_command_takes_the_credentials_of_a_file(name: str) -> None:
    assert "--command-config" in [option for parameter in COMMANDS[name].params for option in parameter.opts]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_shows_its_help(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "--help"])
    assert shown.exit_code == 0, shown.exception
    assert "Example:" in shown.output


def test_the_command_says_which_release_it_is() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert shown.exit_code == 0
    assert shown.output == f"antipode {installed_version()} (compiled modules: {compiled.describe()})\n"
