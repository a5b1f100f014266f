"""The project's producer at a real broker, beside other people's clients: same partitions as Java
and librdkafka, readable by them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from clients.producer.producer import Producer
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.embedded.commands import app
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.fork_server import run_antipode
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes
from wire.batches.record_batch import Compression
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[3]
PARTITIONS = 7


@pytest.fixture
async def topic(lone_broker: LoneBroker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    async with KafkaClient(lone_broker.bootstrap) as client:
        await client.create_topics([NewTopic(name=name, partition_count=PARTITIONS)])
    return name


def keys(count: int) -> list[bytes]:
    return [b"key-%d" % number for number in range(count)] + [b"\xff" * length for length in range(1, 9)]


async def partitions_chosen(broker: LoneBroker, topic: str, given: list[bytes]) -> dict[bytes, int]:
    async with Producer(KafkaClient(broker.bootstrap)) as producer:
        outcomes = {key: await producer.send(ProducerRecord(topic=topic, key=key, value=b"ours")) for key in given}
        await producer.flush()
    return {key: outcome.result().partition for key, outcome in outcomes.items()}


async def test_keys_go_where_librdkafkas_murmur2_sends_them(lone_broker: LoneBroker, topic: str) -> None:
    given = keys(60)
    ours = await partitions_chosen(lone_broker, topic, given)
    theirs = await asyncio.to_thread(
        librdkafka_produce,
        lone_broker.bootstrap,
        topic,
        [Record(value=b"theirs", key=key) for key in given],
        settings={"partitioner": "murmur2"},
    )
    assert ours == dict(zip(given, [place.partition for place in theirs], strict=True))


async def test_keys_go_where_java_sends_them(
    lone_broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    given = keys(40)[:40]
    ours = await partitions_chosen(lone_broker, topic, given)
    settings = {"parse.key": "true", "key.separator": ":"}
    await asyncio.to_thread(_java_produce, kafka_programs, lone_broker.bootstrap, topic, given, settings)
    received = await asyncio.to_thread(librdkafka_consume, lone_broker.bootstrap, topic, 80, group=f"g-{topic}")
    theirs = {record.key: record.partition for record in received if record.value == b"java"}
    assert theirs == ours


def _java_produce(
    programs: KafkaPrograms, bootstrap: str, topic: str, given: list[bytes], settings: dict[str, str]
) -> None:
    properties = [argument for name, value in settings.items() for argument in ("--reader-property", f"{name}={value}")]
    lines = b"".join(key + b":java\n" for key in given)
    programs.run(
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        *properties,
        given=lines,
    )


@pytest.mark.long
def test_a_killed_producer_loses_what_its_queue_had_and_no_more(
    start_broker: Callable[..., LoneBroker], processes: Processes, tmp_path: Path
) -> None:
    """P-09. The broker is killed, too: it has never read what the producer sent to it last."""
    broker = start_broker()
    librdkafka_produce(broker.bootstrap, "t", [Record(value=b"first")])
    (port,) = free_ports(1)
    lines = tmp_path / "lines"
    os.mkfifo(lines)
    command = [sys.executable, "-m", "cli.main", "produce", "t", "-b", broker.bootstrap]
    command += ["--file", str(lines), "--metrics-listener", f"{LOOPBACK}:{port}"]
    producer = processes.run_command("produce", command, tmp_path, {"PYTHONPATH": str(REPOSITORY)})
    with lines.open("wb", buffering=0) as given:
        given.write(b"delivered\n" * 20)
        producer.wait_ready(lambda: _figures(port)['antipode_producer_records_total{outcome="delivered"}'] == 20)
        assert _figures(port)["antipode_producer_queued_records"] == 0
        broker.process.pause()
        given.write(b"queued\n" * 30)
        producer.wait_ready(lambda: _figures(port)["antipode_producer_queued_records"] == 30)
        producer.kill()
    broker.process.kill()
    broker.restart()
    librdkafka_produce(broker.bootstrap, "t", [Record(value=b"last")])
    received = librdkafka_consume(broker.bootstrap, "t", 22, group="g")
    assert [record.value for record in received] == [b"first", *[b"delivered"] * 20, b"last"]


def _figures(port: int) -> dict[str, float]:
    """The producer's metrics so far; the server starts with this call."""
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
    except URLError:
        return defaultdict(float)
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


