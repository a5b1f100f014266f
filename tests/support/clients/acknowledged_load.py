"""A bounded, steady load through librdkafka with acks=all, and the checker of its records.

Each record contains its partition and its number there, so one read of a log shows whether an
acknowledged record is missing, repeated, at another offset than acknowledged, or out of order (A1
to A4 and A9 of the anomaly checkers).
"""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any, Self

from confluent_kafka import KafkaException, Producer

from tests.support.eventually import eventually_sync
from tests.support.pairs.site_comparison import batches, log_ends, site_client
from wire.batches.records import decode_records

RECORDS_PER_SECOND = 400
RECORDS_MAX = 200_000
RECORD_BYTES = 500
TICK_S = 0.02
MESSAGE_TIMEOUT_MS = 180_000

Settings = dict[str, Any]


class AcknowledgedLoad:
    """Produces to the partitions in turn from `start` (or entering the block) until `finish`, at
    most `records_max` records.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        *,
        records_per_second: int = RECORDS_PER_SECOND,
        records_max: int = RECORDS_MAX,
        settings: Settings | None = None,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._records_max = records_max
        self._per_tick = max(1, int(records_per_second * TICK_S))
        self._sent = [0] * partitions
        self._places: list[dict[int, int | None]] = [{} for _ in range(partitions)]
        """Number of the record to its acknowledged offset, by partition. None if librdkafka lost
        the answer and a later one of the same sequence implies it: acknowledged, at an offset that
        the client does not know.
        """
        self._times: list[list[float]] = [[] for _ in range(partitions)]
        """When each acknowledgement came, by partition."""
        self._failures: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="acknowledged-load")
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "error_cb": self._on_error,
                "log_level": 2,  # that a broker is gone is the test's own doing
                **(settings or {}),
            }
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush()
        # A client that outlives the test would request its topic from the next process on these
        # ports, which makes it there.
        del self._producer

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def sent(self) -> int:
        """Records given to the client so far."""
        return sum(self._sent)

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        return sum(len(places) for places in self._places)

    def acknowledged_values(self, partition: int) -> dict[int, bytes]:
        """The acknowledged records of a partition so far, by offset."""
        places = dict(self._places[partition])
        return {offset: self._value(partition, number) for number, offset in places.items() if offset is not None}

    def wait_sent(self, more: int, within_ms: float = 60_000) -> None:
        """Wait until this many more records were passed to the client, acknowledged or not."""
        goal = self.sent + more
        eventually_sync(lambda: self._unfailed(self.sent) >= goal, within_ms)

    def wait_acknowledged(self, more: int, within_ms: float = 60_000) -> None:
        """Wait until this many more records are acknowledged."""
        goal = self.acknowledged + more
        eventually_sync(lambda: self._unfailed(self.acknowledged) >= goal, within_ms)

    def silences_ms(self, since: float) -> list[float]:
        """The longest time between two acknowledgements, by partition, if the later one came after
        `since` (monotonic seconds).
        """
        longest = []
        for times in self._times:
            gaps = [after - before for before, after in pairwise(times) if after >= since]
            longest.append(max(gaps, default=0.0) * 1000)
        return longest

    def finish(self, within_ms: float = 60_000) -> int:
        """Stop, and wait until every sent record is acknowledged. Returns their number."""
        self._is_over.set()
        self._thread.join()
        left = self._producer.flush(within_ms / 1000)
        assert not self._failures, self._failures[:10]
        assert left == 0, f"{left} of {self.sent} records were not acknowledged within {within_ms:g} ms"
        assert self.acknowledged == self.sent
        return self.acknowledged

    async def check_log(self, bootstrap_servers: str, *, may_repeat: bool = False) -> None:
        """Check the log of one site after `finish`: it has each record once, in order, at the
        acknowledged offset.

        A producer that is not idempotent may repeat records, and put them behind later ones when
        the leader changes under a request; then each record is at its acknowledged offset, and the
        log has no others.
        """
        async with site_client(bootstrap_servers) as client:
            ends = await log_ends(client)
            for partition, places in enumerate(self._places):
                key = (self._topic, partition)
                found = [
                    (record.offset, record.value)
                    async for _, data in batches(client, key, 0, ends[key])
                    for record in decode_records(data)
                ]
                wanted = [
                    (
                        offset if (offset := places[number]) is not None else _offset_at(found, number),
                        self._value(partition, number),
                    )
                    for number in range(self._sent[partition])
                ]
                if may_repeat:
                    assert [offset for offset, _ in found] == list(range(ends[key])), f"{key}: offsets have gaps"
                    assert {value for _, value in found} == {value for _, value in wanted}, f"{key}: other records"
                    found = [found[offset] for offset, _ in wanted]
                assert found == wanted, f"{key}: {_first_difference(found, wanted)}"

    def _produce(self) -> None:
        partition = 0
        while not self._is_over.is_set() and self.sent < self._records_max:
            for _ in range(self._per_tick):
                number = self._sent[partition]
                try:
                    self._producer.produce(
                        self._topic,
                        self._value(partition, number),
                        partition=partition,
                        on_delivery=self._delivery_of(partition, number),
                    )
                except BufferError:
                    break
                except KafkaException as refusal:
                    self._failures.append(f"{partition}-{number} was not taken: {refusal}")
                    return
                self._sent[partition] += 1
                partition = (partition + 1) % self._partitions
            self._producer.poll(0)
            time.sleep(TICK_S)

    def _value(self, partition: int, number: int) -> bytes:
        return f"{self._topic}-{partition}-{number}-".encode().ljust(RECORD_BYTES, b"%d" % (number % 10))

    def _delivery_of(self, partition: int, number: int) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._failures.append(f"{partition}-{number}: {error}")
            else:
                self._places[partition][number] = message.offset()
                self._times[partition].append(time.monotonic())

        return delivered

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._failures.append(f"fatal: {error}")

    def _unfailed(self, count: int) -> int:
        if self._failures:
            raise LoadFailed(self._failures[:10])
        return count


class LoadFailed(Exception):
    """The client gave up on a record, so further waiting is of no use."""


def _offset_at(found: list[Any], number: int) -> int:
    return found[number][0] if number < len(found) else -1


def _first_difference(found: list[Any], wanted: list[Any]) -> str:
    for ours, theirs in zip(found, wanted, strict=False):
        if ours != theirs:
            return f"{ours} in the log where {theirs} was acknowledged"
    return f"{len(found)} records in the log, {len(wanted)} acknowledged; the first that differs is past the shorter"
