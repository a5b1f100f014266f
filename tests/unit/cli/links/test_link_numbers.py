"""Numbers of `antipode links` that are out of range: the message names option, number and range."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests.support.embedded.commands import app

ALTER = "links alter a-b --site a=x:1"
CREATE = "links create x --source a --target b --source-bootstrap x:1 --target-bootstrap y:1 --site a=x:1 --site b=y:1"


@pytest.mark.parametrize("command", [ALTER, CREATE])
@pytest.mark.parametrize(
    ("option", "number", "accepted"),
    [
        ("--lease-ms", 5, "0 (no lease) and 1000 to 600000"),
        ("--lease-ms", -1, "0 (no lease) and 1000 to 600000"),
        ("--lease-ms", 600_001, "0 (no lease) and 1000 to 600000"),
        ("--failover-max-lag-records", -1, "0 (no bound) and 1 to 9223372036854775807"),
        ("--failover-max-lag-ms", 1 << 31, "0 (no bound) and 1 to 2147483647"),
        ("--sync degrade --sync-timeout-ms", 0, "1 to 2147483647"),
        ("--sync degrade --sync-timeout-ms", 1 << 31, "1 to 2147483647"),
        ("--sync bound --sync-bound-ms", 0, "1 to 2147483647"),
    ],
)
def test_the_message_names_the_option_the_number_and_what_is_accepted(
    command: str, option: str, number: int, accepted: str
) -> None:
    ended = CliRunner().invoke(app, [*command.split(), *option.split(), str(number)], env={"COLUMNS": "200"})
    assert ended.exit_code == 2, ended.exception
    name = option.split()[-1]
    assert f"Invalid value for '{name}': {number}: accepted are {accepted}" in ended.stderr


@pytest.mark.parametrize("number", [0, 1_000, 600_000])
def test_numbers_of_the_range_are_accepted(number: int) -> None:
    ended = CliRunner().invoke(app, ["links", "alter", "a-b", "--lease-ms", str(number), "--sync-timeout-ms", "1"])
    assert "--sync-timeout-ms 1 is accepted with --sync degrade only" in ended.stderr, "the next check"


@pytest.mark.parametrize("command", [ALTER, CREATE])
@pytest.mark.parametrize("policy", ["--sync block", "--sync bound --sync-bound-ms 500", ""])
def test_the_timeout_of_degrade_is_refused_with_another_policy(command: str, policy: str) -> None:
    arguments = [*command.split(), *policy.split(), "--sync-timeout-ms", "700"]
    ended = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert ended.exit_code == 2, ended.exception
    assert "--sync-timeout-ms 700 is accepted with --sync degrade only: give both" in ended.stderr
