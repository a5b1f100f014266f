"""Makes the class archives: runs ZooKeeper, Apache Kafka's programs and a small Spark job once, and
records which classes they load.

Takes a minute or two in all, once for a checkout. If it fails, everything works, but JVMs start
more slowly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from msgspec.structs import replace

from deploy import apache_kafka, parts
from deploy.apache_kafka import SMALL_JVM, STORAGE_TOOL, ApacheKafkaServer
from deploy.class_archives import KAFKA, SPARK, ZOOKEEPER, ClassArchive, listing_option
from deploy.ports import free_ports
from deploy.zookeeper_server import ZooKeeperServer
from runtime.children import Child
from runtime.process import OperationalFailure

READY_WITHIN_S = 60
PROGRAM_WITHIN_S = 60
SPARK_WITHIN_S = 600
POLL_S = 0.05
TOPIC = "trained"
GROUP = "trainees"


def ensure_zookeeper(say: Callable[[str], None]) -> None:
    """The archive of ZooKeeper's classes. Raises OperationalFailure, which says why the archive
    cannot be made.
    """
    _ensure(ZOOKEEPER, _run_zookeeper, say)


def ensure_kafka(say: Callable[[str], None]) -> None:
    """The archive of the classes of Apache Kafka's broker and tools. Raises OperationalFailure,
    which says why the archive cannot be made.
    """
    _ensure(KAFKA, _run_kafka, say)


def ensure_spark(say: Callable[[str], None]) -> None:
    """The archive of the classes of a local Spark session. Raises OperationalFailure, which says
    why the archive cannot be made.
    """
    if not SPARK.file.is_file():
        say("noting which classes spark loads, for quicker starts (once, about a minute)")
        SPARK.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=SPARK.directory, prefix="run-") as scratch:
            made = Path(scratch) / "spark.jsa"
            command = [sys.executable, "-m", "deploy.spark_training", str(made)]
            environment = {**os.environ, **parts.spark_environment(), "PYSPARK_PYTHON": sys.executable}
            try:
                ended = subprocess.run(
                    command, capture_output=True, text=True, check=False, env=environment, timeout=SPARK_WITHIN_S
                )
            except (OSError, subprocess.SubprocessError) as failure:
                raise OperationalFailure(f"no archive of spark's classes: {failure}") from failure
            if ended.returncode != 0 or not made.is_file():
                raise OperationalFailure(f"no archive of spark's classes: {ended.stderr.strip()[-500:]}")
            SPARK.keep(made)
    say("class archive of spark")


def _ensure(archive: ClassArchive, run: Callable[[Path], None], say: Callable[[str], None]) -> None:
    if not archive.file.is_file():
        say(f"noting which classes {archive.name} loads, for quicker starts (once)")
        archive.directory.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(dir=archive.directory, prefix="run-") as scratch_name:
                scratch = Path(scratch_name)
                run(scratch)
                archive.make(sorted(scratch.glob("*.lst")))
        except (OSError, subprocess.SubprocessError) as failure:
            raise OperationalFailure(f"no archive of {archive.name}'s classes: {failure}") from failure
    say(f"class archive of {archive.name}")


def _run_zookeeper(scratch: Path) -> None:
    port = free_ports(1)[0]
    server = ZooKeeperServer(name="zookeeper", directory=scratch / "zookeeper", port=port)
    child = server.child()
    program, *arguments = child.command
    with _running(replace(child, command=[program, listing_option(scratch), *arguments]), server.is_serving):
        client = KazooClient(server.connect)
        client.start(timeout=READY_WITHIN_S)
        try:
            client.create("/trained/node", b"value", ephemeral=True, makepath=True)
        finally:
            client.stop()
            client.close()


def _run_kafka(scratch: Path) -> None:
    port, controller_port = free_ports(2)
    jvm = (*SMALL_JVM, listing_option(scratch))
    server = ApacheKafkaServer(
        name="kafka",
        directory=scratch / "kafka",
        port=port,
        controller_port=controller_port,
        jvm=jvm,
        settings={"offsets.topic.num.partitions": "1"},
    )
    server.format()
    with _running(server.child(), server.is_serving):
        for main_class, *arguments in _tool_runs(server.bootstrap_servers):
            _run_program(main_class, arguments, jvm)
    segments = ",".join(map(str, (scratch / "kafka" / "data").glob(f"{TOPIC}-*/*.log")))
    _run_program("org.apache.kafka.tools.DumpLogSegments", ["--files", segments, "--print-data-log"], jvm)
    _run_program(STORAGE_TOOL, ["info", "-c", str(server.directory / "server.properties")], jvm)


def _tool_runs(servers: str) -> Iterator[Sequence[str]]:
    """Programs with arguments, which end by themselves."""
    tools = "org.apache.kafka.tools"
    at = ("--bootstrap-server", servers)
    topic = ("--topic", TOPIC)
    yield (f"{tools}.TopicCommand", *at, "--create", *topic, "--partitions", "2")
    yield (f"{tools}.TopicCommand", *at, "--describe")
    yield (f"{tools}.ConsoleProducer", *at, *topic)
    yield (f"{tools}.VerifiableProducer", *at, *topic, "--max-messages", "5", "--acks", "-1")
    yield (
        f"{tools}.consumer.ConsoleConsumer",
        *(*at, *topic, "--group", GROUP, "--from-beginning", "--max-messages", "3"),
    )
    yield (f"{tools}.VerifiableConsumer", *at, *topic, "--group-id", f"{GROUP}-2", "--max-messages", "2")
    yield (f"{tools}.consumer.group.ConsumerGroupCommand", *at, "--describe", "--all-groups")
    yield (f"{tools}.GetOffsetShell", *at, *topic)
    yield ("kafka.admin.ConfigCommand", *at, "--describe", "--entity-type", "topics", "--entity-name", TOPIC)
    yield (f"{tools}.LogDirsCommand", *at, "--describe")


def _run_program(main_class: str, arguments: Sequence[str], jvm: Sequence[str]) -> None:
    """Run the program to its end; only its loaded classes matter, not its result."""
    command = apache_kafka.program(main_class, *arguments, jvm=jvm)
    subprocess.run(command, input=b"a\nb\n", capture_output=True, check=False, timeout=PROGRAM_WITHIN_S)


@contextmanager
def _running(child: Child, is_serving: Callable[[], bool]) -> Iterator[None]:
    """The process serves within the block and is stopped in order after it, so that it writes its
    list.
    """
    child.start()
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while not is_serving():
            if child.pid() is None or time.monotonic() > deadline:
                raise OperationalFailure(f"{child.name} does not come up:\n{child.log_tail()}")
            time.sleep(POLL_S)
        yield
    finally:
        child.stop()
