"""A real file system that runs full under a broker, and one that is still full when it is started
again after a crash.

Promised: one clear line in the log, KAFKA_STORAGE_ERROR to the producer, everything acknowledged is
kept and served, nothing is left half-written, and the broker goes on by itself once there is room.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.broker.test_requests import create, records, want
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.batches.record_batch import iterate_headers
from wire.client.requests.fetch_requests import FetchRequest

pytestmark = pytest.mark.integration

DISK_BYTES = 32 * 1024 * 1024
BATCH_BYTES = 256 * 1024
KAFKA_STORAGE_ERROR = 56


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of DISK_BYTES."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    # The broker still has files open when a test has failed.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def produce_until_refused(client: RawClient, topic: str) -> tuple[int, int]:
    """(error code, end offset of the acknowledged records)."""
    acknowledged = 0
    for _ in range(2 * DISK_BYTES // BATCH_BYTES):
        answer = client.produce(topic, records(1, BATCH_BYTES))
        if answer.error_code:
            return int(answer.error_code), acknowledged
        acknowledged = answer.base_offset + 1
    raise AssertionError(f"{acknowledged} batches of {BATCH_BYTES} B fit on {DISK_BYTES} B")


def offsets_read(client: RawClient, topic: str) -> list[int]:
    found: list[int] = []
    while True:
        fetched = client.fetch(FetchRequest([want(topic, len(found))], max_wait_ms=0)).topics[0].partitions[0]
        headers = [header.base_offset for _, header in iterate_headers(bytes(fetched.records or b""))]
        if not headers:
            return found
        found += headers


def test_a_disk_that_runs_full_refuses_writes_serves_reads_and_goes_on_when_there_is_room(
    start_broker: Callable[..., LoneBroker], small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(DISK_BYTES // 2))
    broker = start_broker(log_dirs=str(small_disk / "data"))
    with RawClient(broker.port) as client:
        create(client, "t", retention_ms="-1")
        error_code, acknowledged = produce_until_refused(client, "t")
        assert error_code == KAFKA_STORAGE_ERROR
        assert acknowledged > 0
        assert offsets_read(client, "t") == list(range(acknowledged))
        eventually_sync(lambda: "No space left on device" in broker.process.log_text())
        ballast.unlink()

        def is_taken() -> bool:
            return bool(client.produce("t", records()).base_offset == acknowledged)

        eventually_sync(is_taken)
        assert offsets_read(client, "t") == list(range(acknowledged + 1))


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as rest:
        while rest.write(bytes(4096)):
            pass


def test_a_broker_killed_on_a_full_disk_says_so_and_has_everything_when_there_is_room(
    start_broker: Callable[..., LoneBroker], small_disk: Path
) -> None:
    broker = start_broker(log_dirs=str(small_disk / "data"))
    with RawClient(broker.port) as client:
        create(client, "t", retention_ms="-1")
        _, acknowledged = produce_until_refused(client, "t")
    rest = small_disk / "rest"
    with pytest.raises(OSError, match="No space left"):
        fill(rest)
    broker.process.kill()
    broker.process.start()
    assert broker.process.wait_ended() == 1
    (complaint,) = [line for line in broker.process.log_text().splitlines() if line.startswith("error: ")]
    assert complaint.endswith("No space left on device")
    rest.unlink()
    broker.restart()
    with RawClient(broker.port) as client:
        assert offsets_read(client, "t") == list(range(acknowledged))
