"""A producer at a steady rate, in a process of its own.

    python -m bench.loads.paced_load SETTINGS.json

librdkafka as an application uses it: acks=all, idempotent, linger 1 ms. At the end it writes an
.npz file with the partition, the offset, the monotonic time of the acknowledgement and the latency
of each acknowledged record.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from runtime.compiled import ROOT
from runtime.process import OperationalFailure

FLUSH_S = 30
START_WITHIN_S = 30
FINISH_WITHIN_S = 60
STARTED = ".started"
PAUSE_S = 0.0005
SETTINGS = {"acks": "all", "enable.idempotence": "true", "linger.ms": "1", "queue.buffering.max.messages": "1000000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedLoad:
    """The load, and the file for its results."""

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
    """Send for the whole duration, wait for the acknowledgements, and write the file. RuntimeError
    when a record failed.
    """
    import numpy as np
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": load.bootstrap_servers, **SETTINGS})
    partitions, offsets, acknowledged_ns, latencies_ms = array("q"), array("q"), array("q"), array("d")
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
            return
        partitions.append(message.partition())
        offsets.append(message.offset())
        acknowledged_ns.append(time.monotonic_ns())
        latencies_ms.append(message.latency() * 1000)

    value = bytes(index % 251 for index in range(load.record_bytes))
    Path(load.result).with_suffix(STARTED).touch()
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
    np.savez(
        load.result,
        partition=partitions,
        offset=offsets,
        acknowledged_ns=acknowledged_ns,
        latency_ms=latencies_ms,
    )


class PacedLoadProcess:
    """A paced load that runs from the start of the block on: `finish` waits for its end and reads
    the result of each record.
    """

    def __init__(self, load: PacedLoad) -> None:
        self._load = load
        settings = Path(load.result).with_suffix(".json")
        load.write(settings)
        self._process = subprocess.Popen([sys.executable, "-m", "bench.loads.paced_load", str(settings)], cwd=ROOT)

    def __enter__(self) -> Self:
        started = Path(self._load.result).with_suffix(STARTED)
        deadline = time.monotonic() + START_WITHIN_S
        while not started.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise OperationalFailure(f"the paced load on {self._load.topic} does not start")
            time.sleep(PAUSE_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def finish(self) -> Mapping[str, Any]:
        """Columns by name, with one row for each record. Raises OperationalFailure if a record was
        not acknowledged.
        """
        import numpy as np

        if self._process.wait(timeout=self._load.duration_s + FINISH_WITHIN_S) != 0:
            raise OperationalFailure(f"the paced load on {self._load.topic} ended with {self._process.returncode}")
        with np.load(self._load.result) as stored:
            return {name: stored[name] for name in stored.files}


if __name__ == "__main__":
    run(PacedLoad(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