async def test_batches_of_every_codec_are_read_by_librdkafka(lone_broker: LoneBroker, topic: str) -> None:
    for compression in Compression:
        options = ProducerOptions(compression=compression, batch_records_max=50)
        async with Producer(KafkaClient(lone_broker.bootstrap), options) as producer:
            for number in range(100):
                headers = [("h", b"%d" % number)]
                await producer.send(ProducerRecord(topic=topic, key=b"k", value=b"%d" % number, headers=headers))
    received = await asyncio.to_thread(librdkafka_consume, lone_broker.bootstrap, topic, 500, group=f"g-{topic}")
    assert [record.value for record in received] == [b"%d" % number for number in range(100)] * 5


@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_records_that_fit_are_delivered_to_a_topic_whose_batches_are_small(
    lone_broker: LoneBroker, *, is_idempotent: bool
) -> None:
    """P-15: one record does not fit."""
    name = f"small-{uuid.uuid4().hex[:8]}"
    async with KafkaClient(lone_broker.bootstrap) as client:
        await client.create_topics([NewTopic(name=name, partition_count=1, configs={"max.message.bytes": "3000"})])
    sent = [b"%04d" % number + b"." * 200 for number in range(2000)]
    too_large = 777
    async with Producer(KafkaClient(lone_broker.bootstrap), ProducerOptions(is_idempotent=is_idempotent)) as producer:
        outcomes = [
            await producer.send(ProducerRecord(topic=name, value=value * (20 if number == too_large else 1)))
            for number, value in enumerate(sent)
        ]
        await producer.flush()
    failed = [number for number, outcome in enumerate(outcomes) if outcome.exception() is not None]
    assert failed == [too_large]
    received = await asyncio.to_thread(librdkafka_consume, lone_broker.bootstrap, name, 1999, group=f"g-{name}")
    assert [record.value for record in received] == [value for number, value in enumerate(sent) if number != too_large]


async def test_a_broker_that_is_killed_under_way_costs_no_record_and_makes_no_duplicate(
    start_broker: type[LoneBroker],
) -> None:
    broker = await asyncio.to_thread(start_broker)
    async with KafkaClient(broker.bootstrap) as client:
        await client.create_topics([NewTopic(name="t", partition_count=3)])
    async with Producer(KafkaClient(broker.bootstrap), ProducerOptions(batch_records_max=20)) as producer:
        for number in range(3000):
            await producer.send(ProducerRecord(topic="t", value=b"%d" % number, partition=number % 3))
            if number == 1500:
                broker.process.kill()
                restart = asyncio.create_task(asyncio.to_thread(broker.restart))
        await restart
    received = await asyncio.to_thread(librdkafka_consume, broker.bootstrap, "t", 3000, group="g")
    for partition in range(3):
        found = [int(record.value or b"") for record in received if record.partition == partition]
        assert found == list(range(partition, 3000, 3))
    assert producer.counts.failed == 0


