"""Secrets that a test plants are nowhere to be seen after normal work and failed logins: not in
logs, audit lines, process lists, reports, descriptions, metrics or the files of daemons.
"""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from cli.credentials.authority import load_authority, make_authority, save_authority
from runtime.configuration import read_properties
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync
from wire.client.librdkafka_options import librdkafka_options
from wire.client.security import load_security

pytestmark = pytest.mark.integration

KEYSTORE, TOKEN_KEY, SCRAM, WRONG, WRONG_TOKEN = (
    f"planted{kind}{secrets.token_hex(12)}" for kind in ("Keystore", "TokenKey", "Scram", "Wrong", "WrongToken")
)


def write_key_store(file: Path, security: Path) -> None:
    """A PKCS12 file with a key and a certificate of the sites' authority."""
    text = load_authority(security).issue(common_name="a-1", uris=[], hosts=("127.0.0.1",)).encode()
    key, certificate = load_pem_private_key(text, None), x509.load_pem_x509_certificate(text)
    protected = BestAvailableEncryption(KEYSTORE.encode())
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"a-1", key, certificate, None, protected))  # type: ignore[arg-type]


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[EmbeddedSites]:
    """A secured site whose broker has a key store with a password, delegation tokens, and tokens of
    the control plane; daemons get the secrets from their environment.
    """
    starter = SitesStarter(tmp_path)
    (tmp_path / "sites-0" / "security").mkdir(parents=True)
    save_authority(make_authority("planted"), tmp_path / "sites-0" / "security")
    write_key_store(tmp_path / "broker.p12", tmp_path / "sites-0" / "security")
    (tmp_path / "tokens").write_text("")
    configs = {
        "ssl.keystore.location": tmp_path / "broker.p12",
        "ssl.keystore.password": "${env:PLANTED_KEYSTORE}",
        "delegation.token.secret.key": "${env:PLANTED_TOKEN_KEY}",
        "antipode.control.tokens.location": tmp_path / "tokens",
    }
    found = starter.prepared(
        *("--sites", "a", "--no-link", "--no-proxy", "--bridge", "--secure"),
        *(part for key, value in configs.items() for part in ("--broker-config", f"{key}={value}")),
        environment={"PLANTED_KEYSTORE": KEYSTORE, "PLANTED_TOKEN_KEY": TOKEN_KEY},
    )
    try:
        found.start_and_wait()
        yield found
    finally:
        starter.end_all()


def planted(sites: EmbeddedSites) -> dict[str, str]:
    """All secrets by their kind: those of the test, and those that `antipode up` created."""
    security = sites.directory / "security"
    made = {
        f"password of {user}": password for user, password in read_properties(security / "kafka.properties").items()
    }
    made["digest of ZooKeeper"] = read_properties(security / "zookeeper.properties")["password"]
    made["token"] = (security / "grafana.token").read_text().strip()
    for file in security.iterdir():
        key = file.read_text().partition("-----BEGIN PRIVATE KEY-----")[2].splitlines()[1:2]
        made |= {f"key of {file.name}": line for line in key}
    own = {
        "key store": KEYSTORE,
        "key of tokens": TOKEN_KEY,
        "SCRAM": SCRAM,
        "wrong": WRONG,
        "wrong token": WRONG_TOKEN,
    }
    return {**made, **own}


def shown(sites: EmbeddedSites, reports: Mapping[str, str]) -> dict[str, str]:
    """Everything that a process has written, answered or is called by."""
    security = sites.directory / "security"
    found = {str(log): log.read_text(errors="replace") for log in sites.directory.rglob("*.log")}
    assert any("event=authentication" in text or "audit" in text for text in found.values())
    # The login file of ZooKeeper's own server is the place of its users' passwords.
    found |= {
        str(file): file.read_text()
        for file in sites.directory.rglob("*")
        if file.suffix in (".properties", ".json", ".cfg") and security not in file.parents
    }
    processes = sites.left_over()
    assert len(processes) >= 3
    found |= {f"process {process.pid}": " ".join(process.cmdline()) for process in processes}
    return {**found, "JSON of up": sites.output, "messages of up": sites.errors, **reports}


def command(sites: EmbeddedSites, *arguments: str) -> str:
    answer = sites.command(*arguments)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


