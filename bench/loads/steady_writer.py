"""A librdkafka producer that sends a record every few milliseconds and notes when each one was sent
and acknowledged: what a writer sees while brokers or sites are moved or lost.
"""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any, Final, Self

from bench.loads.pace import Pace
from bench.peers.systems import wait_until
from runtime.process import OperationalFailure

CLIENT: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "socket.timeout.ms": 1000,
    "socket.connection.setup.timeout.ms": 1000,
    "reconnect.backoff.max.ms": 250,
    "message.timeout.ms": 120_000,
    "log_level": 2,  # the benchmark itself removed the broker
}
PERIOD_S: Final = 0.004
VALUE: Final = b"v" * 100


class SteadyWriter:
    """The producer, until the block ends. Times are monotonic, in s."""

    def __init__(self, bootstrap_servers: str, topic: str, *, partitions: int = 1) -> None:
        """Records go to the partitions in turn."""
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **CLIENT})
        self._topic = topic
        self._partitions = partitions
        self._answered: list[tuple[float, float]] = []
        self._failures: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="steady writer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(1)

    def _produce(self) -> None:
        pace = Pace(PERIOD_S)
        number = 0
        while not self._is_over.is_set():
            partition, number = number % self._partitions, number + 1
            noted = self._noted(time.monotonic())
            self._producer.produce(self._topic, VALUE, partition=partition, on_delivery=noted)
            pace.wait(self._producer)

    def _noted(self, sent_at: float) -> Any:
        def note(error: Any, _: Any) -> None:
            if error is None:
                self._answered.append((sent_at, time.monotonic()))
            else:
                self._failures.append(str(error))

        return note

    def wait_acknowledged(self, count: int, *, sent_after: float, within_s: float) -> None:
        """Wait until so many records that were sent after the given time are acknowledged. Raises
        OperationalFailure if a record failed, or at the end of `within_s`.
        """
        wait_until(
            lambda: self._count(sent_after, last=10 * count) >= count or bool(self._failures),
            within_s=within_s,
            what=self._topic,
        )
        if self._failures:
            raise OperationalFailure(f"a record was not acknowledged: {self._failures[0]}")

    def _count(self, sent_after: float, *, last: int) -> int:
        return sum(sent >= sent_after for sent, _ in self._answered[-last:])

    def slowest_ms(self, since: float) -> float:
        """The longest latency of the acknowledgements that arrived after `since`."""
        return max(answered - sent for sent, answered in self._answered if answered >= since) * 1000

    def silence_ms(self, since: float) -> float:
        """The longest time between two acknowledgements of which the later one arrived after
        `since`.
        """
        times = [answered for _, answered in self._answered]
        return max(after - before for before, after in pairwise(times) if after >= since) * 1000

    def first_after(self, moment: float) -> float:
        """Return the time at which the first record after this moment was acknowledged."""
        return min(answered for _, answered in self._answered if answered >= moment)
