"""The runbook of MirrorMaker 2's operators, step by step between two Apache Kafkas: a planned move
of the clients to the target cluster, and the same after the loss of the source (kill -9).

Each step runs the command that the runbook names and is measured until the command has ended; a
step that waits repeats its command until the answer allows the next step. The time in which an
operator reads, thinks and types counts as zero, so the sum is a lower bound of what clients see.

Steps: find out that the source is lost (an API request of `kafka-broker-api-versions` fails; loss
only), stop the producers, wait until no record is missing (`kafka-get-offsets` at both clusters, or
twice at the target when the source is lost), stop MirrorMaker 2 (kill -9 when the source is lost),
set the group's offsets at the target (`kafka-consumer-groups --reset-offsets`), start the clients
at the target, until the first acknowledgement. MirrorMaker 2 mirrors with its best known settings
and carries groups' offsets each second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import metered
from bench.peers.systems import STOP_TIMEOUT_MS, create_topic
from bench.sections.mirrors.mirror import MirrorPair, kafka_pair
from deploy.apache_kafka import program
from runtime.process import OperationalFailure

TOOLS: Final = "org.apache.kafka.tools"
API_VERSIONS: Final = f"{TOOLS}.BrokerApiVersionsCommand"
GET_OFFSETS: Final = f"{TOOLS}.GetOffsetShell"
CONSUMER_GROUPS: Final = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
GROUP: Final = "application"
RECORDS: Final = 1_000
COMMAND_WITHIN_S: Final = 300
STEP_WITHIN_S: Final = 300
SILENT_AFTER_MS: Final = 2_000
"""The timeout (ms) of the monitor's request: our lease in the same section."""
MIRROR_SETTINGS: Final = {
    "A->B.sync.group.offsets.enabled": "true",
    "A->B.sync.group.offsets.interval.seconds": "1",
    "A->B.emit.checkpoints.interval.seconds": "1",
    "A->B.refresh.topics.interval.seconds": "1",
}


def measure_runbook(plan: Plan, *, topic: str, partitions: int, planned: str, lost: str) -> None:
    """Record a planned move in the case `planned`, and a loss in the case `lost`."""
    for case, is_lost in ((planned, False), (lost, True)):
        plan.say(f"recovery-time: {case}, MirrorMaker 2's runbook")
        directory = plan.directory / f"runbook-{case.replace(', ', '-').replace(' ', '-')}"
        with kafka_pair(directory, (topic,), MIRROR_SETTINGS) as pair:
            create_topic(pair.source, topic, partition_count=partitions)
            monitor = _monitor_file(directory)
            try:
                pair.child.start()
                # of this process: the runbook stops MirrorMaker 2
                with metered(os.getpid()) as usage:
                    steps = _Runbook(pair, topic, monitor).carried_out(is_lost=is_lost)
            finally:
                pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)
        whole_ms = sum(steps.values())
        whole = {"whole_ms": whole_ms} if is_lost else {"slowest_p50_ms": whole_ms, "slowest_p99_ms": whole_ms}
        plan.record("recovery-time", case, Side.PEER, usage, **steps, **whole)