def token_config(sites: EmbeddedSites, name: str, token: str) -> str:
    file = sites.directory / "security" / f"{name}.properties"
    file.write_text(
        f"antipode.control.ssl.truststore.location={sites.document['security']['ca']}\n"
        f"antipode.control.ssl.keystore.location={sites.directory / 'security' / 'viewer.pem'}\n"
        f"antipode.control.token={token}\n"
    )
    return str(file)


def work(sites: EmbeddedSites, tmp_path: Path) -> dict[str, str]:
    """Run the commands. Returns the reports and responses, by their origin."""
    security = sites.directory / "security"
    config = ("--command-config", sites.document["security"]["command_config"])
    broker = ("--bootstrap-server", sites.bootstrap("a"))
    new_password = tmp_path / "password"
    new_password.write_text(SCRAM)
    made = ("--role", "viewer", "--name", "grafana", "--file", str(security / "grafana.token"))
    reports = {
        "token": command(sites, "credentials", "token", *made, "--tokens", str(tmp_path / "tokens")),
        "users add": command(sites, "users", "add", "carol", "--password-file", str(new_password), *broker, *config),
        "users list": command(sites, "users", "list", *broker, *config, "--output", "json"),
        "topic": command(sites, "topics", "create", "orders", *broker, *config),
        "describe": command(sites, "topics", "describe", "orders", *broker, *config, "--output", "json"),
        "status": command(sites, "status", "--output", "json"),
    }
    right = token_config(sites, "token", (security / "grafana.token").read_text().strip())
    reports["with the token"] = command(sites, "links", "list", "--command-config", right)
    wrong = token_config(sites, "wrong-token", WRONG_TOKEN)
    reports["with a wrong token"] = command(sites, "links", "list", "--output", "json", "--command-config", wrong)
    assert "the token is not known" in reports["with a wrong token"]
    return reports | described(sites) | over_http(sites)


def described(sites: EmbeddedSites) -> dict[str, str]:
    """The brokers' answers about their configs, and to a wrong login."""
    options = librdkafka_options(
        load_security(read_properties(Path(sites.document["security"]["admin_client_config"])))
    )
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), **options})
    node = str(next(iter(admin.list_topics(timeout=30).brokers)))
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, node)]).values()
    entries = {name: entry.value for name, entry in answer.result(120).items()}
    assert len(entries) > 20
    errors: list[str] = []
    refused = {**options, "sasl.password": WRONG, "error_cb": lambda error: errors.append(error.str())}
    stranger = AdminClient({"bootstrap.servers": sites.bootstrap("a"), **refused})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=3)
    eventually_sync(lambda: stranger.poll(0.1) >= 0 and any("authentication" in error.lower() for error in errors))
    return {"described configs": json.dumps(entries), "errors of a wrong login": " ".join(errors)}


def over_http(sites: EmbeddedSites) -> dict[str, str]:
    """Answers of the bridge to right and wrong logins, and the metrics of all daemons."""
    bridge = sites.document["bridge"]
    password = read_properties(sites.directory / "security" / "kafka.properties")["admin"]
    found: dict[str, Any] = {}
    trusted = ssl.create_default_context(cafile=sites.document["security"]["ca"])
    for name, login in (("right", ("admin", password)), ("wrong", ("admin", WRONG))):
        with httpx.Client(verify=trusted, trust_env=False, auth=login, timeout=60) as http:
            answers = [http.get(f"{bridge['url']}/{path}") for path in ("topics", "v3/clusters")]
        assert {answer.status_code for answer in answers} == {200 if name == "right" else 401}
        found[f"HTTP with a {name} password"] = " ".join(f"{answer.headers} {answer.text}" for answer in answers)
    pages = [bridge["metrics"], *sites.document["sites"]["a"]["metrics"]]
    found |= {f"metrics {page}": httpx.get(f"http://{page}/metrics", trust_env=False).text for page in pages}
    return found


@pytest.mark.long
def test_planted_secrets_are_nowhere_to_be_seen(sites: EmbeddedSites, tmp_path: Path) -> None:
    reports = work(sites, tmp_path)
    listing = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    sought, texts = planted(sites), shown(sites, {**reports, "ps": listing})
    assert len(sought) > 12
    leaks = [(what, where) for what, secret in sought.items() for where, text in texts.items() if secret in text]
    assert leaks == []
    assert KEYSTORE in "".join(psutil.Process(sites.document["bridge"]["pid"]).environ().values()), "they were there"
