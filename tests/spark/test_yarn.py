"""Jobs on YARN, with one node. Promised: a reconciliation and a pipeline run in client mode and in
cluster mode, with the bundle alone at the node; a checkpoint on HDFS is good in both modes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.class_archives import spark_environment
from deploy.spark_bundle import pack
from deploy.stores.hadoop import Hdfs, Yarn
from tests.spark.conftest import TwoLogs
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.transactional_clients import read_values
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.processes.ports import LOOPBACK
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

REPOSITORY = Path(__file__).parents[2]
JOB_WITHIN_S = 600
SERVING_WITHIN_MS = 180_000


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("bundle") / "antipode.tar.gz"
    pack(found)
    return found


@pytest.fixture(scope="module")
def yarn(hadoop_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    hdfs = Hdfs(directory=tmp_path_factory.mktemp("hdfs"))
    started = Yarn(directory=tmp_path_factory.mktemp("yarn"), hdfs=hdfs)
    try:
        hdfs.start()
        eventually_sync(hdfs.is_serving, SERVING_WITHIN_MS)
        started.start()
        eventually_sync(started.is_serving, SERVING_WITHIN_MS)
        yield started
    finally:
        started.stop()
        hdfs.stop()


class Submitter:
    """spark-submit to YARN, of a file of `spark_jobs`."""

    def __init__(self, yarn: Yarn, bundle: Path) -> None:
        self._yarn = yarn
        self._bundle = bundle

    def run(self, mode: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        settings = {
            "spark.executorEnv.PYTHONPATH": "antipode",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": LOOPBACK,
            "spark.yarn.jars": f"local:{Path(spark.origin).parent / 'jars'}/*",
            "spark.yarn.maxAppAttempts": "1",
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        if mode == "cluster":
            settings |= {
                "spark.yarn.appMasterEnv.PYTHONPATH": "antipode",
                "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
            }
        else:
            settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        return subprocess.run(
            [
                *(str(Path(sys.executable).parent / "spark-submit"), "--master", "yarn", "--deploy-mode", mode),
                *("--archives", f"{self._bundle}#antipode", *given),
                *(str(REPOSITORY / "spark_jobs" / program), *arguments),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=JOB_WITHIN_S,
            env={
                **os.environ,
                **spark_environment(),
                "HADOOP_CONF_DIR": str(self._yarn.hdfs.configuration),
                "PYTHONPATH": str(REPOSITORY),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": LOOPBACK,
            },
        )

    def story(self, ended: subprocess.CompletedProcess[str]) -> str:
        """What a failed job has printed, here and in its containers."""
        return f"{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}\n{self._yarn.logs()[-8000:]}"


@pytest.fixture
def submitter(yarn: Yarn, bundle: Path) -> Submitter:
    return Submitter(yarn, bundle)


def topic_of(bootstrap: str, *, partitions: int) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"

    async def create() -> None:
        async with KafkaClient(bootstrap) as client:
            wanted = NewTopic(name=name, partition_count=partitions, replication_factor=1)
            (outcome,) = await client.create_topics([wanted])
            assert not outcome.error_code, outcome

    asyncio.run(create())
    return name


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_reconciliation_names_the_batch_that_differs(
    submitter: Submitter, logs: TwoLogs, tmp_path: Path, mode: str
) -> None:
    now_ms = round(time.time() * 1000)
    logs.append_both(batch([b"1", b"2"], timestamp_ms=now_ms))
    logs.append(logs.a, batch([b"3"], timestamp_ms=now_ms))
    logs.append(logs.b, batch([b"4"], timestamp_ms=now_ms))
    out = tmp_path / "report"
    sites = ("--source", logs.a.bootstrap, "--target", logs.b.bootstrap, "--whitelist", logs.topic)
    ended = submitter.run(mode, "reconcile.py", *sites, "--out", str(out), "--settle-timeout-ms", "0")
    assert ended.returncode == 1, submitter.story(ended)
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert [(one["kind"], one["first_offset"]) for one in found["findings"]] == [("diverged", 2)]


def test_a_pipeline_goes_on_from_its_checkpoint_in_the_other_mode(
    submitter: Submitter, yarn: Yarn, logs: TwoLogs
) -> None:
    bootstrap = logs.a.bootstrap
    words = topic_of(bootstrap, partitions=1)
    lines, checkpoint = topic_of(bootstrap, partitions=2), f"{yarn.hdfs.address}/checkpoints/{words}"
    given = ("--bootstrap-server", bootstrap, "--input-topic", lines, "--output-topic", words)
    for mode, counts in (("client", {"road": 2, "night": 1}), ("cluster", {"road": 3, "night": 1, "plate": 1})):
        text = b"road road night" if mode == "client" else b"plate road"
        librdkafka_produce(bootstrap, lines, [Record(value=text, partition=0)])
        ended = submitter.run(mode, "pipelines/word_count.py", *given, "--checkpoint", checkpoint, "--once")
        assert ended.returncode == 0, submitter.story(ended)
        read = [json.loads(value) for value in read_values(bootstrap, words, 1)[0]]
        assert {one["word"]: one["count"] for one in read} == counts
