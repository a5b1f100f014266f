"""`reconcile --quick` of two sites with a thousand partitions of 20 MB each. Promised: equal sites
exchange less than 200 KB; one flipped bit is named, for less than 1 MB, also when its batch is
opened.

The files of all partitions but the damaged one are links to the segment of one partition, so that
20 GB of logs take 20 MB of the disk. Seconds and the memory of the command are printed and not
judged.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.disks.log_batches import batch
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.ports import free_ports
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient, NewTopic, call_client

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

TOPIC: Final = "big"
PARTITIONS: Final = int(os.environ.get("ANTIPODE_PROOF_PARTITIONS", "1000"))
BATCHES: Final = 320
RECORDS: Final = 64
RECORD_BYTES: Final = 1_000
DAMAGED: Final = PARTITIONS // 2
NOW_MS: Final = round(time.time() * 1000)
CRC_POSITION: Final = 17
DIGESTS: Final = "range-digests"
SEGMENT: Final = "00000000000000000000.log"


class CountingLine:
    """Carries connections from its own port to another one, and counts the bytes of both
    directions.
    """

    def __init__(self, port: int, to_port: int) -> None:
        self.carried_bytes = 0
        self.port, self._to_port = port, to_port
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        is_listening = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(is_listening),))
        self._thread.start()
        is_listening.wait()

    def close(self) -> None:
        """End after the connections of the command, which closes its own."""
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self, is_listening: threading.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        async with server:
            is_listening.set()
            await self._is_over.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.carried_bytes += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


def fill(broker: LoneBroker) -> None:
    """A topic of which partition 0 alone has records."""
    content = random.Random(18)
    sealed = batch([content.randbytes(RECORD_BYTES) for _ in range(RECORDS)], timestamp_ms=NOW_MS)

    async def run(client: KafkaClient) -> None:
        wanted = NewTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=1)
        (outcome,) = await client.create_topics([wanted])
        assert not outcome.error_code, outcome
        for _ in range(BATCHES):
            await client.produce(TOPIC, 0, sealed)

    call_client(broker.bootstrap, run)


def share_segment(directory: Path, source: Path) -> None:
    """Make the segment of every partition a link to this one; the broker is stopped."""
    for number in range(PARTITIONS):
        log = directory / f"{TOPIC}-{number}"
        for stale in (*log.glob("*.index"), *log.glob("*.timeindex"), log / DIGESTS, log / SEGMENT):
            stale.unlink(missing_ok=True)
        os.link(source, log / SEGMENT)


def flip_bit(log: Path) -> None:
    """One bit of the checksum in the header of the tenth batch, in a file of its own."""
    segment = log / SEGMENT
    own = segment.with_suffix(".own")
    shutil.copyfile(segment, own)
    position = segment.stat().st_size // BATCHES * 9 + CRC_POSITION
    with own.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))
    own.rename(segment)
    (log / DIGESTS).unlink()


@pytest.fixture
def sites(processes: Processes, tmp_path: Path) -> Iterator[tuple[LoneBroker, LoneBroker, CountingLine]]:
    """Two sites with equal logs; the second one is at the end of a line that counts."""
    (line_port,) = free_ports(1)
    first = LoneBroker(processes, tmp_path / "a")
    second = LoneBroker(processes, tmp_path / "b", advertised_listeners=f"CLIENT://127.0.0.1:{line_port}")
    line = CountingLine(line_port, second.port)
    try:
        for broker in (first, second):
            fill(broker)
        kept = tmp_path / "kept.log"
        for broker in (first, second):
            broker.process.stop()
            if not kept.exists():
                os.link(broker.data / f"{TOPIC}-0" / SEGMENT, kept)
            share_segment(broker.data, kept)
            broker.restart()
        yield first, second, line
    finally:
        line.close()


def compare(
    sites: tuple[LoneBroker, LoneBroker, CountingLine], out: Path, *options: str, exit_code: int
) -> tuple[dict[str, Any], int]:
    """The report, and the bytes that crossed the line."""
    first, _, line = sites
    before, began = line.carried_bytes, time.monotonic()
    given = ["--source", first.bootstrap, "--target", f"127.0.0.1:{line.port}", "--settle-timeout-ms", "0"]
    command = [sys.executable, "-m", "cli.main", "reconcile", "--quick", *given, "--whitelist", TOPIC]
    with out.open("wb") as written:
        process = subprocess.Popen([*command, *options, "--output", "json"], stdout=written)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == exit_code, out.read_text()
    carried = line.carried_bytes - before
    took = f"{time.monotonic() - began:.2f} s, {carried:,} bytes, {usage.ru_maxrss / 1024:.0f} MB of memory"
    print(f"{PARTITIONS} partitions: {took}", flush=True)
    return dict(json.loads(out.read_text())), carried


def test_twenty_gigabytes_are_proven_equal_and_one_flipped_bit_is_named_for_few_bytes(
    sites: tuple[LoneBroker, LoneBroker, CountingLine], tmp_path: Path
) -> None:
    _, second, _ = sites
    out = tmp_path / "report.json"
    compare(sites, out, exit_code=0)  # each site computes its digests once
    report, carried = compare(sites, out, exit_code=0)
    assert report["verdict"] == "equal"
    ends = [one["end_offset"] for one in report["partitions"]]
    assert ends == [BATCHES * RECORDS] * PARTITIONS
    assert carried < 200_000
    second.process.stop()
    flip_bit(second.data / f"{TOPIC}-{DAMAGED}")
    second.restart()
    report, carried = compare(sites, out, exit_code=1)
    (found,) = (one for one in report["partitions"] if one["differences"])
    (difference,) = found["differences"]
    assert (found["partition"], difference["kind"]) == (DAMAGED, "diverged")
    assert (difference["first_offset"], difference["last_offset"]) == (9 * RECORDS, 10 * RECORDS - 1)
    assert carried < 1_000_000
    report, carried = compare(sites, out, "--deep", exit_code=1)
    (damage,) = report["opened"]["findings"]
    assert (damage["kind"], damage["partition"], damage["site"]) == ("corrupt", DAMAGED, "target")
    assert (damage["first_offset"], damage["last_offset"]) == (9 * RECORDS, 10 * RECORDS - 1)
    assert carried < 1_000_000