class Command:
    """`antipode produce` as a person types it."""

    def __init__(self, broker: LoneBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic

    def run(self, *arguments: str, given: bytes = b"", code: int = 0) -> str:
        reported, complaints = self.reported(*arguments, given=given, code=code)
        return reported + complaints

    def reported(self, *arguments: str, given: bytes, code: int, modules: Path = REPOSITORY) -> tuple[str, str]:
        line = ("produce", self._topic, "-b", self._broker.bootstrap, *arguments)
        if modules == REPOSITORY:
            done = run_antipode(*line, given=given.decode())
            assert done.returncode == code, (done.stdout, done.stderr)
            return done.stdout, done.stderr
        # A process that imports its modules anew finds those of the test first.
        command = [sys.executable, "-m", "cli.main", *line]
        environment = os.environ | {"PYTHONPATH": str(modules)}
        ended = subprocess.run(
            command, input=given, capture_output=True, check=False, timeout=60, cwd=REPOSITORY, env=environment
        )
        assert ended.returncode == code, (ended.stdout, ended.stderr)
        return ended.stdout.decode(), ended.stderr.decode()


async def test_the_command_sends_lines_with_keys_and_headers(
    lone_broker: LoneBroker, topic: str, tmp_path: Path
) -> None:
    command = Command(lone_broker, topic)
    lines = b"".join(b"%d:value %d\n" % (number % 5, number) for number in range(100))
    (tmp_path / "orders.txt").write_bytes(lines)
    planned = json.loads(command.run("--key-separator", ":", "--dry-run", "-o", "json", given=lines))
    reported = json.loads(
        command.run(
            "--file", str(tmp_path / "orders.txt"), "--key-separator", ":", "--header", "source=file", "-o", "json"
        )
    )
    assert (reported["delivered"], reported["failed"], reported["dropped"]) == (100, 0, 0)
    assert reported["partitions"] == planned["partitions"]
    received = await asyncio.to_thread(librdkafka_consume, lone_broker.bootstrap, topic, 100, group=f"g-{topic}")
    assert min(received).key is not None
    assert {record.value for record in received} == {b"value %d" % number for number in range(100)}


async def test_the_command_flags_a_constant_key(lone_broker: LoneBroker, topic: str) -> None:
    printed = Command(lone_broker, topic).run("--key-separator", ":", given=b"same:x\n" * 50)
    assert "7.0 times its part" in printed


async def test_the_command_takes_a_partitioner_by_its_name(lone_broker: LoneBroker, topic: str) -> None:
    command = Command(lone_broker, topic)
    name = "clients.core.partitioners:RoundRobinPartitioner"
    reported = json.loads(command.run("--partitioner", name, "-o", "json", given=b"x\n" * 14))
    assert set(reported["partitions"].values()) == {2}


FAULTY_PARTITIONER = """
class Faulty:
    def choose(self, choice, draw):
        return 0 if choice.key == b"good" else "nonsense"
    def rotate(self, topic): pass
    def refreshed(self): pass
"""


@pytest.mark.parametrize("bad_line", [b"bad:x", b"no separator"], ids=["partitioner", "separator"])
def test_a_command_that_ends_early_says_what_became_of_every_line(
    lone_broker: LoneBroker, topic: str, tmp_path: Path, bad_line: bytes
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY_PARTITIONER)
    arguments = ["--key-separator", ":", "--partitioner", "faulty:Faulty", "--queue-records", "10"]
    command = Command(lone_broker, topic)
    lines = b"good:x\n" * 30 + bad_line + b"\n" + b"good:x\n" * 5
    printed, complaint = command.reported(*arguments, "-o", "json", given=lines, code=1, modules=tmp_path)
    reported = json.loads(printed)
    # 30 lines went through room for 10
    assert reported["delivered"] >= 20
    assert (reported["lines_read"], reported["delivered"] + reported["unacknowledged"], reported["unsent"]) == (
        31,
        30,
        1,
    )
    assert not reported["is_complete"]
    assert "'nonsense'" in complaint or "no key separator" in complaint
    _, complaint = command.reported(*arguments, given=lines, code=1, modules=tmp_path)
    assert "ended early: of 31 lines" in " ".join(complaint.split())


def test_the_command_says_what_it_accepts(lone_broker: LoneBroker, topic: str) -> None:
    def reported(*arguments: str, code: int) -> str:
        ended = CliRunner().invoke(app, ["produce", topic, "-b", lone_broker.bootstrap, *arguments])
        assert ended.exit_code == code, ended.output
        return " ".join(ended.output.split())

    assert "accepted are murmur2" in reported("--partitioner", "nonsense", code=2)
    assert "it lacks choose" in reported("--partitioner", "json:JSONDecoder", code=2)
    assert "--compression 'rar'" in reported("--compression", "rar", code=2)
    assert "or give --no-idempotence" in reported("--acks", "1", code=2)
    assert "cannot be read" in reported("--file", "not-there.txt", code=1)
