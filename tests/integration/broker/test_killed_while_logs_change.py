"""A broker killed again and again while its log is compacted and moved between directories, under
load: no key loses its newest value.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.broker.test_log_directories import homes, move
from tests.integration.broker.test_requests import create
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.batches.record_batch import iterate_headers
from wire.batches.records import decode_records
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch

pytestmark = pytest.mark.integration

ROUNDS = 8
KEYS = 40


class Load(threading.Thread):
    """Writes ever larger numbers under few keys until the broker is gone, and keeps the
    acknowledged ones.
    """

    def __init__(self, port: int, first: int) -> None:
        super().__init__()
        self._port = port
        self.number = first
        self.acknowledged: dict[bytes, int] = {}

    def run(self) -> None:
        with RawClient(self._port) as client:
            while True:
                self.number += 1
                key = b"key-%d" % (self.number % KEYS)
                records = batch([(key, b"%d" % self.number)], timestamp_ms=1_700_000_000_000 + self.number)
                try:
                    if client.produce("t", records).error_code:
                        continue
                except (OSError, AssertionError, IndexError, ValueError):
                    return
                self.acknowledged[key] = self.number


def newest(port: int) -> dict[bytes, int]:
    """The value of each key as a reader of the whole log sees it."""
    found: dict[bytes, int] = {}
    offset = 0
    with RawClient(port) as client:
        while True:
            wanted = TopicToFetch("t", None, [PartitionToFetch(0, offset, 1 << 20, -1)])
            (part,) = client.fetch(FetchRequest([wanted], max_wait_ms=0)).topics[0].partitions
            content = bytes(part.records or b"")
            headers = [header for _, header in iterate_headers(content)]
            if not headers:
                return found
            for record in decode_records(content):
                assert record.key is not None
                assert record.value is not None
                found[bytes(record.key)] = int(record.value)
            # compaction leaves batches without records
            offset = headers[-1].next_offset


def read_by_librdkafka(bootstrap: str, wanted: dict[bytes, int]) -> None:
    """Read from the start until each key has its newest value; any complaint of the client is an
    error.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    seen: dict[bytes, int] = {}

    def is_read() -> bool:
        for message in consumer.consume(1000, timeout=0.1):
            assert message.error() is None, message.error()
            key = message.key()
            assert isinstance(key, bytes)
            seen[key] = int(message.value() or b"")
        return seen == wanted

    try:
        eventually_sync(is_read)
    finally:
        consumer.close()


def test_no_key_loses_its_newest_value(start_broker: Callable[..., LoneBroker], tmp_path: Path) -> None:
    chance = random.Random(20261121)
    broker = start_broker(
        log_dirs=f"{tmp_path}/one,{tmp_path}/two",
        log_cleaner_backoff_ms="20",
        log_flush_scheduler_interval_ms="20",
    )
    with RawClient(broker.port) as client:
        create(client, "t", cleanup_policy="compact", segment_bytes="4000", min_cleanable_dirty_ratio="0.01")
    expected: dict[bytes, int] = {}
    number = 0
    for _ in range(ROUNDS):
        load = Load(broker.port, number)
        load.start()
        with RawClient(broker.port) as client:
            ((home, _),) = [place for place in homes(client, "t")[0] if not place[1]]
            eventually_sync(lambda load=load: len(load.acknowledged) >= KEYS)  # type: ignore[misc]
            move(client, tmp_path, "t", "two" if home == "one" else "one")
            cleaned = broker.process.log_text().count("is compacted up to")
            wanted = cleaned + chance.randrange(1, 4)
            eventually_sync(
                lambda wanted=wanted: broker.process.log_text().count("is compacted up to") >= wanted,  # type: ignore[misc]
                60_000,
            )
        broker.process.kill()
        load.join()
        expected |= load.acknowledged
        number = load.number
        broker.restart()
        found = newest(broker.port)
        assert set(found) >= set(expected)
        behind = {key: (found[key], value) for key, value in expected.items() if found[key] < value}
        assert behind == {}
    with RawClient(broker.port) as client:
        ((home, _),) = [place for place in homes(client, "t")[0] if not place[1]]
        target = "two" if home == "one" else "one"
        move(client, tmp_path, "t", target)
        eventually_sync(lambda: homes(client, "t")[0] == [(target, False)])
    assert newest(broker.port) == found
    librdkafka_produce(broker.bootstrap, "t", [Record(b"%d" % (number + 1), key=b"key-0", partition=0)])
    read_by_librdkafka(broker.bootstrap, newest(broker.port))
    broker.process.stop()
    assert broker.process.exit_code == 0
