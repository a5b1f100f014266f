"""Apache Kafka itself, for comparison: its programs by their class, and KRaft nodes as child
processes, alone or as one cluster.

Nothing of Antipode needs it to run. `make setup-java` fetches the jars; tests compare answers with
this broker, benchmarks compare figures. A JVM is either small and quick to start (tools, tests) or
has the options of the upstream launcher (measurements).
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy import class_archives, jar_sets, parts
from deploy.ports import LOOPBACK
from runtime.children import Child
from runtime.process import OperationalFailure

SMALL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SERVER_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""The options of Kafka's own launcher, without the heap."""
STORAGE_TOOL = "kafka.tools.StorageTool"
BROKER = "kafka.Kafka"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
FORMAT_WITHIN_S = 60
INITIAL_RECORDS = "bootstrap.checkpoint"
"""The file with the first metadata records, the same for all nodes of one version of Kafka."""
PROBE_TIMEOUT_S = 0.3


def program(
    main_class: str, *arguments: str, jvm: Sequence[str] = SMALL_JVM, more: Sequence[jar_sets.JarSet] = ()
) -> list[str]:
    """The command line of one of its programs; a small JVM uses the class archive if there is one.
    Raises OperationalFailure without Java or the jars.
    """
    classpath = os.pathsep.join(str(jar) for jar_set in (jar_sets.KAFKA, *more) for jar in jar_set.jars())
    archived = class_archives.KAFKA.options() if jvm == SMALL_JVM else []
    return [str(parts.java().executable), *jvm, *archived, "-cp", classpath, main_class, *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApacheKafkaServer:
    """A broker and controller in one process, on loopback, with everything under `directory`.
    `settings` override the shipped defaults.

    `voters` has the controller ports of a cluster by node id, including this node's; without it,
    the node is its own controller.
    """

    name: str
    directory: Path
    port: int
    controller_port: int
    node_id: int = 1
    voters: Mapping[int, int] = field(default_factory=dict)
    jvm: Sequence[str] = SMALL_JVM
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"{LOOPBACK}:{self.port}"

    def format(self) -> None:
        """Write the configuration and format the directory for a first start; a second call does
        nothing. OperationalFailure says why not.

        Kafka's own tool formats the first directory; others get a copy of its `INITIAL_RECORDS`,
        kept beside the jars, because the tool costs more processor time than the copy by far.
        """
        configuration = self._write_configuration()
        kept = jar_sets.KAFKA.directory / INITIAL_RECORDS
        data = Path(self.properties()["log.dirs"])
        if kept.is_file() and not data.exists():
            self._format_from(kept, data)
            return
        command = program(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(configuration), "--ignore-formatted")
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FORMAT_WITHIN_S)
        if ended.returncode != 0:
            raise OperationalFailure(
                f"Apache Kafka cannot use {self.directory}: {(ended.stdout + ended.stderr).strip()}"
            )
        if not kept.is_file():
            _keep(data / INITIAL_RECORDS, kept)

    def _format_from(self, initial_records: Path, data: Path) -> None:
        data.mkdir(parents=True)
        shutil.copyfile(initial_records, data / INITIAL_RECORDS)
        identity = {
            "version": "1",
            "cluster.id": CLUSTER_ID,
            "node.id": self.properties()["node.id"],
            "directory.id": base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii"),
        }
        lines = "".join(f"{key}={value}\n" for key, value in identity.items())
        (data / "meta.properties").write_text(lines, encoding="ascii")

    def child(self) -> Child:
        """The process, not started; the directory has been formatted."""
        command = program(BROKER, str(self._write_configuration()), jvm=self.jvm)
        return Child(name=self.name, command=command, directory=self.directory, log=self.directory / f"{self.name}.log")

    def is_serving(self) -> bool:
        """True if the broker accepts connections: it opens its listener last."""
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=PROBE_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def properties(self) -> dict[str, str]:
        """Its server.properties."""
        voters = self.voters or {self.node_id: self.controller_port}
        replicas = str(min(len(voters), 3))
        in_sync = str(min(len(voters), 2))
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            **self.settings,
        }

    def _write_configuration(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.properties().items()), encoding="utf-8")
        return file


def _keep(made: Path, kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        whole = Path(scratch) / kept.name
        shutil.copyfile(made, whole)
        # renamed only when complete: a process that formats at the same time finds no file rather
        # than an incomplete one
        whole.rename(kept)
