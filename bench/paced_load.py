"""A producer at a steady rate, in a process of its own: `python -m bench.paced_load SETTINGS.json`.

librdkafka as an application uses it: acks=all, idempotent, linger 1 ms. For each record that was acknowledged, its partition, its offset
and the monotonic time of the acknowledgement go to an .npz file at the end.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FLUSH_S = 30
PAUSE_S = 0.0005
SETTINGS = {"acks": "all", "enable.idempotence": "true", "linger.ms": "1", "queue.buffering.max.messages": "1000000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedLoad:
    """What to send and where to write what became of it."""

    bootstrap_servers: str
    topic: str
    partition_count: int
    records_per_s: float
    record_bytes: int
    duration_s: float
    result: str

    def write(self, path: Path) -> None:
        """Settings for the process."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def run(load: PacedLoad) -> None:
    """Send for the whole duration, wait for the acknowledgements, write them. RuntimeError when a record failed."""
    import numpy as np
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": load.bootstrap_servers, **SETTINGS})
    partitions, offsets, acknowledged_ns = array("q"), array("q"), array("q")
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
            return
        partitions.append(message.partition())
        offsets.append(message.offset())
        acknowledged_ns.append(time.monotonic_ns())

    value = bytes(index % 251 for index in range(load.record_bytes))
    began, sent = time.monotonic(), 0
    while (elapsed_s := time.monotonic() - began) < load.duration_s:
        due = int(elapsed_s * load.records_per_s)
        for number in range(sent, due):
            producer.produce(load.topic, value, partition=number % load.partition_count, on_delivery=delivered)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(PAUSE_S)
    producer.flush(FLUSH_S)
    if failures or len(offsets) != sent:
        raise RuntimeError(f"{sent} records sent, {len(offsets)} acknowledged: {failures[:3]}")
    np.savez(load.result, partition=partitions, offset=offsets, acknowledged_ns=acknowledged_ns)


if __name__ == "__main__":
    run(PacedLoad(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
