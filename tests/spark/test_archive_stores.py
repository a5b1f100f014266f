"""Archives on HDFS and on a store with S3's interface, by the commands that a person runs.
Promised: what holds on a local disk holds there. Each range is stored once, also after kill -9; of
several that create a manifest one succeeds; an archiver that was paused names no removed file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.stores import object_store
from deploy.stores.hadoop import Hdfs
from deploy.stores.object_store import ObjectStore
from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import BATCHES, next_manifest
from spark_jobs.archiving.directories import directory_at
from spark_jobs.archiving.lock import CLAIMS, ArchiveLock
from spark_jobs.archiving.store import MANIFESTS, UNFINISHED, ArchiveStore
from tests.spark.test_archive import batch
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync
from wire.client.raw_client import KafkaClient, NewTopic, call_client

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
PARTITIONS = 2
CREATORS = 8
COMMAND_WITHIN_S = 300


class Place(NamedTuple):
    """A store: the address of a directory in it, and the variables by which commands reach it."""

    address: str
    environment: Mapping[str, str]


@pytest.fixture(scope="module")
def hdfs(hadoop_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    started = Hdfs(directory=tmp_path_factory.mktemp("hdfs"))
    try:
        started.start()
        eventually_sync(started.is_serving)
        yield Place(f"{started.address}/archives", {})
    finally:
        started.stop()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    try:
        object_store.install(print)
    except OperationalFailure as failure:
        pytest.skip(str(failure))
    store = ObjectStore(directory=tmp_path_factory.mktemp("s3"))
    store.make_bucket("archives")
    child = store.child()
    try:
        child.start()
        eventually_sync(store.is_serving)
        yield Place("s3a://archives/of%20sites", store.environment)
    finally:
        child.stop()


@pytest.fixture(params=["hdfs", "s3"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A directory of this test's own."""
    found: Place = request.getfixturevalue(request.param)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    return found._replace(address=f"{found.address}/{request.node.name.partition('[')[0]}")


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[EmbeddedSites]:
    """Two sites that know nothing of each other."""
    starter = SitesStarter(tmp_path)
    try:
        yield starter("--no-link", "--no-proxy")
    finally:
        starter.end_all()


