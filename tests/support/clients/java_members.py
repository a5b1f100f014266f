"""Members of a consumer group that are separate Java processes, and report what happens to them."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from tests.support.clients.java_clients import VERIFIABLE_CONSUMER, KafkaPrograms


class JavaMember:
    """Kafka's VerifiableConsumer: a line of JSON for everything that happens to it."""

    def __init__(
        self, programs: KafkaPrograms, bootstrap_servers: str, topic: str, protocol: str, *, session_ms: int = 45_000
    ) -> None:
        arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--group-id", "java"]
        arguments += ["--group-protocol", protocol]
        if protocol == "classic":
            assignor = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            arguments += ["--session-timeout", str(session_ms), "--assignment-strategy", assignor]
        self._process = subprocess.Popen(
            programs.command(VERIFIABLE_CONSUMER, *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{") and line.endswith(b"}\n"):  # a member that is killed may be in the middle of one
                self.events.append(json.loads(line))

    def of(self, name: str) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [event for event in tuple(self.events) if event["name"] == name]

    def owned(self) -> set[int]:
        """Partitions that it owns by its own log."""
        return {partition for partition, _, until in self.tenures() if until == float("inf")}

    def pause(self) -> None:
        """Stop it as a whole, as a long pause of its machine would."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Leave in order."""
        self._process.terminate()
        self._ended(30)

    def end(self) -> None:
        """End the process in any state."""
        if self._process.poll() is None:
            self._process.kill()
        self._ended(10)

    def _ended(self, within_s: float) -> None:
        assert self._process.stdout is not None
        self._process.wait(within_s)
        self._reader.join(within_s)
        self._process.stdout.close()

    def tenures(self) -> Iterator[tuple[int, float, float]]:
        """Partition, since when and until when it was owned, by this process's own words."""
        since: dict[int, float] = {}
        for event in tuple(self.events):
            changed = [int(found["partition"]) for found in event.get("partitions", ()) if isinstance(found, dict)]
            match event["name"]:
                case "partitions_assigned":
                    since.update(dict.fromkeys(changed, event["timestamp"]))
                case "partitions_revoked" | "partitions_lost":
                    yield from ((index, since.pop(index), event["timestamp"]) for index in changed if index in since)
                case "shutdown_complete":
                    yield from ((index, began, event["timestamp"]) for index, began in since.items())
                    since.clear()
        yield from ((index, began, float("inf")) for index, began in since.items())
