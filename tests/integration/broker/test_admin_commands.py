"""`antipode topics`, `configs` and `log-dirs` against one broker with two log directories: results,
dry runs, JSON, exit codes.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.fork_server import run_antipode
from tests.support.processes.processes import Processes

pytestmark = pytest.mark.integration

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> LoneBroker:
    folder = tmp_path_factory.mktemp("commands")
    return LoneBroker(session_processes, folder, log_dirs=f"{folder}/one,{folder}/two")


@pytest.fixture
def antipode(broker: LoneBroker) -> Command:
    """Runs a command; its JSON, its text, or (`code` above 0) its complaint."""

    def run(*arguments: str, code: int = 0) -> Any:
        ended = run_antipode(*arguments, "--bootstrap-server", broker.bootstrap)
        assert ended.returncode == code, ended.stdout + ended.stderr
        if code:
            return ended.stderr
        return json.loads(ended.stdout) if "json" in arguments else ended.stdout

    return run


@pytest.fixture
def topic(antipode: Command) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    antipode("topics", "create", name, "--partitions", "2")
    return name


def test_configs_of_a_topic_and_of_brokers_are_altered_and_shown_with_their_sources(
    antipode: Command, topic: str
) -> None:
    antipode("configs", "alter", "--topic", topic, "--set", "retention.ms=5000", "--dry-run")
    assert antipode("configs", "show", "--topic", topic, "-o", "json") == []
    antipode("configs", "alter", "--topic", topic, "--set", "retention.ms=5000")
    antipode("configs", "alter", "--all-brokers", "--set", "log.segment.bytes=1000000")
    shown = {row["config"]: row for row in antipode("configs", "show", "--topic", topic, "-o", "json")}
    assert (shown["retention.ms"]["value"], shown["retention.ms"]["source"]) == ("5000", "topic")
    assert (shown["segment.bytes"]["value"], shown["segment.bytes"]["source"]) == ("1000000", "all brokers, altered")
    antipode("configs", "alter", "--all-brokers", "--unset", "log.segment.bytes")
    rows = antipode("configs", "show", "--broker", "1", "--defaults", "-o", "json")
    (directories,) = [row for row in rows if row["config"] == "log.dirs"]
    assert (directories["source"], directories["is_dynamic"]) == ("properties file", False)


def test_a_config_that_cannot_be_altered_is_said_in_one_line(antipode: Command) -> None:
    assert "cannot change while brokers run" in antipode(
        "configs", "alter", "--broker", "1", "--set", "log.dirs=x", code=1
    )
    assert "one of --topic, --broker and --all-brokers" in antipode("configs", "show", code=2)


@pytest.mark.long
def test_a_log_is_moved_and_shown_where_it_is(antipode: Command, topic: str, broker: LoneBroker) -> None:
    librdkafka_produce(broker.bootstrap, topic, [Record(b"x" * 100, partition=0)] * 100)
    directories = antipode("log-dirs", "describe", "-o", "json")
    assert [directory["state"] for directory in directories] == ["online", "online"]

    def home() -> str:
        logs = antipode("log-dirs", "describe", "--topic", topic, "-o", "json")
        return next(log["directory"] for log in logs if log["partition"] == 0 and not log["is_coming"])

    other = next(directory["directory"] for directory in directories if directory["directory"] != home())
    antipode("log-dirs", "move", topic, "0", "--broker", "1", "--to", other, "--dry-run")
    assert home() != other
    antipode("log-dirs", "move", topic, "0", "--broker", "1", "--to", other)
    eventually_sync(lambda: home() == other)
    said = antipode("log-dirs", "move", topic, "0", "--broker", "1", "--to", "nowhere", code=1)
    assert "has no log directory nowhere" in said


def test_records_before_an_offset_or_a_time_are_deleted(antipode: Command, topic: str, broker: LoneBroker) -> None:
    # timestamps of today: half a minute after its start the broker deletes records that are older
    # than retention.ms
    first_ms = int(time.time() * 1000) - 60_000
    librdkafka_produce(
        broker.bootstrap,
        topic,
        [Record(b"x", partition=0, timestamp_ms=first_ms + number) for number in range(10)],
    )

    def starts() -> list[int]:
        described = antipode("topics", "describe", topic, "-o", "json")
        return [partition["start_offset"] for partition in described["partitions"]]

    planned = antipode("topics", "delete-records", topic, "--before", str(first_ms + 4), "--dry-run", "-o", "json")
    assert planned == {"topic": topic, "is_deleted": False, "before": {"0": 4, "1": 0}}
    assert starts() == [0, 0]
    antipode("topics", "delete-records", topic, "--before", str(first_ms + 4), "--yes")
    assert starts() == [4, 0]
    antipode("topics", "delete-records", topic, "--before", "6", "--partition", "0", "--yes")
    assert starts() == [6, 0]
    assert "accepted are offsets up to 10" in antipode(
        "topics", "delete-records", topic, "--before", "60", "--partition", "0", "--yes", code=1
    )
    assert "would be deleted" in antipode("topics", "delete", topic, "--dry-run")
    antipode("topics", "delete", topic, "--yes")
