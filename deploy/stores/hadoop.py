"""Runs Hadoop's servers as child processes on loopback, from their jars, for long tests: HDFS with
one data node, and YARN with one node. Not needed to run anything.

`jar_sets.HADOOP` has the jars; the tests fetch them.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from deploy import jar_sets, parts
from deploy.ports import LOOPBACK, free_port
from runtime.children import Child
from runtime.process import OperationalFailure

PROBE_TIMEOUT_S: Final = 2.0
FORMAT_TIMEOUT_S: Final = 60.0
_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_HDFS: Final = "org.apache.hadoop.hdfs.server"
_YARN: Final = "org.apache.hadoop.yarn.server"


@dataclass(slots=True, kw_only=True)
class Hdfs:
    """A name node and a data node with everything under `directory`."""

    directory: Path
    port: int = field(default_factory=free_port)
    page_port: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        """The address of its root directory, without a slash at the end."""
        return f"hdfs://{LOOPBACK}:{self.port}"

    @property
    def configuration(self) -> Path:
        """The directory for HADOOP_CONF_DIR."""
        return self.directory / "configuration"

    @property
    def name_node(self) -> Child:
        """The name node's process."""
        return _child(self.directory / "name-node", self.configuration, f"{_HDFS}.namenode.NameNode")

    @property
    def data_node(self) -> Child:
        """The data node's process."""
        return _child(self.directory / "data-node", self.configuration, f"{_HDFS}.datanode.DataNode")

    def start(self) -> None:
        """Make an empty file system and start the processes, without waiting for them. Raises
        OperationalFailure without Java or the jars.
        """
        write_configuration(self.configuration / "core-site.xml", {"fs.defaultFS": self.address})
        settings = {
            "dfs.replication": 1,
            "dfs.namenode.name.dir": self.directory / "name-node" / "data",
            "dfs.namenode.http-address": f"{LOOPBACK}:{self.page_port}",
            "dfs.datanode.data.dir": self.directory / "data-node" / "data",
            "dfs.datanode.hostname": LOOPBACK,
            "dfs.datanode.address": f"{LOOPBACK}:{free_port()}",
            "dfs.datanode.http.address": f"{LOOPBACK}:{free_port()}",
            "dfs.datanode.ipc.address": f"{LOOPBACK}:{free_port()}",
        }
        write_configuration(self.configuration / "hdfs-site.xml", settings)
        command = [*self.name_node.command, "-format", "-nonInteractive"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FORMAT_TIMEOUT_S)
        if ended.returncode != 0:
            raise OperationalFailure(f"HDFS cannot be formatted:\n{ended.stderr[-2000:]}")
        self.name_node.start()
        self.data_node.start()

    def is_serving(self) -> bool:
        """True when the data node has registered."""
        beans = _json_of(self.page_port, "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState").get("beans") or [{}]
        return bool(beans[0].get("NumLiveDataNodes") == 1)

    def stop(self) -> None:
        """Stop both."""
        self.data_node.stop()
        self.name_node.stop()


@dataclass(slots=True, kw_only=True)
class Yarn:
    """A resource manager and a node, beside an HDFS whose `configuration` gains their settings. The
    containers run as this user, with the environment that applications give them.
    """

    directory: Path
    hdfs: Hdfs
    memory_mb: int = 4096
    cores: int = 4
    page_port: int = field(default_factory=free_port)

    @property
    def scheduler(self) -> Child:
        """The resource manager's process."""
        program = f"{_YARN}.resourcemanager.ResourceManager"
        return _child(self.directory / "resource-manager", self.hdfs.configuration, program)

    @property
    def node(self) -> Child:
        """The node manager's process."""
        return _child(self.directory / "node-manager", self.hdfs.configuration, f"{_YARN}.nodemanager.NodeManager")

    def start(self) -> None:
        """Start the processes without waiting for them."""
        work = self.directory / "node-manager"
        settings = {
            "yarn.resourcemanager.hostname": LOOPBACK,
            "yarn.resourcemanager.address": f"{LOOPBACK}:{free_port()}",
            "yarn.resourcemanager.scheduler.address": f"{LOOPBACK}:{free_port()}",
            "yarn.resourcemanager.resource-tracker.address": f"{LOOPBACK}:{free_port()}",
            "yarn.resourcemanager.admin.address": f"{LOOPBACK}:{free_port()}",
            "yarn.resourcemanager.webapp.address": f"{LOOPBACK}:{self.page_port}",
            "yarn.nodemanager.hostname": LOOPBACK,
            "yarn.nodemanager.address": f"{LOOPBACK}:{free_port()}",
            "yarn.nodemanager.localizer.address": f"{LOOPBACK}:{free_port()}",
            "yarn.nodemanager.collector-service.address": f"{LOOPBACK}:{free_port()}",
            "yarn.nodemanager.webapp.address": f"{LOOPBACK}:{free_port()}",
            "yarn.nodemanager.local-dirs": work / "local",
            "yarn.nodemanager.log-dirs": work / "logs",
            "yarn.nodemanager.resource.memory-mb": self.memory_mb,
            "yarn.nodemanager.resource.cpu-vcores": self.cores,
            # a full disk of the machine would make the node unhealthy, and Python reserves memory
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.9,
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.delete.debug-delay-sec": 600,
            "yarn.scheduler.minimum-allocation-mb": 128,
            # half of the node may run drivers
            "yarn.scheduler.capacity.maximum-am-resource-percent": 0.5,
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
        }
        write_configuration(self.hdfs.configuration / "yarn-site.xml", settings)
        self.scheduler.start()
        self.node.start()

    def is_serving(self) -> bool:
        """True when the node has registered."""
        metrics = _json_of(self.page_port, "/ws/v1/cluster/metrics").get("clusterMetrics", {})
        return bool(metrics.get("activeNodes") == 1)

    def logs(self) -> str:
        """All that containers have printed."""
        found = sorted((self.directory / "node-manager" / "logs").rglob("std*"))
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')}" for path in found)

    def stop(self) -> None:
        """Stop both."""
        self.node.stop()
        self.scheduler.stop()


def write_configuration(file: Path, settings: Mapping[str, object]) -> None:
    """Write one of Hadoop's files of settings."""
    entries = (
        f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in settings.items()
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"<configuration>\n{''.join(entries)}</configuration>\n", encoding="utf-8")


def _child(directory: Path, configuration: Path, program: str) -> Child:
    classpath = os.pathsep.join(map(str, (configuration, *jar_sets.HADOOP.jars())))
    return Child(
        name=directory.name,
        command=[str(parts.java().executable), *_OPTIONS, "-cp", classpath, program],
        directory=directory,
        log=directory / "hadoop.log",
        environment={"PYSPARK_PYTHON": sys.executable, **parts.spark_environment()},
    )


def _json_of(port: int, path: str) -> dict[str, Any]:
    """A page of a server; empty while it does not answer."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        found: dict[str, Any] = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return found
