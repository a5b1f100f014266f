"""Reconciliation on a cluster of processes. Promised: the same verdict as in a local session, also
if a worker, a broker, or the driver is killed or the link is interrupted; workers need only the
bundle, and log in with the file that their environment names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.class_archives import spark_environment
from deploy.spark_bundle import pack
from deploy.spark_cluster import SparkCluster
from spark_jobs.logs.cluster_client import COMMAND_CONFIG
from tests.spark.conftest import TwoLogs, fresh_logs
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.lone_brokers.secured_broker import jaas
from tests.support.processes.ports import LOOPBACK, free_port
from tests.support.processes.processes import Processes
from tests.support.processes.secured_kafka import PLAIN_MODULE
from tests.support.processes.toxiproxy import Toxiproxy

pytestmark = [pytest.mark.long, pytest.mark.timeout(2000)]

REPOSITORY = Path(__file__).parents[2]
NOW_MS = round(time.time() * 1000)
JOB_WITHIN_S = 900


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("bundle") / "antipode.tar.gz"
    assert {"spark_jobs", "wire", "kio"} <= set(pack(found))
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and three workers that see nothing of this directory."""
    started = SparkCluster(directory=tmp_path_factory.mktemp("cluster"))
    try:
        started.start()
        started.wait_ready()
        yield started
    finally:
        started.stop()


def filled(logs: TwoLogs) -> TwoLogs:
    """Logs of 400 batches that differ in one record."""
    for number in range(400):
        same = batch([b"%d-%d" % (number, index) for index in range(10)], timestamp_ms=NOW_MS)
        other = batch(
            [b"x" if number == 250 else b"%d-%d" % (number, index) for index in range(10)], timestamp_ms=NOW_MS
        )
        logs.append(logs.a, same)
        logs.append(logs.b, other)
    return logs


@pytest.fixture
def differing(logs: TwoLogs) -> TwoLogs:
    return filled(logs)


class Login(NamedTuple):
    """A file with client properties, and the addresses at which source and target ask for them."""

    file: Path
    addresses: tuple[str, str]


class Job:
    """spark-submit of reconcile, with a driver of its own."""

    def __init__(
        self, cluster: SparkCluster, bundle: Path, logs: TwoLogs, out: Path, login: Login | None = None
    ) -> None:
        submit = Path(sys.executable).parent / "spark-submit"
        settings = {
            "spark.executorEnv.PYTHONPATH": "antipode",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
        }
        source, target = (logs.a.bootstrap, logs.b.bootstrap) if login is None else login.addresses
        environment = {} if login is None else {COMMAND_CONFIG: str(login.file)}
        settings |= {f"spark.executorEnv.{name}": value for name, value in environment.items()}
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        arguments = ["--source", source, "--target", target, "--whitelist", logs.topic]
        self.report = out / "report.json"
        self.log = out.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(str(submit), "--master", cluster.address, "--archives", f"{bundle}#antipode", *given),
                    *(str(REPOSITORY / "spark_jobs" / "reconcile.py"), *arguments, "--out", str(out)),
                    *("--settle-timeout-ms", "0", "--deep"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **spark_environment(),
                    "PYTHONPATH": str(REPOSITORY),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": LOOPBACK,
                    **environment,
                },
                start_new_session=True,
            )

    def has_begun(self) -> bool:
        """Whether it reads the logs."""
        assert self.process.poll() in (None, 1), self.log.read_text()
        return "reading 1 partitions" in self.log.read_text()

    def finding(self) -> tuple[int, str, int, int]:
        """The exit code and the only finding."""
        code = self.process.wait(JOB_WITHIN_S)
        assert self.report.exists(), self.log.read_text()[-4000:]
        document = json.loads(self.report.read_text())
        (found,) = document["findings"]
        return code, found["kind"], found["first_offset"], found["last_offset"]


EXPECTED = (1, "diverged", 2500, 2509)


def test_workers_need_the_bundle_alone(cluster: SparkCluster, bundle: Path, differing: TwoLogs, tmp_path: Path) -> None:
    assert Job(cluster, bundle, differing, tmp_path / "out").finding() == EXPECTED


def kill_a_worker(cluster: SparkCluster, _: TwoLogs) -> Callable[[], None]:
    worker = cluster.workers[0]
    worker.send(9)
    eventually_sync(lambda: worker.pid() is None)
    return lambda: [worker.start(), cluster.wait_ready()][1]


def kill_a_broker(_: SparkCluster, logs: TwoLogs) -> Callable[[], None]:
    logs.b.process.kill()
    threading.Timer(3, logs.b.restart).start()
    return lambda: None


@pytest.mark.parametrize("kill", [kill_a_worker, kill_a_broker])
def test_the_verdict_is_the_same_when_a_part_is_killed_in_the_middle(
    cluster: SparkCluster,
    bundle: Path,
    differing: TwoLogs,
    tmp_path: Path,
    kill: Callable[[SparkCluster, TwoLogs], Callable[[], None]],
) -> None:
    job = Job(cluster, bundle, differing, tmp_path / "out")
    eventually_sync(job.has_begun, 400_000)
    restore = kill(cluster, differing)
    try:
        assert job.finding() == EXPECTED
    finally:
        restore()


def test_a_job_whose_driver_is_killed_leaves_no_report_and_runs_again(
    cluster: SparkCluster, bundle: Path, differing: TwoLogs, tmp_path: Path
) -> None:
    job = Job(cluster, bundle, differing, tmp_path / "out")
    eventually_sync(job.has_begun, 400_000)
    os.killpg(job.process.pid, 9)
    job.process.wait()
    assert not job.report.exists()
    assert Job(cluster, bundle, differing, tmp_path / "out").finding() == EXPECTED


def broker_with_login(processes: Processes, directory: Path, login_port: int, advertised: str) -> LoneBroker:
    """A broker with a second listener, at which clients log in."""
    port = free_port()
    found = LoneBroker(
        processes,
        directory,
        **{
            "listeners": f"CLIENT://{LOOPBACK}:{port},LOGIN://{LOOPBACK}:{login_port}",
            "advertised.listeners": f"CLIENT://{LOOPBACK}:{port},LOGIN://{advertised}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_spark="secret";',
        },
    )
    found.port = port
    return found


def test_executors_log_in_and_a_cut_link_changes_no_verdict(
    cluster: SparkCluster, bundle: Path, session_processes: Processes, toxiproxy: Toxiproxy, tmp_path: Path
) -> None:
    near_port, far_port = free_port(), free_port()
    link = toxiproxy.create("link", f"{LOOPBACK}:{far_port}")
    near = broker_with_login(session_processes, tmp_path / "near", near_port, f"{LOOPBACK}:{near_port}")
    far = broker_with_login(session_processes, tmp_path / "far", far_port, link.address)
    logs = filled(fresh_logs((near, far)))
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas('PLAIN', 'spark', 'secret')}\n"
    )
    login = Login(file, (f"{LOOPBACK}:{near_port}", link.address))
    job = Job(cluster, bundle, logs, tmp_path / "out", login)
    eventually_sync(job.has_begun, 400_000)
    link.cut()
    threading.Timer(3, link.restore).start()
    assert job.finding() == EXPECTED
