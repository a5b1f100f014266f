"""Secrets that a test plants in a secured pair are nowhere to be seen during and after a drill, a
failover and a comparison by Spark: not in logs at level DEBUG, reports (JSON, HTML, JUnit), command
lines of any process, Spark's event log with its configuration, or messages of commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pytest
from kio.static.primitive import i64Timedelta

from runtime.addresses import parse_host_port
from runtime.configuration import read_properties
from tests.support.clients.patient_options import patient_options
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.processes.ports import LOOPBACK, free_port
from wire.client.client_errors import Unreachable
from wire.client.connection import Connection, ConnectionOptions, connected
from wire.client.raw_client import KafkaClient
from wire.client.security import load_security, secured
from wire.rules.delegation_tokens import token_password

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

TOKEN_KEY, OAUTH, BEARER, OF_DRILL, WRONG = (
    f"planted{kind}{secrets.token_hex(12)}" for kind in ("TokenKey", "OAuth", "Bearer", "OfDrill", "Wrong")
)
DRILL = """\
name: planted
link: a-b
steps:
  - create_topics: {topics: [{name: planted, partitions: 1}]}
  - start_load: {name: load, kind: records, topic: planted, count: 200}
  - wait: {load_ended: load, within: 120s}
  - wait: {lag_records_max: 0, within: 120s}
  - switch_over: {to: b}
  - check
expect:
  gaps_max: 0
"""
CREATE_TOKEN, INCREMENTAL_ALTER_CONFIGS, LOGGERS = 38, 44, 8


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[EmbeddedSites]:
    """A secured pair with a bridge and delegation tokens, whose key daemons get from their
    environment.
    """
    starter = SitesStarter(tmp_path)
    found = starter.prepared(
        *("--sites", "a,b", "--brokers", "1", "--bridge", "--secure"),
        *("--broker-config", "delegation.token.secret.key=${env:PLANTED_TOKEN_KEY}"),
        environment={
            "PLANTED_TOKEN_KEY": TOKEN_KEY,
            "PLANTED_OF_DRILL": OF_DRILL,
            "SPARK_CONF_DIR": str(prepare_event_log(tmp_path)),
        },
    )
    try:
        found.start_and_wait()
        yield found
    finally:
        starter.end_all()


def said(sites: EmbeddedSites, *arguments: str) -> str:
    """A command's output, after success and after failure."""
    answer = sites.command(*arguments)
    return answer.stdout + answer.stderr


def done(sites: EmbeddedSites, *arguments: str) -> str:
    answer = sites.command(*arguments)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


def options(sites: EmbeddedSites, **changes: str) -> ConnectionOptions:
    given = read_properties(Path(sites.document["security"]["admin_client_config"]))
    return secured(patient_options(), load_security({**given, **changes}))


async def make_token(sites: EmbeddedSites) -> tuple[str, str]:
    """The id of a new delegation token, and the password that its HMAC is; a wrong login by it is
    refused.
    """
    (address,) = [parse_host_port(one) for one in sites.bootstrap("a").split(",")]
    async with connected(address, options(sites)) as connection:
        made = await _create(connection)
    password = token_password(bytes(made.hmac))
    line = (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}" tokenauth="true";'
    )
    wrong = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": line.format(made.token_id, WRONG)}
    with pytest.raises(Unreachable):
        async with connected(address, options(sites, **wrong)):
            pass
    return made.token_id, password


async def _create(connection: Connection) -> Any:
    fields = {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": (),
        "max_lifetime": i64Timedelta.parse(timedelta(milliseconds=-1)),
    }
    made = await connection.call(CREATE_TOKEN, fields, version=3)
    assert not made.error_code
    return made


def drill(sites: EmbeddedSites, directory: Path) -> dict[str, str]:
    """The reports of a drill whose environment's processes have secrets in their environment."""
    plan, environment, out = directory / "plan.yaml", directory / "environment.json", directory / "report"
    plan.write_text(DRILL)
    environment.write_text(sites.output)
    given = ("--environment", str(environment), "--report-dir", str(out))
    answer = done(sites, "drill", "run", str(plan), *given)
    reports = {str(file): file.read_text(errors="replace") for file in out.rglob("*") if file.is_file()}
    assert {Path(name).suffix for name in reports} >= {".html", ".json", ".xml"}
    return {"drill": answer, **reports}


def failover_and_comparison(sites: EmbeddedSites, out: Path) -> dict[str, str]:
    """The account of a failover back, and of a comparison of both sites."""
    compared = sites.command("reconcile", "--link", "a-b", "--out", str(out), "--process-offsets", "0")
    assert compared.returncode in (0, 1), compared.stdout + compared.stderr
    assert any(out.iterdir())
    by_spark = event_log(out.parent)
    assert "SparkListenerEnvironmentUpdate" in by_spark, "Spark's configuration is in it"
    return {
        "failover": done(sites, "failover", "a-b", "--to", "a", "--output", "json"),
        "failovers": done(sites, "failovers", "list", "a-b", "--output", "json"),
        "link": done(sites, "links", "status", "a-b", "--output", "json"),
        "verify": said(sites, "links", "verify", "a-b", "--output", "json"),
        "check": said(sites, "links", "check", "a-b", "--output", "json"),
        "reconcile": compared.stdout + compared.stderr,
        "event log of Spark": by_spark,
    }


