"""A pair whose control plane demands certificates and whose Kafka listeners demand logins: refused
callers, and a failover, a failback and a switchover by authorized ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kio.schema.errors import ErrorCode

from runtime.configuration import read_properties
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.clients.staying_writer import StayingWriter
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends
from tests.support.eventually import eventually_sync
from tests.support.processes.fork_server import run_antipode
from wire.client.librdkafka_options import librdkafka_options
from wire.client.security import ClientSecurity, load_security

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ATTEMPTS: Mapping[str, tuple[str, ...]] = {
    "AdoptLink": ("failover", "a-b", "--to", "b", "--old-site-is-down"),
    "DeleteLink": ("links", "delete", "a-b", "--yes"),
    "AlterLink": ("links", "alter", "a-b", "--sync", "block"),
    "PauseMirror": ("links", "pause", "a-b"),
}
"""What a viewer tries, by the operation that is refused."""
APPENDED = "kafka_server_brokertopicmetrics_messagesin_total"


def logged(sites: EmbeddedSites) -> Iterator[str]:
    """Every line of every process's log."""
    for log in sites.directory.rglob("*.log"):
        yield from log.read_text(encoding="utf-8", errors="replace").splitlines()


def audited(sites: EmbeddedSites) -> list[str]:
    """Every audit line of every process."""
    return [line for line in logged(sites) if "logger=antipode.audit" in line]


def active_site(sites: EmbeddedSites) -> str:
    done = sites.command("links", "status", "a-b", "--output", "json")
    (found,) = json.loads(done.stdout)["links"]
    return str(found["active_site"])


