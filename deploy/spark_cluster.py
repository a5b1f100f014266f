"""A standalone Spark cluster as child processes on this machine: a master and some workers, from
the jars of the installed pyspark. For tests, and for trying a job before it goes to a real cluster.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy import parts
from deploy.ports import LOOPBACK, free_port
from runtime.children import Child
from runtime.process import OperationalFailure

READY_WITHIN_S: Final = 60.0
PROBE_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.1
_DEPLOY: Final = "org.apache.spark.deploy"
_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(slots=True, kw_only=True)
class SparkCluster:
    """Ports are chosen when the object is created; use `start`, `wait_ready` and `stop`. The
    executors use this Python.
    """

    directory: Path
    worker_count: int = 3
    cores_each: int = 1
    memory_each_mb: int = 1024
    port: int = field(default_factory=free_port)
    page_port: int = field(default_factory=free_port)
    workers: list[Child] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The value for `spark-submit --master`."""
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def page(self) -> str:
        """The master's web page."""
        return f"http://{LOOPBACK}:{self.page_port}"

    @property
    def master(self) -> Child:
        """The master's process."""
        arguments = ["--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self.page_port)]
        return self._child("master", f"{_DEPLOY}.master.Master", *arguments)

    def start(self) -> None:
        """Start the processes without waiting for them. OperationalFailure without Java or
        pyspark.
        """
        self.master.start()
        self.workers = [self._worker(number) for number in range(self.worker_count)]
        for worker in self.workers:
            worker.start()

    def wait_ready(self) -> None:
        """Wait until every worker has registered. Raises OperationalFailure with the end of the
        log.
        """
        deadline = time.monotonic() + READY_WITHIN_S
        while len(self.alive_workers()) < self.worker_count:
            ended = next((child for child in (self.master, *self.workers) if child.pid() is None), None)
            if ended is not None or time.monotonic() > deadline:
                child = ended or self.master
                raise OperationalFailure(f"{child.name} of the Spark cluster is not ready:\n{child.log_tail()}")
            time.sleep(_POLL_S)

    def alive_workers(self) -> list[str]:
        """Ids of the workers that the master lists as alive now."""
        return [worker["id"] for worker in self._state().get("workers", []) if worker["state"] == "ALIVE"]

    def stop(self) -> None:
        """Stop workers, then the master."""
        for child in (*self.workers, self.master):
            child.stop()

    def _worker(self, number: int) -> Child:
        arguments = ["--host", LOOPBACK, "--cores", str(self.cores_each), "--memory", f"{self.memory_each_mb}M"]
        work = self.directory / f"worker-{number}" / "work"
        pages = ["--webui-port", str(free_port()), "--work-dir", str(work)]
        return self._child(f"worker-{number}", f"{_DEPLOY}.worker.Worker", *arguments, *pages, self.address)

    def _child(self, name: str, program: str, *arguments: str) -> Child:
        directory = self.directory / name
        return Child(
            name=name,
            command=[
                str(parts.java().executable),
                *_OPTIONS,
                "-cp",
                f"{_spark_home() / 'jars'}/*",
                program,
                *arguments,
            ],
            directory=directory,
            log=directory / "spark.log",
            environment={"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK, **_environment()},
        )

    def _state(self) -> dict[str, Any]:
        """The master's page about the cluster; empty while it does not answer."""
        connection = http.client.HTTPConnection(LOOPBACK, self.page_port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/json/")
            found: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return found


def _environment() -> dict[str, str]:
    """The variables that Spark's own scripts set: workers compose the command lines of executors
    from them.
    """
    home = _spark_home()
    core = next((home / "jars").glob("spark-core_*.jar"), None)
    if core is None:
        raise OperationalFailure(f"{home} holds no jars of Spark: run `make setup`")
    scala = core.name.removeprefix("spark-core_").partition("-")[0]
    return {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala, **parts.spark_environment()}


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise OperationalFailure("the Python package pyspark is missing: run `make setup`")
    return Path(spec.origin).parent
