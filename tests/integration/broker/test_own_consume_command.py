"""`antipode consume` at a real broker."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.embedded.commands import app
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.lone_brokers.lone_topics import new_topic, produce
from tests.support.processes.fork_server import run_antipode
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> LoneBroker:
    """One for the module, whose groups do not wait for more members."""
    return LoneBroker(session_processes, tmp_path_factory.mktemp("consume"), group_initial_rebalance_delay_ms="0")


@pytest.fixture
async def topic(broker: LoneBroker) -> str:
    return await new_topic(broker)


class Command:
    """`antipode consume` as a person types it."""

    def __init__(self, broker: LoneBroker) -> None:
        self._broker = broker

    def line(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "cli.main", "consume", "-b", self._broker.bootstrap, *arguments]

    def run(self, *arguments: str) -> str:
        ended = run_antipode("consume", "-b", self._broker.bootstrap, *arguments)
        assert ended.returncode == 0, (ended.stdout, ended.stderr)
        return ended.stdout

    def documents(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(*arguments, "-o", "json").splitlines()]


async def test_the_command_reads_by_partition_and_offset_and_by_time(broker: LoneBroker, topic: str) -> None:
    await produce(broker, topic, 0, 40)
    command = Command(broker)
    found = command.documents(topic, "--partition", "1", "--offset", "5", "--max-messages", "3")
    assert [(row["partition"], row["offset"], row["value"]) for row in found] == [
        (1, 5, "21"),
        (1, 6, "25"),
        (1, 7, "29"),
    ]
    middle = found[1]["timestamp_ms"]
    later = command.documents(topic, "--partition", "1", "--from", str(middle), "--max-messages", "1")
    assert later[0]["timestamp_ms"] >= middle
    everything = command.run(topic, "--from-beginning", "--max-messages", "40")
    assert sorted(map(int, everything.splitlines())) == list(range(40))


async def test_the_command_ends_when_nothing_has_come_for_a_while(broker: LoneBroker, topic: str) -> None:
    assert Command(broker).run(topic, "--from-beginning", "--timeout-ms", "500") == ""


async def test_a_warning_is_not_among_the_records(broker: LoneBroker, topic: str) -> None:
    await produce(broker, topic, 0, 4)
    position = (topic, "--partition", "0", "--offset", "99", "--from-beginning", "--timeout-ms", "500")
    assert [row["offset"] for row in Command(broker).documents(*position)] == [0]


async def test_the_command_commits_what_it_printed_and_no_more(broker: LoneBroker, topic: str) -> None:
    await produce(broker, topic, 0, 40)
    arguments = (topic, "--group", topic, "--from-beginning", "--max-messages")
    command = Command(broker)
    first = [row["value"] for row in command.documents(*arguments, "13")]
    second = [row["value"] for row in command.documents(*arguments, "27")]
    assert sorted(map(int, first + second)) == list(range(40))


async def test_the_command_ends_in_good_order_when_it_is_asked_to(broker: LoneBroker, topic: str) -> None:
    await produce(broker, topic, 0, 8)
    line = Command(broker).line(topic, "--group", topic, "--from-beginning")
    process = await asyncio.create_subprocess_exec(
        *line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY
    )
    assert process.stdout is not None
    for _ in range(8):
        await process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, complaint = await process.communicate()
    assert process.returncode == 0, complaint
    async with KafkaClient(broker.bootstrap) as client:
        assert sum(offset.offset for offset in (await client.committed(topic)).values()) == 8


def test_a_chroot_that_does_not_exist_is_one_message(zookeeper_connect: str) -> None:
    ended = run_antipode("consume", "t", "--zookeeper", f"{zookeeper_connect}/nothing/here", "--group", "g")
    assert ended.returncode == 1
    assert "accepted is host:port and a chroot that exists" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_command_says_what_goes_together(broker: LoneBroker) -> None:
    topic = asyncio.run(new_topic(broker))

    def reported(*arguments: str, code: int) -> str:
        ended = CliRunner().invoke(app, ["consume", "-b", broker.bootstrap, *arguments])
        assert ended.exit_code == code, ended.output
        return " ".join(ended.output.split())

    assert "name topics" in reported(code=2)
    assert "--partition needs exactly one topic" in reported(topic, "--partition", "1", "--group", "g", code=2)
    assert "accepted is a regular expression" in reported("--whitelist", "(", code=2)
    assert "'never' is not a reset policy" in reported(topic, "--reset", "never", code=2)
    assert "has no partition 9" in reported(topic, "--partition", "9", code=1)
    assert "topic nothing-here: not there" in reported("nothing-here", "--max-messages", "1", code=1)
    lost = reported(topic, "--partition", "0", "--offset", "99", "--reset", "fail", code=1)
    assert "offset 99 is not in the log, which is 0 to 0" in lost
