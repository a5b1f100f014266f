"""Kafka Connect's file source and sink: a standalone worker, and distributed ones with exactly-once
sources.

A worker is a process with its REST port on loopback; connectors are made over REST or, standalone,
from files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from deploy import apache_kafka, jar_sets
from tests.compatibility import java_programs, streams
from tests.compatibility.cells import Column, Row
from tests.compatibility.checks import values
from tests.compatibility.commands import WITHIN_S
from tests.compatibility.environments import SLOW
from tests.compatibility.site import Site
from tests.support.clients.transactional_clients import read_values
from tests.support.eventually import eventually_sync
from tests.support.processes.ports import LOOPBACK, free_port

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STRING = "org.apache.kafka.connect.storage.StringConverter"
LINES = 50
REST_TIMEOUT_S = 30

Settings = Mapping[str, str]


class Worker:
    """A worker's settings and its folder; it can run more than once."""

    def __init__(self, site: Site, main_class: str, name: str, settings: Settings) -> None:
        self.directory = site.scratch / name
        self.directory.mkdir()
        self.url = f"http://{LOOPBACK}:{free_port()}"
        self._main_class = main_class
        self._settings = {
            "bootstrap.servers": site.bootstrap_servers,
            "key.converter": STRING,
            "value.converter": STRING,
            "offset.flush.interval.ms": "500",
            "listeners": self.url,
            **settings,
        }

    @contextmanager
    def running(self, *connectors: Settings) -> Iterator[subprocess.Popen[bytes]]:
        """The process, ended with the block; connectors are for a standalone one."""
        files = [self._write("worker", self._settings), *(self._write(each["name"], each) for each in connectors)]
        command = apache_kafka.program(self._main_class, *map(str, files), more=(jar_sets.KAFKA_EXTENSIONS,))
        with (self.directory / "worker.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def call(self, process: subprocess.Popen[bytes], path: str, config: Settings) -> None:
        """Configure a connector as soon as the worker accepts it; while workers find each other it
        says conflict.
        """

        def is_accepted() -> bool:
            assert process.poll() is None, f"the worker ended with {process.returncode}"
            try:
                answer = requests.put(f"{self.url}{path}", json=config, timeout=REST_TIMEOUT_S)
            except requests.ConnectionError:
                return False
            assert answer.status_code in (200, 201), answer.text
            return True

        eventually_sync(is_accepted, WITHIN_S * 1000)

    def _write(self, name: str, settings: Settings) -> Path:
        file = self.directory / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return file


class Pipe:
    """A file, its source, a topic, a sink and another file."""

    def __init__(self, site: Site, directory: Path) -> None:
        self.site = site
        self.topic = site.create_topic("piped")
        self.given, self.written = directory / "given.txt", directory / "written.txt"
        self._count = 0
        name = site.fresh("pipe")
        self.source = {
            "connector.class": SOURCE,
            "name": f"{name}-source",
            "topic": self.topic,
            "file": str(self.given),
        }
        self.sink = {"connector.class": SINK, "name": f"{name}-sink", "topics": self.topic, "file": str(self.written)}

    @property
    def wanted(self) -> list[bytes]:
        """All lines so far."""
        return values(0, self._count)

    @property
    def group(self) -> str:
        """The group whose offsets show the progress of the sink."""
        return f"connect-{self.sink['name']}"

    def add_lines(self) -> None:
        """More lines for the source."""
        with self.given.open("ab") as file:
            file.writelines(value + b"\n" for value in values(self._count, self._count + LINES))
        self._count += LINES

    def wait_in_topic(self) -> None:
        """Wait until the topic holds all lines, once and in order, as far as they are committed."""
        _settled(lambda: read_values(self.site.bootstrap_servers, self.topic, 1)[0], self.wanted)

    def wait_in_file(self) -> None:
        """Wait until the sink has written all lines, once and in order."""
        _settled(lambda: self.written.read_bytes().split() if self.written.exists() else [], self.wanted)


def _settled(found: Any, wanted: Sequence[bytes]) -> None:
    def is_there() -> bool:
        lines = found()
        assert lines == wanted, f"{len(lines)} lines instead of {len(wanted)}, the last {lines[-2:]}"
        return True

    eventually_sync(is_there, WITHIN_S * 1000)


def _standalone(site: Site) -> tuple[Worker, Pipe]:
    worker = Worker(site, STANDALONE, site.fresh("standalone"), {"offset.storage.file.filename": "offsets"})
    return worker, Pipe(site, worker.directory)


def check_produce(site: Site) -> str:
    """A source carries a file's lines into a topic, and goes on after a restart where it was."""
    worker, pipe = _standalone(site)
    for _ in range(2):
        pipe.add_lines()
        with worker.running(pipe.source) as process:
            pipe.wait_in_topic()
            process.terminate()
            process.wait(WITHIN_S)
    return "standalone file source: every line once and in order, over a restart"


def check_consume(site: Site) -> str:
    """A sink carries a topic into a file."""
    worker, pipe = _standalone(site)
    pipe.add_lines()
    with worker.running(pipe.source, pipe.sink) as process:
        pipe.wait_in_file()
        pipe.add_lines()
        pipe.wait_in_file()
        process.terminate()
        process.wait(WITHIN_S)
    return "standalone file sink: every line once and in order"


def check_groups(site: Site) -> str:
    """A distributed worker joins its workers' group, runs a sink in another one and commits; its
    successor goes on there.
    """
    pipe = _run_distributed(site, {}, is_killed=False)
    site.wait_committed(pipe.group, pipe.topic, len(pipe.wanted))
    return "distributed worker group; the sink's offsets are committed and taken up by the next worker"


def check_transactions(site: Site) -> str:
    """Exactly-once source: killed and started again, every line is committed once, in
    transactions.
    """
    pipe = _run_distributed(site, {"exactly.once.source.support": "enabled"}, is_killed=True)
    assert site.is_transactional(pipe.topic), "the source's records are in no transaction"
    return "exactly-once source: killed and started again, every line committed once"


def check_admin(site: Site) -> str:
    """A distributed worker makes its three internal topics, compacted and replicated."""
    worker = _distributed_worker(site, {})
    with worker.running() as process:
        worker.call(process, "/connector-plugins/FileStreamSourceConnector/config/validate", _validated())
    internal = [f"{worker.directory.name}-{kind}" for kind in ("configs", "offsets", "status")]
    for topic in internal:
        assert site.replicas(topic) == {site.replication_factor}, topic
        assert site.configs(topic)["cleanup.policy"] == "compact", topic
    return "creates its three compacted topics"


def _validated() -> Settings:
    return {"connector.class": SOURCE, "name": "validated", "topic": "any", "file": "any", "tasks.max": "1"}


def _distributed_worker(site: Site, settings: Settings) -> Worker:
    name = site.fresh("connect")
    topics = {f"{kind.rstrip('s')}.storage.topic": f"{name}-{kind}" for kind in ("configs", "offsets")}
    replicas = {f"{kind}.storage.replication.factor": "-1" for kind in ("config", "offset", "status")}
    partitions = {"offset.storage.partitions": "5", "status.storage.partitions": "5"}
    swift = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500", "scheduled.rebalance.max.delay.ms": "0"}
    own = {"group.id": name, "status.storage.topic": f"{name}-status"}
    return Worker(site, DISTRIBUTED, name, {**own, **topics, **replicas, **partitions, **swift, **settings})


def _run_distributed(site: Site, settings: Settings, *, is_killed: bool) -> Pipe:
    """A source and a sink whose worker ends and starts again. Killed, it promises exactly once of
    the topic alone, not of the file.
    """
    worker = _distributed_worker(site, settings)
    pipe = Pipe(site, worker.directory)
    pipe.add_lines()
    with worker.running() as process:
        for connector in (pipe.source, pipe.sink):
            worker.call(process, f"/connectors/{connector['name']}/config", connector)
        pipe.wait_in_topic()
        pipe.wait_in_file()
        if not is_killed:
            process.terminate()
            process.wait(WITHIN_S)
    pipe.add_lines()
    with worker.running() as process:
        pipe.wait_in_topic()
        if not is_killed:
            pipe.wait_in_file()
        process.terminate()
        process.wait(WITHIN_S)
    return pipe


def rows() -> tuple[Row, ...]:
    """Its one row."""
    cells = {
        Column.PRODUCE: check_produce,
        Column.CONSUME: check_consume,
        Column.GROUPS: check_groups,
        Column.TRANSACTIONS: check_transactions,
        Column.ADMIN: check_admin,
    }
    name = "Kafka Connect file source and sink"
    return (Row(name=name, version=java_programs.version, missing=streams.missing, cells=cells, environments=SLOW),)
