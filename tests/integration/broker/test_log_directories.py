"""Log directories over the Kafka protocol: moves under load, a directory that fails, deleted
records after a kill.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from tests.integration.broker.test_requests import create
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(start_broker: Callable[..., LoneBroker], tmp_path: Path) -> LoneBroker:
    return start_broker(
        log_dirs=f"{tmp_path}/one,{tmp_path}/two",
        log_flush_scheduler_interval_ms="100",
        replica_alter_log_dirs_io_max_bytes_per_second="20000000",
    )


def homes(client: RawClient, topic: str) -> dict[int, list[tuple[str, bool]]]:
    """(directory, is it a copy of a move) by partition."""
    found: dict[int, list[tuple[str, bool]]] = {}
    for result in client.call(35, 4, {"topics": None}).results:
        for entry in result.topics:
            for partition in entry.partitions if entry.name == topic else ():
                home = Path(result.log_dir).name, partition.is_future_key
                found.setdefault(partition.partition_index, []).append(home)
    return found


def records(first: int, count: int) -> list[Record]:
    return [Record(b"%08d" % number + b"v" * 1000, partition=0) for number in range(first, first + count)]


def move(client: RawClient, tmp_path: Path, topic: str, target: str) -> Any:
    wanted = {"dirs": [{"path": f"{tmp_path}/{target}", "topics": [{"name": topic, "partitions": [0]}]}]}
    (result,) = client.call(34, 2, wanted).results
    return result.partitions[0].error_code


def break_directory(path: Path) -> None:
    """All of it is gone at once: to delete it file by file would meet the broker that writes its
    checkpoints there.
    """
    path.rename(f"{path}-before")
    path.write_text("not a directory any more")


def test_a_log_moves_to_another_directory_while_it_is_written(broker: LoneBroker, tmp_path: Path) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(broker.port) as client:
        create(client, topic, segment_bytes="1000000")
        librdkafka_produce(broker.bootstrap, topic, records(0, 20_000))
        ((home, _),) = homes(client, topic)[0]
        target = "two" if home == "one" else "one"
        assert move(client, tmp_path, topic, "nowhere") is ErrorCode.log_dir_not_found
        assert move(client, tmp_path, topic, target) is ErrorCode.none
        librdkafka_produce(broker.bootstrap, topic, records(20_000, 5_000))
        eventually_sync(lambda: homes(client, topic)[0] == [(target, False)])
        librdkafka_produce(broker.bootstrap, topic, records(25_000, 10))
    got = librdkafka_consume(broker.bootstrap, topic, 25_010, group=topic)
    assert [record.offset for record in got] == list(range(25_010))
    assert [int((record.value or b"")[:8]) for record in got] == list(range(25_010))
    assert not (tmp_path / home / f"{topic}-0").exists()


def first_value(bootstrap: str, topic: str, *, partitions: int) -> bytes | None:
    """The value of the first record that a reader of all partitions gets; not as a group, whose
    coordinator may be in the directory that fails.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        return eventually_sync(lambda: _value(consumer.poll(0.1)))
    finally:
        consumer.close()


def _value(message: Any) -> bytes | None:
    return None if message is None or message.error() is not None else bytes(message.value())


def test_aborted_transactions_that_cannot_be_read_cost_only_their_directory(broker: LoneBroker, tmp_path: Path) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(broker.port) as client:
        create(client, topic, 2)
        at = {partition: place[0][0] for partition, place in homes(client, topic).items()}
    lost = next(partition for partition, home in at.items() if home == "two")
    librdkafka_produce(broker.bootstrap, topic, [Record(b"lost", partition=lost)])
    librdkafka_produce(broker.bootstrap, topic, [Record(b"kept", partition=1 - lost)])
    (tmp_path / "two" / f"{topic}-{lost}" / f"{0:020d}.txnindex").mkdir()
    assert first_value(broker.bootstrap, topic, partitions=2) == b"kept"
    with RawClient(broker.port) as client:
        results = client.call(35, 4, {"topics": None}).results
    assert {Path(result.log_dir).name: result.error_code for result in results} == {
        "one": ErrorCode.none,
        "two": ErrorCode.kafka_storage_error,
    }


def test_a_directory_that_fails_takes_only_its_partitions_offline(broker: LoneBroker, tmp_path: Path) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(broker.port) as client:
        create(client, topic, 2)
        at = {partition: place[0][0] for partition, place in homes(client, topic).items()}
        assert set(at.values()) == {"one", "two"}
        lost = next(partition for partition, home in at.items() if home == "two")
        break_directory(tmp_path / "two")

        def is_offline() -> bool:
            results = client.call(35, 4, {"topics": None}).results
            return [result.error_code for result in results if result.log_dir.endswith("/two")] == [
                ErrorCode.kafka_storage_error
            ]

        eventually_sync(is_offline)
        librdkafka_produce(broker.bootstrap, topic, [Record(b"on", partition=1 - lost)])
        response = client.call(
            2,
            7,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
                            for partition in (lost, 1 - lost)
                        ],
                    }
                ],
            },
        )
        codes = [partition.error_code for partition in response.topics[0].partitions]
        assert codes == [ErrorCode.kafka_storage_error, ErrorCode.none]


def test_a_broker_without_any_log_directory_left_ends(start_broker: Callable[..., LoneBroker], tmp_path: Path) -> None:
    broker = start_broker(log_dirs=f"{tmp_path}/only", replica_high_watermark_checkpoint_interval_ms="200")
    with RawClient(broker.port) as client:
        create(client, "t")
    break_directory(tmp_path / "only")
    assert broker.process.wait_ended() == 1
    assert "every log directory has failed" in broker.process.log_text()


def test_deleted_records_stay_deleted_after_a_kill(broker: LoneBroker) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"

    def earliest() -> int:
        asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
        with RawClient(broker.port) as asking:
            response = asking.call(
                2, 7, {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [asked]}]}
            )
        return int(response.topics[0].partitions[0].offset)

    with RawClient(broker.port) as client:
        create(client, topic)
        librdkafka_produce(broker.bootstrap, topic, records(0, 10))
        wanted = {"name": topic, "partitions": [{"partition_index": 0, "offset": 4}]}
        deleted = client.call(21, 2, {"topics": [wanted], "timeout": i32Timedelta.parse(timedelta(seconds=30))})
        assert deleted.topics[0].partitions[0].low_watermark == 4
    assert earliest() == 4
    broker.process.kill()
    broker.restart()
    assert earliest() == 4
    got = librdkafka_consume(broker.bootstrap, topic, 6, group=topic)
    assert [record.offset for record in got] == list(range(4, 10))
