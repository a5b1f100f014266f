"""Passwords of a mirror's and a bridge's logins are not in their logs at level DEBUG: while they
work, after wrong passwords with the stacks of the errors, and when a setting stops them.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import SecuredBroker
from tests.support.pairs.translate_links import ROOT, create_topic, produce_batches, total_end
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes, RunningProcess
from tests.support.processes.secured_kafka import PLAIN_MODULE
from wire.client.client_errors import KafkaClientError

pytestmark = pytest.mark.integration

RIGHT, WRONG, OF_STORE = (f"planted{kind}{secrets.token_hex(12)}" for kind in ("Right", "Wrong", "OfStore"))
TOPIC = "orders"
OF_BRIDGE = "client."


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> SecuredBroker:
    """A broker whose user alice has a planted password."""
    line = f'{PLAIN_MODULE} required user_alice="{RIGHT}";'
    directory = tmp_path_factory.mktemp("planted")
    return SecuredBroker(session_processes, directory, **{"listener.name.login.plain.sasl.jaas.config": line})


def login(password: str, prefix: str) -> dict[str, str]:
    """A client's options for the listener LOGIN; those of a bridge have librdkafka's names."""
    line = f'{PLAIN_MODULE} required username="alice" password="{password}";'
    user = {"sasl.jaas.config": line}
    if prefix == OF_BRIDGE:
        user = {"sasl.username": "alice", "sasl.password": password}
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **user}
    return {f"{prefix}{key}": value for key, value in given.items()}


def started(processes: Processes, directory: Path, kind: str, properties: Mapping[str, str]) -> RunningProcess:
    """A daemon that logs everything."""
    directory.mkdir()
    file = directory / f"{kind}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    command = [sys.executable, "-m", "cli.main", kind, "--config", str(file), "--log-level", "debug"]
    return processes.run_command(kind, command, directory, {**os.environ, "PYTHONPATH": str(ROOT)})


def mirror(broker: SecuredBroker, at_source: str) -> dict[str, str]:
    """The file of a mirror from the broker to itself."""
    return {
        "antipode.allow.plaintext": "true",
        "link.name": "a-b",
        "link.mode": "translate",
        "source.alias": "a",
        "target.alias": "b",
        "source.bootstrap.servers": broker.at("LOGIN"),
        "target.bootstrap.servers": broker.at("LOGIN"),
        "replication.factor": "1",
        "antipode.metrics.listener": f"{LOOPBACK}:0",
        "antipode.grpc.listener": f"{LOOPBACK}:0",
        "topics": TOPIC,
        **login(at_source, "source."),
        **login(RIGHT, "target."),
    }


def leaks(text: str) -> list[str]:
    return [name for name, secret in (("right", RIGHT), ("wrong", WRONG), ("store", OF_STORE)) if secret in text]


async def test_a_mirror_repeats_no_password(broker: SecuredBroker, processes: Processes, tmp_path: Path) -> None:
    await create_topic(broker.at("CLIENT"), TOPIC)
    await produce_batches(broker.at("CLIENT"), TOPIC, 0, 0, 5)
    expected = await total_end(broker.at("CLIENT"), TOPIC, 1)
    working = started(processes, tmp_path / "working", "mirror", mirror(broker, RIGHT))
    refused = started(processes, tmp_path / "refused", "mirror", mirror(broker, WRONG))

    async def is_copied() -> bool:
        try:
            return await total_end(broker.at("CLIENT"), f"a.{TOPIC}", 1) == expected
        except KafkaClientError:  # the copy is not created yet
            return False

    await eventually(is_copied, within_ms=120_000)
    await eventually(lambda: "Invalid username or password" in refused.log_text(), within_ms=120_000)
    for process in (working, refused):
        process.stop()
        assert "process=mirror" in process.log_text()
        assert not leaks(process.log_text())


async def test_a_bridge_repeats_no_password(broker: SecuredBroker, processes: Processes, tmp_path: Path) -> None:
    for name, password in (("working", RIGHT), ("refused", WRONG)):
        http_port, metrics_port = free_ports(2)
        properties = {
            "bootstrap.servers": broker.at("LOGIN"),
            "listeners": f"http://{LOOPBACK}:{http_port}",
            "antipode.metrics.listener": f"{LOOPBACK}:{metrics_port}",
            **login(password, OF_BRIDGE),
        }
        bridge = started(processes, tmp_path / name, "bridge", properties)
        answers: list[httpx.Response] = []

        async def asked(port: int = http_port, found: list[Any] = answers) -> bool:
            async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
                try:
                    found.append(await http.get(f"http://{LOOPBACK}:{port}/topics"))
                except httpx.HTTPError:  # it does not listen yet
                    return False
            return True

        await eventually(asked, within_ms=120_000)
        assert (answers[-1].status_code == 200) is (password == RIGHT), answers[-1].text
        bridge.stop()
        assert "process=bridge" in bridge.log_text()
        assert not leaks(bridge.log_text() + answers[-1].text)


async def test_a_setting_that_stops_a_mirror_is_named_without_a_password(
    broker: SecuredBroker, processes: Processes, tmp_path: Path
) -> None:
    no_store = tmp_path / "no-store"
    no_store.write_text("this is no key store")
    wrong = {
        "source.security.protocol": "SASL_SSL",
        "source.ssl.keystore.location": str(no_store),
        "source.ssl.keystore.password": OF_STORE,
    }
    process = started(processes, tmp_path / "daemon", "mirror", {**mirror(broker, RIGHT), **wrong})
    await eventually(lambda: not process.is_running, within_ms=120_000)
    assert process.exit_code
    assert "ssl.keystore.location" in process.log_text()
    assert not leaks(process.log_text())