class _Runbook:
    """One move of a producer and a group from A to B."""

    def __init__(self, pair: MirrorPair, topic: str, monitor: Path) -> None:
        self._pair = pair
        self._topic = topic
        self._mirrored = pair.target_topic(topic)
        self._monitor = monitor

    def carried_out(self, *, is_lost: bool) -> dict[str, float]:
        """The ms of each step, by the name of its figure."""
        pair = self._pair
        producer = _producer(pair.source)
        _write(producer, self._topic, RECORDS)
        _until(lambda: self._end_sum(pair.target, self._mirrored) >= RECORDS)
        _read_all(pair.source, self._topic)
        steps: dict[str, float] = {}
        if is_lost:
            _kill(pair)
            steps["detection_ms"] = _ms_of(lambda: _until(self._is_silent))
            # nothing of the producer can be delivered any more
            steps["runbook_stop_ms"] = _ms_of(producer.purge)
        else:
            steps["runbook_stop_ms"] = _ms_of(producer.flush)
        steps["runbook_lag_ms"] = _ms_of(self._wait_at_rest if is_lost else self._wait_complete)
        steps["runbook_mirror_ms"] = _ms_of(lambda: self._stop_mirror(is_lost=is_lost))
        steps["runbook_offsets_ms"] = _ms_of(lambda: self._set_offsets(is_lost=is_lost))
        steps["runbook_clients_ms"] = _ms_of(lambda: _write(_producer(pair.target), self._mirrored, 1))
        return steps

    def _stop_mirror(self, *, is_lost: bool) -> None:
        """An orderly stop waits half a minute for a source that is lost, and has nothing to save:
        all that came from it is at the target.
        """
        if is_lost:
            self._pair.child.send(signal.SIGKILL)
        self._pair.child.stop(timeout_ms=STOP_TIMEOUT_MS)

    def _is_silent(self) -> bool:
        command = (API_VERSIONS, "--bootstrap-server", self._pair.source, "--command-config", str(self._monitor))
        return _run(command).returncode != 0

    def _wait_complete(self) -> None:
        sent = self._end_sum(self._pair.source, self._topic)
        _until(lambda: self._end_sum(self._pair.target, self._mirrored) >= sent)

    def _wait_at_rest(self) -> None:
        seen = [-1]

        def is_at_rest() -> bool:
            seen.append(self._end_sum(self._pair.target, self._mirrored))
            return seen[-1] == seen[-2]

        _until(is_at_rest)

    def _end_sum(self, bootstrap_servers: str, topic: str) -> int:
        ended = _run((GET_OFFSETS, "--bootstrap-server", bootstrap_servers, "--topic", topic))
        lines = [line.split(":") for line in ended.stdout.splitlines()]
        return sum(int(line[2]) for line in lines if len(line) == 3 and line[0] == topic and line[2].isdigit())

    def _set_offsets(self, *, is_lost: bool) -> None:
        """After a planned move the group has read everything. After a loss it reads the last minute
        again: MirrorMaker's checkpoints know an offset only as of a while ago.
        """
        to = ("--by-duration", "PT1M") if is_lost else ("--to-latest",)
        command = (CONSUMER_GROUPS, "--bootstrap-server", self._pair.target, "--group", GROUP)
        ended = _run((*command, "--topic", self._mirrored, "--reset-offsets", *to, "--execute"))
        if ended.returncode != 0:
            raise OperationalFailure(f"the group's offsets could not be set: {ended.stdout}{ended.stderr}")


def _monitor_file(directory: Path) -> Path:
    file = directory / "monitor.properties"
    keys = ("request.timeout.ms", "default.api.timeout.ms", "socket.connection.setup.timeout.ms")
    file.write_text("".join(f"{key}={SILENT_AFTER_MS}\n" for key in keys), encoding="utf-8")
    return file


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program(*command), capture_output=True, text=True, check=False, timeout=COMMAND_WITHIN_S)


def _producer(bootstrap_servers: str) -> Any:
    from confluent_kafka import Producer

    # A producer whose cluster is lost goes on to report that until the process ends.
    return Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0, "log_level": 0})


def _write(producer: Any, topic: str, count: int) -> None:
    """Write records and wait until all are acknowledged. Raises OperationalFailure."""
    failures: list[str] = []

    def note(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    for _ in range(count):
        producer.produce(topic, b"v" * 100, on_delivery=note)
    left = producer.flush(STEP_WITHIN_S)
    if left or failures:
        raise OperationalFailure(f"{left + len(failures)} records were not acknowledged: {failures[:1]}")


def _read_all(bootstrap_servers: str, topic: str) -> None:
    """Read what was written as a member of the group, and commit."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        read, deadline = 0, time.monotonic() + STEP_WITHIN_S
        while read < RECORDS and time.monotonic() < deadline:
            read += len(consumer.consume(RECORDS, timeout=1.0))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _kill(pair: MirrorPair) -> None:
    source = pair.source_child
    if source is None:
        raise OperationalFailure("the pair has no source that can be killed")
    source.send(signal.SIGKILL)


def _until(is_met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STEP_WITHIN_S
    while not is_met():
        if time.monotonic() > deadline:
            raise OperationalFailure(f"a step of the runbook is not done after {STEP_WITHIN_S} s")


def _ms_of(step: Callable[[], object]) -> float:
    began = time.monotonic()
    step()
    return (time.monotonic() - began) * 1000
