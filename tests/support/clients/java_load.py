"""A steady load by Apache Kafka's verifiable producer (Java, idempotent, acks=all) and the checker
of its records.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.clients.java_clients import VERIFIABLE_PRODUCER, KafkaPrograms
from tests.support.eventually import eventually_sync
from tests.support.pairs.site_comparison import batches, log_ends, site_client
from tests.support.processes.processes import Processes
from wire.batches.records import decode_records

RECORDS_PER_SECOND = 100
SETTINGS = {
    "enable.idempotence": "true",
    "retries": "2147483647",  # the program's own default is not to retry
    "delivery.timeout.ms": "180000",
    "max.block.ms": "180000",
    "metadata.max.age.ms": "1000",
    "reconnect.backoff.max.ms": "500",
}
FINISH_WITHIN_MS = 180_000
CLOSED_WHILE_SENDING = (
    "Producer closed while send in progress",
    "Cannot perform operation after producer has been closed",
)
"""The program's message about a record that it was about to send when it was stopped: its producer
is closed by another thread.
"""


class JavaLoad:
    """Sends numbers as records to all partitions of a topic, from its creation until `finish`."""

    def __init__(
        self,
        programs: KafkaPrograms,
        processes: Processes,
        directory: Path,
        *,
        bootstrap_servers: str,
        topic: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._topic = topic
        directory.mkdir(parents=True)
        properties = directory / "producer.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in {**SETTINGS, **(settings or {})}.items()))
        command = programs.command(
            VERIFIABLE_PRODUCER,
            *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--acks", "-1"),
            *("--throughput", str(RECORDS_PER_SECOND), "--command-config", str(properties)),
        )
        self._process = processes.run_command("verifiable-producer", command, directory)
        self._output = self._process.child.log.open("rb")
        self._rest = b""
        self._places: dict[tuple[int, int], int] = {}
        """Partition and offset to the number that was acknowledged there."""
        self._failures: list[dict[str, Any]] = []

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        self._read()
        return len(self._places)

    def _read(self) -> None:
        *lines, self._rest = (self._rest + self._output.read()).split(b"\n")
        for line in lines:
            event = json.loads(line) if line.startswith(b"{") else {}
            if event.get("name") == "producer_send_success":
                self._places[int(event["partition"]), int(event["offset"])] = int(event["value"])
            elif event.get("name") == "producer_send_error":
                self._failures.append(event)

    def wait_acknowledged(self, more: int, within_ms: float = 60_000) -> None:
        """Wait until so many more are acknowledged."""
        goal = self.acknowledged + more
        self._process.wait_ready(lambda: self.acknowledged >= goal, within_ms)
        assert not self._failures, self._failures[:10]

    def finish(self) -> int:
        """Stop; the program waits until what it sent is acknowledged. The number of records."""
        self._process.stop(FINISH_WITHIN_MS)
        eventually_sync(lambda: b"tool_data" in self._process.child.log.read_bytes())
        self._read()
        self._output.close()
        failures = [event for event in self._failures if event.get("message") not in CLOSED_WHILE_SENDING]
        assert not failures, failures[:10]
        return len(self._places)

    async def check_log(self, bootstrap_servers: str) -> None:
        """Check the log after `finish`: it has each acknowledged number once, at its acknowledged
        offset, and numbers grow in each partition.
        """
        logged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        async with site_client(bootstrap_servers) as client:
            for key, end in (await log_ends(client)).items():
                if key[0] == self._topic:
                    async for _, data in batches(client, key, 0, end):
                        logged[key[1]] += [(found.offset, int(found.value or b"")) for found in decode_records(data)]
        for partition, found in logged.items():
            numbers = [number for _, number in found]
            assert [offset for offset, _ in found] == list(range(len(found))), f"partition {partition}: offsets"
            assert numbers == sorted(set(numbers)), f"partition {partition}: repeated or out of order"
        there = {(partition, offset): number for partition, found in logged.items() for offset, number in found}
        lost = {place: number for place, number in self._places.items() if there.get(place) != number}
        assert not lost, f"acknowledged and not there: {dict(list(lost.items())[:10])}"
