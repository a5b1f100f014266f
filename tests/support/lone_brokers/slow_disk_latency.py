"""How long producers wait while a broker with many partitions and a slow disk writes checkpoints
and deletes a topic.

    python -m tests.support.lone_brokers.slow_disk_latency [partitions=10000] [deleted=1000] [fsync_ms=50] [seconds=60]

A lone broker whose disk takes `fsync_ms` for each fsync holds that many partitions. A client sends
100 requests of 1 KB a second (acks=1) in a steady rhythm; a third into the run a topic of `deleted`
partitions is deleted, with no delay for its files. Prints what the requests took, counted from when
each was due, and which disk operations held the event loop. A measurement, no test: it asserts
nothing about time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from broker.assembly.doors import Doors
from runtime.garbage import look_for_garbage_rarely
from runtime.logs import configure
from runtime.process import run_daemon
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.disks.thread_noting_disk import ThreadNotingDisk
from tests.support.histories.loop_holds import Holds
from tests.support.processes.processes import Processes

REQUESTS_PER_SECOND = 100
TOPIC_PARTITIONS = 1000
MODULE = "tests.support.lone_brokers.slow_disk_latency"


def run_broker(fsync_ms: float, noted: str, properties: dict[str, str]) -> int:
    """The broker's process; the operations that ran on the loop are in the file `noted`, not older
    than a second.
    """
    from tests.support.lone_brokers.lone_broker import run

    disk = ThreadNotingDisk(fsync_s=fsync_ms / 1000)
    configure("slow-disk", level="WARNING")
    holds = Holds()
    threading.Thread(target=_keep_noting, args=(disk, holds, Path(noted)), daemon=True).start()

    async def watched(stop: asyncio.Event) -> None:
        look_for_garbage_rarely()
        holds.start()
        await run(properties, stop, doors=Doors(disk=disk))

    return run_daemon(watched)


def _keep_noting(disk: ThreadNotingDisk, holds: Holds, noted: Path) -> None:
    """The broker is killed in the end: a stop would force thousands of logs to the slow disk."""
    is_reset = False
    while True:
        time.sleep(1)
        if not is_reset and noted.with_suffix(".begin").exists():
            is_reset = True
            disk.on_loop.clear()
            holds.clear()
        figures = {
            "on_loop": disk.on_loop,
            "worked_ms": holds.worked_ms,
            "collections_ms": holds.collections_ms,
            "stacks": holds.stacks.most_common(25),
        }
        noted.with_suffix(".new").write_text(json.dumps(figures))
        noted.with_suffix(".new").replace(noted)


def create(client: RawClient, name: str, partitions: int) -> None:
    """A topic whose files are removed without a delay."""
    configs = [{"name": "file.delete.delay.ms", "value": "0"}]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": configs}
    answer = client.call(19, 7, {"topics": [topic], "timeout": timedelta(minutes=10)})
    if answer.topics[0].error_code:
        raise SystemExit(f"topic {name} is not created: {answer.topics[0]}")


def produce_steadily(port: int, seconds: float, delete: str) -> list[float]:
    """The milliseconds from the due time of each request to its response."""
    records, taken_ms, deleted = batch([b"v" * 1000], timestamp_ms=int(time.time() * 1000)), [], False
    with RawClient(port) as client, RawClient(port) as admin:
        client.produce("measured", records, acks=1)
        began_s = time.monotonic()
        for number in range(int(seconds * REQUESTS_PER_SECOND)):
            due_s = began_s + number / REQUESTS_PER_SECOND
            time.sleep(max(due_s - time.monotonic(), 0))
            client.produce("measured", records, acks=1)
            taken_ms.append((time.monotonic() - due_s) * 1000)
            if not deleted and number > seconds * REQUESTS_PER_SECOND / 3:
                admin.send_call(20, 5, {"topic_names": [delete], "timeout": timedelta(minutes=10)})
                deleted = True
        admin.read_frame()
    return sorted(taken_ms)


def measure(partitions: int, deleted: int, fsync_ms: float, seconds: float) -> None:
    """Run it and print the figures."""
    from tests.support.lone_brokers.lone_broker_process import LoneBroker

    folder = Path(tempfile.mkdtemp(prefix="slow-disk-"))
    noted = folder / "on-loop.json"
    os.environ["SLOW_DISK"] = json.dumps([fsync_ms, str(noted)])
    processes = Processes()
    try:
        checkpoints = {"log_flush_offset_checkpoint_interval_ms": "10000"}
        broker = LoneBroker(processes, folder, module=MODULE, environment=None, **checkpoints)
        with RawClient(broker.port, timeout_s=600) as client:
            create(client, "measured", 1)
            for number in range((partitions - deleted) // TOPIC_PARTITIONS):
                create(client, f"kept-{number}", TOPIC_PARTITIONS)
            create(client, "deleted", deleted)
        noted.with_suffix(".begin").touch()
        time.sleep(3)  # the holds of the loop are counted from here on
        taken_ms = produce_steadily(broker.port, seconds, "deleted")
        time.sleep(3)  # the file that is read below is then newer than the last request
        left = [name for name in os.listdir(broker.data) if name.startswith("deleted-")]
    finally:
        processes.end_all()
    figures = {share: taken_ms[min(int(len(taken_ms) * share), len(taken_ms) - 1)] for share in (0.5, 0.99, 0.999, 1.0)}
    print({f"p{100 * share:g}": f"{value:.1f} ms" for share, value in figures.items()}, "requests:", len(taken_ms))
    print("directories of the deleted topic left:", len(left))
    report(json.loads(noted.read_text()))


def report(noted: dict[str, Any]) -> None:
    """The code that blocked the loop."""
    on_loop, turns = noted["on_loop"], sorted(noted["worked_ms"], reverse=True)
    print("disk operations on the event loop:", len(on_loop), on_loop[:12])
    print(f"long turns of the loop: {len(turns)}; of the longest the loop's own work and the time on the wall (ms):")
    print([(round(worked_ms, 1), round(wall_ms, 1)) for worked_ms, wall_ms in turns[:12]])
    print("garbage collections (generation, ms):", sorted(noted["collections_ms"], key=lambda one: -one[1])[:12])
    for stack, samples in noted["stacks"]:
        print(samples, stack)


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    if "node.id" in given:
        slow_ms, path = json.loads(os.environ["SLOW_DISK"])
        sys.exit(run_broker(slow_ms, path, given))
    measure(
        int(given.get("partitions", 10_000)),
        int(given.get("deleted", 1_000)),
        float(given.get("fsync_ms", 50)),
        float(given.get("seconds", 60)),
    )