def antipode(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", *arguments]


def run(*arguments: str) -> dict[str, Any]:
    """The report of a command that succeeds."""
    ended = subprocess.run(
        antipode(*arguments, "--output", "json"),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=COMMAND_WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def killed_while_it_archives(store: ArchiveStore, command: list[str], folder: str) -> None:
    """Kill the archiver and its workers as soon as it has written a file of the folder. It has one
    core, so that it writes its files one after the other.
    """
    before = set(store.paths(folder))
    command = [*command, "--cores", "1"]
    process = subprocess.Popen(command, start_new_session=True, cwd=REPOSITORY, stderr=subprocess.DEVNULL)

    def has_written() -> bool:
        return bool(set(store.paths(folder)) - before) or process.poll() is not None

    eventually_sync(has_written)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the archiver ended before it was killed"


def fill(bootstrap: str, topic: str, *, count: int, size_bytes: int = 1_000) -> None:
    """Append `count` batches of 500 records to each partition."""

    async def produce(client: KafkaClient) -> None:
        for partition in range(PARTITIONS):
            for _ in range(count):
                await client.produce(topic, partition, batch(*(os.urandom(size_bytes) for _ in range(500))))

    call_client(bootstrap, produce)


def create(bootstrap: str, topic: str) -> None:
    async def create_topic(client: KafkaClient) -> None:
        (outcome,) = await client.create_topics([NewTopic(name=topic, partition_count=2, replication_factor=1)])
        assert not outcome.error_code, outcome

    call_client(bootstrap, create_topic)


def test_batches_are_archived_over_kills_verified_restored_and_expired(sites: EmbeddedSites, place: Place) -> None:
    a, b, store = sites.bootstrap("a"), sites.bootstrap("b"), ArchiveStore.at(place.address)
    create(a, "orders")
    fill(a, "orders", count=4)
    command = ("archive", "--bootstrap-server", a, "--to", place.address, "--topics", "orders")
    assert run(*command)["planned_offsets"] == 4_000
    fill(a, "orders", count=40)
    for folder in (CLAIMS, UNFINISHED, BATCHES):
        killed_while_it_archives(store, antipode(*command), folder)
    report = run(*command)
    assert (report["planned_offsets"], report["problems"], report["holes"]) == (40_000, [], [])
    assert run(*command, "--dry-run")["planned_offsets"] == 0
    checked = run("archive", "verify", "--from", place.address, "--bootstrap-server", a)
    assert (checked["problems"], checked["unnamed_files"], checked["not_compared"]) == ([], [], [])
    assert checked["compared_ranges"] == checked["files"]
    known = ("--environment", str(sites.directory / "environment.json"), "--at", "b")
    restored = run("restore", "--from", place.address, "--bootstrap-server", b, *known)
    assert restored["offsets"] == 44_000
    compared = run("reconcile", "--source", a, "--target", b, "--whitelist", "orders", "--quick")
    assert compared["verdict"] == "equal"
    expired = run("archive", "expire", "--from", place.address, "--bytes-max", str(checked["bytes"] // 2))
    assert expired["ranges"]
    checked = run("archive", "verify", "--from", place.address)
    assert (checked["problems"], checked["bytes"]) == ([], expired["kept_bytes"])
    assert run(*command)["planned_offsets"] == 0


def test_records_are_archived_verified_and_written_again(sites: EmbeddedSites, place: Place) -> None:
    a, b = sites.bootstrap("a"), sites.bootstrap("b")
    create(a, "payments")
    fill(a, "payments", count=2)
    command = ("archive", "--bootstrap-server", a, "--to", place.address, "--format", "records")
    report = run(*command, "--topics", "payments")
    assert (report["records"], report["problems"]) == (2_000, [])
    assert run("archive", "verify", "--from", place.address)["problems"] == []
    restored = run("restore", "--from", place.address, "--bootstrap-server", b, "--topics", "payments")
    assert restored["offsets"] == 2_000


def test_of_several_that_create_a_file_one_succeeds(place: Place) -> None:
    directory = directory_at(place.address)
    for number in range(10):
        path = f"{MANIFESTS}/{number}.json"
        documents = [b"%d" % creator * 1_000 for creator in range(CREATORS)]

        def created(data: bytes, path: str = path) -> bool:
            with suppress(FileExistsError):
                directory.create(path, data)
                return True
            return False

        with ThreadPoolExecutor(CREATORS) as pool:
            successes = list(pool.map(created, documents))
        (winner,) = [data for data, is_success in zip(documents, successes, strict=True) if is_success]
        with directory.open_reader(path) as file:
            assert file.read() == winner
    assert len(directory.sizes(MANIFESTS)) == 10


def test_files_are_replaced_read_in_parts_and_removed(place: Place) -> None:
    directory = directory_at(place.address)
    assert (directory.sizes("none"), directory.size("none")) == ({}, None)
    directory.put("one", b"1")
    for content in (b"first", b"second one"):
        writer = directory.open_writer(f"{UNFINISHED}/file")
        writer.write(memoryview(content))
        writer.close()
        directory.replace(f"{UNFINISHED}/file", "batches/0 of+a%20b/file=1")
        directory.put("one", content)
    assert directory.sizes("batches") == {"batches/0 of+a%20b/file=1": 10}
    assert (directory.size("one"), directory.size("batches"), directory.sizes(UNFINISHED)) == (10, None, {})
    with directory.open_reader("batches/0 of+a%20b/file=1") as file:
        assert (file.read(3), file.tell(), file.seek(-3, os.SEEK_END), file.read()) == (b"sec", 3, 7, b"one")
    directory.remove("one")
    assert directory.size("one") is None
    with pytest.raises(FileNotFoundError):
        directory.remove("one")
    with pytest.raises(FileNotFoundError), directory.open_reader("one") as file:
        file.read()


def test_one_archiver_at_a_time_writes_and_one_that_was_paused_cannot(sites: EmbeddedSites, place: Place) -> None:
    a, store = sites.bootstrap("a"), ArchiveStore.at(place.address)
    create(a, "orders")
    fill(a, "orders", count=1)
    command = antipode("archive", "--bootstrap-server", a, "--to", place.address, "--topics", "orders")
    with ArchiveLock(store).held():
        refused = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert refused.returncode == 1
    assert f"in use by process {os.getpid()} at" in " ".join(refused.stderr.split())
    assert store.paths(CLAIMS) == []
    of_the_paused = next_manifest(store.manifests(), BATCHES, started_at_ms=1)
    store.put(f"{BATCHES}/of the paused one", b"1")
    subprocess.run(command, check=True, cwd=REPOSITORY)
    with pytest.raises(OperationalFailure, match="another archiver"):
        store.write_manifest(of_the_paused)
    assert run("archive", "verify", "--from", place.address)["unnamed_files"] == []


def refused(*arguments: str, environment: Mapping[str, str | None]) -> str:
    """The only line that a command prints when it ends with 1: before Spark, which prints its
    start.
    """
    known = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    ended = subprocess.run(
        antipode(*arguments), capture_output=True, text=True, cwd=REPOSITORY, check=False, env=known, timeout=60
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    return line


COMMANDS = (("archive", "verify", "--from"), ("archive", "expire", "--bytes-max", "0", "--from"), ("restore", "--from"))


def test_a_store_that_cannot_be_used_is_named_in_one_line_without_spark(place: Place) -> None:
    if place.address.startswith("s3a"):
        wrong: list[tuple[str, dict[str, str | None], str]] = [
            ("s3a://archives/none", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "Failed to connect to 127.0.0.1"),
            ("s3a://missing/none", {}, "The specified bucket does not exist"),
            ("s3a://archives/none", {"AWS_SECRET_ACCESS_KEY": "no"}, "SIGNATURE_DOES_NOT_MATCH"),
            ("s3a://archives/none", {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "no credentials"),
        ]
    else:
        wrong = [
            ("hdfs://127.0.0.1:1/none", {}, "no name node answers (127.0.0.1:1: "),
            ("hdfs://127.0.0.1/none", {}, "has no port"),
        ]
    for number, (address, environment, reason) in enumerate(wrong):
        line = refused(*COMMANDS[number % len(COMMANDS)], address, environment=environment)
        assert f"the archive {address} cannot be used: " in line
        assert reason in line
    for command in COMMANDS:
        line = refused(*command, place.address, environment={})
        assert f"there is no archive at {place.address}: it holds no manifest" in line