def elsewhere(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as on a machine without the sites' environment file, which names the operator's
    certificate.
    """
    environment = {key: value for key, value in os.environ.items() if key != "ANTIPODE_ENVIRONMENT"}
    return run_antipode(*arguments, directory=Path("/"), environment=environment)


def login(sites: EmbeddedSites, user: str) -> ClientSecurity:
    """The client properties of admin or user."""
    return load_security(read_properties(Path(sites.document["security"][f"{user}_client_config"])))


def user_options(sites: EmbeddedSites) -> dict[str, str]:
    return librdkafka_options(login(sites, "user"))


def produce(sites: EmbeddedSites, count: int, *, site: str = "a") -> None:
    """Send records as the ordinary user."""
    records = [Record(value=f"{number}".encode(), partition=0) for number in range(count)]
    librdkafka_produce(sites.bootstrap(site), TOPIC, records, settings={"acks": "all", **user_options(sites)})


def refusals_of_kafka_listeners(sites: EmbeddedSites, site: str) -> None:
    """The errors of a client in plaintext, one without a login, and one with a wrong password, at
    the listener for clients and at the link's.
    """
    options = user_options(sites)
    no_login = {"security.protocol": "ssl", "ssl.ca.pem": options["ssl.ca.pem"]}
    wrong = {**options, "sasl.password": "wrong"}
    known = sites.environment.sites[site]
    for bootstrap in (known.bootstrap_servers, sites.document["sites"][site]["link_bootstrap_servers"]):
        for attempt in ({}, no_login, wrong):
            errors: list[KafkaError] = []
            client = AdminClient({"bootstrap.servers": bootstrap, **attempt, "error_cb": errors.append})
            with pytest.raises(KafkaException):
                client.list_topics(timeout=2)
            while not errors:
                client.poll(1)
            authentication = [error for error in errors if error.code() == KafkaError._AUTHENTICATION]
            assert bool(authentication) is (attempt is wrong), errors
        assert AdminClient({"bootstrap.servers": bootstrap, **options}).list_topics(timeout=20).brokers


def refused_without_acl(sites: EmbeddedSites) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": sites.bootstrap("a"), "acks": "all", **user_options(sites)})
    producer.produce(TOPIC, value=b"forbidden", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(120) == 0
    (error,) = errors
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def kcat_logs_in(sites: EmbeddedSites) -> None:
    """kcat logs in with the config file that `antipode up` prints."""
    if shutil.which("kcat"):
        config = sites.document["security"]["admin_kcat_config"]
        told = subprocess.run(
            ["kcat", "-F", config, "-L", "-b", sites.bootstrap("a")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert f'topic "{TOPIC}"' in told.stdout, told.stderr


def grant(sites: EmbeddedSites) -> None:
    """The operator's --command-config logs in as admin."""
    common = ("--bootstrap-server", sites.bootstrap("a"), "--allow-principal", "User:user", "--topic", TOPIC)
    config = ("--command-config", sites.document["security"]["command_config"])
    done(sites, "acls", "add", *common, "--producer", *config)
    done(sites, "acls", "add", *common, "--consumer", "--group", "readers", *config)


def acls_are_at(sites: EmbeddedSites, site: str) -> bool:
    config = ("--command-config", sites.document["security"]["command_config"])
    listed = sites.command("acls", "list", "--bootstrap-server", sites.bootstrap(site), "--topic", TOPIC, *config)
    return listed.returncode == 0 and "User:user" in listed.stdout and "write" in listed.stdout.lower()


def outcomes(sites: EmbeddedSites) -> dict[str, str]:
    """The checks whether principals that are authorized at a are authorized at b."""
    found = json.loads(sites.command("links", "check", "a-b", "--output", "json").stdout)["checks"]
    wanted = ("principals", "listeners", "certificates")
    return {one["check"]: one["outcome"] for one in found if one["check"] in wanted}


def refusals_of_a_viewer(sites: EmbeddedSites) -> None:
    viewer = ("--command-config", sites.document["security"]["viewer_command_config"])
    assert sites.command("links", "list", *viewer).returncode == 0
    for operation, attempt in ATTEMPTS.items():
        refused = sites.command(*attempt, *viewer)
        said = " ".join((refused.stdout + refused.stderr).split())
        assert refused.returncode == 1, (attempt, said)
        assert "viewer has role viewer and may not call" in said, (attempt, said)
        assert "Traceback" not in said
        assert any(
            f"event={operation}" in line and "principal=viewer" in line and "outcome=denied" in line
            for line in audited(sites)
        ), operation


def refusals_of_a_stranger(sites: EmbeddedSites, directory: Path) -> None:
    """The refusals of a client without a certificate, and of one with another authority's."""
    agents = [f"{name}={','.join(site.grpc)}" for name, site in sites.environment.sites.items()]
    given = [part for agent in agents for part in ("--site", agent)]
    other = directory / "other"
    for arguments in (
        ("authority", "--dir", str(other)),
        ("certificate", "--dir", str(other), "--role", "operator", "--name", "eve", "--file", str(other / "eve.pem")),
    ):
        made = sites.command("credentials", *arguments)
        assert made.returncode == 0, made.stderr
    config = other / "eve.properties"
    ca = sites.document["security"]["ca"]
    config.write_text(
        f"antipode.control.ssl.truststore.location={ca}\nantipode.control.ssl.keystore.location={other / 'eve.pem'}\n"
    )
    for credentials in ((), ("--command-config", str(config))):
        refused = elsewhere("links", "delete", "a-b", "--yes", *given, *credentials)
        assert refused.returncode == 1
        assert "UNAVAILABLE" in refused.stderr, refused.stderr
        hint = "does not accept this process's certificate" if credentials else "needs --command-config"
        assert hint in refused.stderr


def no_key_is_shown(sites: EmbeddedSites) -> None:
    shown: dict[str, str] = {"JSON": sites.output, "standard error": sites.errors}
    shown |= {str(log): log.read_text(encoding="utf-8", errors="replace") for log in sites.directory.rglob("*.log")}
    keys = [
        line
        for file in (sites.directory / "security").iterdir()
        for line in file.read_text(encoding="utf-8").partition("-----BEGIN PRIVATE KEY-----")[2].splitlines()[1:2]
    ]
    assert keys
    for where, text in shown.items():
        assert not any(key in text for key in keys), where


def zookeeper_is_closed(sites: EmbeddedSites) -> None:
    """ZooKeeper refuses sessions in plaintext, and over TLS those without the user. Znodes have
    ACLs, which the migration opens and closes.
    """
    connect, security = sites.environment.sites["a"].zookeeper, sites.directory / "security"
    plain = KazooClient(connect)
    with pytest.raises(KazooTimeoutError):
        plain.start(2)
    plain.close()
    own = str(security / "viewer.pem")
    stranger = KazooClient(connect, use_ssl=True, ca=str(security / "ca.pem"), certfile=own, keyfile=own)
    stranger.start_async().wait(5)
    try:
        with pytest.raises(KazooException):
            stranger.get("/cluster/id")
    finally:
        stranger.stop()
        stranger.close()
    operator = sites.document["security"]["command_config"]
    migrate = ("credentials", "znodes", "--zookeeper", connect, "--output", "json", "--command-config")
    kept = json.loads(done(sites, *migrate, operator).stdout)
    assert kept["znodes"] > 10
    assert kept["changed"] == 1, "the site made every znode with its ACL, and ZooKeeper its root"
    opening = Path(operator).with_name("opening.properties")
    opening.write_text(Path(operator).read_text(encoding="utf-8").replace("set.acl=true", "set.acl=false"))
    opened = json.loads(done(sites, *migrate, str(opening)).stdout)
    again = json.loads(done(sites, *migrate, operator).stdout)
    assert opened["changed"] == again["changed"] == kept["znodes"]


def no_password_is_shown(sites: EmbeddedSites) -> None:
    security = sites.directory / "security"
    passwords = [
        password
        for file in ("zookeeper.properties", "kafka.properties")
        for password in read_properties(security / file).values()
    ]
    assert len(passwords) == 5
    shown = {str(log): log.read_text(encoding="utf-8", errors="replace") for log in sites.directory.rglob("*.log")}
    daemons = [
        file for file in sites.directory.rglob("*.properties") if file.parent not in (security, *security.parents)
    ]
    shown |= {str(file): file.read_text(encoding="utf-8") for file in daemons if "zookeeper-" not in str(file)}
    shown |= {"output": sites.output + sites.errors}
    shown |= {f"process {process.pid}": " ".join(process.cmdline()) for process in sites.left_over()}
    for where, text in shown.items():
        assert not any(password in text for password in passwords), where


def samples(sites: EmbeddedSites, site: str, name: str, label: str) -> list[float]:
    """The samples of a broker's metric that have this label."""
    (address,) = sites.environment.sites[site].metrics
    with urllib.request.urlopen(f"http://{address}/metrics") as page:
        lines = page.read().decode().splitlines()
    return [float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{") and label in line]


def switch_back(sites: EmbeddedSites) -> None:
    eventually_sync(lambda: sites.command("switchover", "a-b", "--to", "a").returncode == 0)
    assert active_site(sites) == "a"


def written_through_a_move(sites: EmbeddedSites) -> int:
    """The sites change places while a writer with a login, ACLs and a quota stays at the former
    active site. That site forwards its writes, refuses none of them, and alone charges the quota.
    The number of records, of all moves until one of them had writes to forward.
    """
    quota = ("--bootstrap-server", sites.bootstrap("a"), "--user", "user", "producer_byte_rate=1e9")
    done(sites, "quotas", "set", *quota, "--command-config", sites.document["security"]["command_config"])
    total = 0
    while True:
        eventually_sync(lambda: outcomes(sites)["principals"] == "ok")
        former = sum(samples(sites, "b", APPENDED, f'topic="{TOPIC}"'))
        with StayingWriter(sites.bootstrap("a"), TOPIC, user_options(sites)) as writer:
            eventually_sync(lambda writer=writer: writer.acknowledged > 10)  # type: ignore[misc]
            done(sites, "switchover", "a-b", "--to", "b")
        total += writer.acknowledged
        assert writer.refusal is ErrorCode.not_leader_or_follower, "it comes when the move has long ended"
        # the move took longer than writes wait
        if sum(samples(sites, "b", APPENDED, f'topic="{TOPIC}"')) == former:
            switch_back(sites)
            continue
        charged = "kafka_server_produce_byte_rate"
        assert sum(samples(sites, "a", charged, 'user="user"')) > 0
        assert samples(sites, "b", charged, 'user="user"') == []
        return total


def done(sites: EmbeddedSites, *arguments: str) -> Any:
    answer = sites.command(*arguments)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer


async def test_a_secured_pair_refuses_strangers_and_viewers_and_fails_over_and_back_for_its_operator(
    start_sites: SitesStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = start_sites("--secure")
    files = [Path(path) for path in sites.document["security"].values()]
    assert all(file.exists() for file in files)
    assert all(
        file.stat().st_mode & 0o077 == 0 for file in (sites.directory / "security").iterdir() if file.name != "ca.pem"
    )
    monkeypatch.setattr("wire.client.security._OfThisProcess.security", login(sites, "admin"))
    await create_topic(sites)
    refusals_of_kafka_listeners(sites, "a")
    refusals_of_kafka_listeners(sites, "b")
    refused_without_acl(sites)
    kcat_logs_in(sites)
    grant(sites)
    eventually_sync(lambda: acls_are_at(sites, "b"))
    produce(sites, 100)
    assert await equal_ends(sites) == {(TOPIC, 0): 100}

    # The last of the rights that were granted may still be on their way to b.
    held = {"principals": "ok", "listeners": "ok", "certificates": "ok"}
    eventually_sync(lambda: outcomes(sites) == held)
    refusals_of_a_viewer(sites)
    refusals_of_a_stranger(sites, tmp_path)
    assert active_site(sites) == "a", "nothing of this had an effect"

    zookeeper_is_closed(sites)
    no_password_is_shown(sites)
    done(sites, "reconcile", "--link", "a-b", "--quick")
    sites.broker("a").kill()
    done(sites, "failover", "a-b", "--to", "b", "--old-site-is-down")
    produce(sites, 50, site="b")
    sites.broker("a").start()

    switch_back(sites)
    count = 150 + written_through_a_move(sites)
    received = librdkafka_consume(sites.bootstrap("b"), TOPIC, count, group="readers", settings=user_options(sites))
    assert len(received) == count
    refusals_of_kafka_listeners(sites, "b")
    done(sites, "reconcile", "--link", "a-b", "--quick")

    lines = audited(sites)
    promoted = [line for line in lines if "event=AdoptLink" in line and "principal=operator" in line]
    assert any("outcome=allowed" in line and "active_site=b" in line for line in promoted)
    assert any("event=CreateTopics" in line and "interface=kafka" in line for line in lines)
    denied = [line for line in logged(sites) if "logger=broker.authorization" in line and "event=denied" in line]
    assert [line for line in denied if "principal=User:mirror" in line] == [], "its ACLs are all that it needs"
    assert denied
    no_key_is_shown(sites)
    sites.stop()
