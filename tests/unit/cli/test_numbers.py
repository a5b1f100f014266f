"""Numbers that no request can hold are a usage error, before anything is asked."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests.support.embedded.commands import app

HUGE = "99999999999999999999"
CREATE = "links create x --source a --target b --source-bootstrap x:1 --target-bootstrap y:1 --site a=x:1 --site b=y:1"


@pytest.mark.parametrize(
    "line",
    [
        "topics create orders --partitions",
        "topics create orders --replication-factor",
        "topics create orders --replica-assignment",
        "topics delete-records orders --yes --before 1 --partition",
        "consume orders --partition 0 --offset",
        "consume orders --group g --session-timeout-ms",
        "brokers unregister --yes",
        f"{CREATE} --sync degrade --sync-timeout-ms",
        f"{CREATE} --sync bound --sync-bound-ms",
        "links alter a-b --site a=x:1 --sync bound --sync-bound-ms",
        "links alter a-b --site a=x:1 --lease-ms",
        "links alter a-b --site a=x:1 --failover-max-lag-records",
        "links alter a-b --site a=x:1 --failover-max-lag-ms",
        "links verify a-b --mirror x:1 --last",
        "consume orders --fetchers",
    ],
)
def test_a_number_out_of_range_is_a_usage_error(line: str) -> None:
    ended = CliRunner().invoke(app, [*line.split(), HUGE], env={"ANTIPODE_BOOTSTRAP_SERVER": "127.0.0.1:1"})
    assert ended.exit_code == 2, ended.exception


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("up --brokers 0", "'--brokers': 0: input should be greater than or equal to 1"),
        ("links create a-b --lease-ms one", "'--lease-ms': one: input should be a valid integer"),
        ("brokers unregister -- -7", "'broker': -7: input should be greater than or equal to 0"),
    ],
)
def test_an_unusable_number_is_named_with_its_option_and_what_is_accepted(line: str, message: str) -> None:
    ended = CliRunner().invoke(app, line.split(), env={"COLUMNS": "200"})
    assert ended.exit_code == 2, ended.exception
    assert message in ended.stderr