def prepare_event_log(directory: Path) -> Path:
    """A folder of configuration that has Spark keep its event log."""
    (directory / "events").mkdir()
    folder = directory / "spark-conf"
    folder.mkdir()
    events = (directory / "events").as_uri()
    settings = {"enabled": "true", "compress": "false", "dir": events}
    lines = [f"spark.eventLog.{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


def event_log(directory: Path) -> str:
    files = [file for file in (directory / "events").rglob("*") if file.is_file()]
    return "".join(file.read_text(errors="replace") for file in files)


class CommandLines:
    """The command lines of all processes of this user, read over and over in a thread: most
    processes of a drill or of Spark are gone before a test could look once.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="command lines")

    def _read(self) -> None:
        while not self._has_ended.wait(0.02):
            for folder in Path("/proc").iterdir():
                if folder.name.isdecimal():
                    with contextlib.suppress(OSError):
                        self.found.add((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()


async def log_everything(sites: EmbeddedSites) -> None:
    """Have the brokers of both sites log at level DEBUG."""
    for site in ("a", "b"):
        async with KafkaClient(sites.bootstrap(site), options(sites), site_local=True) as client:
            for node in (await client.metadata([])).brokers:
                level = {"name": "root", "config_operation": 0, "value": "DEBUG"}
                resource = {"resource_type": LOGGERS, "resource_name": str(node), "configs": [level]}
                values = {"resources": [resource], "validate_only": False}
                connection = await client.connection(node)
                (result,) = (await connection.call(INCREMENTAL_ALTER_CONFIGS, values)).responses
                assert not result.error_code, result


def wrong_logins(sites: EmbeddedSites, directory: Path) -> dict[str, str]:
    """The complaints of a command whose token server does not answer, and of the bridge about a
    token.
    """
    config = directory / "oauth.properties"
    given = read_properties(Path(sites.document["security"]["command_config"]))
    oauth = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"https://{LOOPBACK}:{free_port()}/token",
        "sasl.oauthbearer.client.credentials.client.id": "planted",
        "sasl.oauthbearer.client.credentials.client.secret": OAUTH,
    }
    kept = {key: value for key, value in given.items() if not key.endswith("jaas.config")}
    config.write_text("".join(f"{key}={value}\n" for key, value in {**kept, **oauth}.items()))
    topics = sites.command(
        "topics", "list", "--bootstrap-server", sites.bootstrap("a"), "--command-config", str(config)
    )
    assert topics.returncode != 0
    bridge = sites.document["bridge"]["url"]
    trusted = ssl.create_default_context(cafile=sites.document["security"]["ca"])
    with httpx.Client(verify=trusted, trust_env=False, timeout=60) as http:
        answer = http.get(f"{bridge}/topics", headers={"Authorization": f"Bearer {BEARER}"})
    assert answer.status_code == 401
    return {"OAuth": topics.stdout + topics.stderr, "bridge": f"{answer.headers} {answer.text}"}


def texts(sites: EmbeddedSites, reports: Mapping[str, str]) -> dict[str, str]:
    """Everything that processes have written, answered or are called by."""
    security = sites.directory / "security"
    found = {
        str(file): file.read_text(errors="replace")
        for file in sites.directory.parent.rglob("*")
        if file.is_file()
        and file.suffix in (".log", ".json", ".html", ".xml", ".jsonl")
        and security not in file.parents
    }
    assert any("audit" in text for text in found.values())
    listing = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return {**found, "ps": listing, "JSON of up": sites.output, "messages of up": sites.errors, **reports}


def test_secrets_of_a_pair_are_nowhere_to_be_seen_after_a_drill(
    sites: EmbeddedSites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(log_everything(sites))
    monkeypatch.setenv("PLANTED_OF_DRILL", OF_DRILL)
    with CommandLines() as lines:
        _, hmac = asyncio.run(make_token(sites))
        reports = (
            wrong_logins(sites, tmp_path)
            | drill(sites, tmp_path)
            | failover_and_comparison(sites, tmp_path / "compared")
        )
    for program in ("reconcile", "drill run", "pyspark", "java"):
        assert any(program in line for line in lines.found), f"no process of {program} was seen"
    reports["command lines"] = "\n".join(sorted(lines.found))
    sought = {
        "key of tokens": TOKEN_KEY,
        "HMAC": hmac,
        "client secret": OAUTH,
        "bearer token": BEARER,
        "environment of a drill": OF_DRILL,
        "wrong password": WRONG,
        **{
            f"password of {user}": password
            for user, password in read_properties(sites.directory / "security" / "kafka.properties").items()
        },
    }
    shown = texts(sites, reports)
    leaks = [(what, where) for what, secret in sought.items() for where, text in shown.items() if secret in text]
    assert leaks == []
    environments = [psutil.Process(process.pid).environ().values() for process in sites.left_over()]
    assert any(OF_DRILL in values for values in environments), "it was there"
    assert '"outcome": "done"' in reports["failover"]
