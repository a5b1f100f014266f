"""Our own commands at a secured broker, with the options of `--command-config`: those that use
librdkafka and those that use our own client.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.lone_brokers.secured_broker import BROKER, BROKER_PASSWORD, SecuredBroker, jaas
from tests.support.processes.fork_server import run_antipode

pytestmark = pytest.mark.integration


def test_commands_log_in_by_the_options_of_their_file(session_processes: Any, tmp_path: Path) -> None:
    broker = SecuredBroker(session_processes, tmp_path)
    file = tmp_path / "command.properties"
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(broker.certificates.authority),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas("SCRAM-SHA-256", BROKER, BROKER_PASSWORD),
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    door = ("--bootstrap-server", broker.at("SECURED"), "--command-config", str(file))

    def run(*arguments: str, given: str = "") -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPODE_ENV")}
        ended = run_antipode(*arguments, *door, given=given, environment=environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    run("topics", "create", "orders", "--partitions", "1")
    run("produce", "orders", given="one\ntwo\n")
    assert run("consume", "orders", "--from-beginning", "--max-messages", "2").split() == ["one", "two"]
    assert "orders" in run("topics", "list")

    run("users", "add", "frank", "--mechanism", "scram-sha-512", "--dry-run", given="frank's\n")
    assert run("users", "list", "--output", "json").strip() == "[]"
    run("users", "add", "frank", "--mechanism", "scram-sha-512", "--iterations", "8192", given="frank's\n")
    (listed,) = json.loads(run("users", "list", "--output", "json"))
    assert listed == {"name": "frank", "mechanisms": {"SCRAM-SHA-512": 8192}}
    login = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas("SCRAM-SHA-512", "frank", "frank's"),
    }
    of_broker = file.read_text()
    file.write_text("".join(f"{key}={value}\n" for key, value in {**options, **login}.items()))
    assert "orders" in run("topics", "list")
    file.write_text(of_broker.replace(BROKER_PASSWORD, "wrong"))
    for command, reason in (
        (("topics", "list"), "error: no login at 127.0.0.1:"),
        (("users", "list"), "sasl_authenticate: login refused: "),
    ):
        refused = run_antipode(*command, *door)
        assert refused.returncode == 1
        assert reason in refused.stderr
    file.write_text(of_broker)
    run("users", "remove", "frank")
    assert run("users", "list", "--output", "json").strip() == "[]"
