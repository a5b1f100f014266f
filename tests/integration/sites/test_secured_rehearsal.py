"""`antipode rehearse` on a secured pair: the sandbox reaches ZooKeeper over TLS, and its clones are
behind a login as the standby's own logs are.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from runtime.configuration import read_properties
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.embedded.embedded_sites import FRONT_DOOR, LINK, REPOSITORY, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends
from wire.client.librdkafka_options import librdkafka_options
from wire.client.security import load_security

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 500


def refusal(bootstrap: str, options: Mapping[str, Any]) -> list[int]:
    """The codes of the errors that keep a client from the sandbox's topics."""
    errors: list[KafkaError] = []
    client = AdminClient({"bootstrap.servers": bootstrap, **options, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    while not errors:
        client.poll(1)
    return [error.code() for error in errors]


def killed_while_it_loads(sites: EmbeddedSites) -> Path:
    """Run a rehearsal and `kill -9` it; the properties file of the broker that it leaves."""
    environment = str(sites.directory / "environment.json")
    command = [*FRONT_DOOR, "rehearse", LINK, "--to", "b", "--environment", environment]
    command += ["--command-config", sites.document["security"]["command_config"]]
    running = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    seen = []
    with running, running.stderr as lines:
        for line in lines:
            seen.append(line.strip())
            if seen[-1] == "load":
                running.kill()
    assert "load" in seen, seen
    (found,) = sites.directory.rglob(".antipode-rehearsal/broker/server.properties")
    return found


@pytest.mark.long
async def test_the_clones_of_a_secured_standby_are_behind_a_login(
    start_sites: SitesStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = start_sites("--secure")
    admin = load_security(read_properties(Path(sites.document["security"]["admin_client_config"])))
    monkeypatch.setattr("wire.client.security._OfThisProcess.security", admin)
    await create_topic(sites)
    records = [Record(value=f"{number}".encode(), partition=0) for number in range(RECORDS)]
    librdkafka_produce(sites.bootstrap("a"), TOPIC, records, settings={"acks": "all", **librdkafka_options(admin)})
    assert await equal_ends(sites) == {(TOPIC, 0): RECORDS}

    file = killed_while_it_loads(sites)
    assert file.stat().st_mode & 0o077 == 0, "it has passwords"
    properties = read_properties(file)
    bootstrap = properties["listeners"].removeprefix("CLIENT://")
    password = properties["listener.name.client.plain.sasl.jaas.config"].split('password="')[1].split('"')[0]
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "rehearsal"}
    allowed = AdminClient({"bootstrap.servers": bootstrap, **login, "sasl.password": password})
    assert TOPIC in allowed.list_topics(timeout=20).topics
    assert KafkaError._AUTHENTICATION in refusal(bootstrap, {**login, "sasl.password": "wrong"})
    refusal(bootstrap, {})

    done = sites.command("rehearse", LINK, "--to", "b", "--report-dir", str(tmp_path), "--output", "json")
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert "had left" in found["steps"][0]["detail"]
    assert all(one["is_met"] for one in found["verdicts"])
