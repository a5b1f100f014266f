"""The load of a rehearsal, against the brokers that librdkafka plays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from dr.rehearsal.client_load import _Load
from dr.rehearsal.sandbox import SandboxAddresses


@pytest.fixture
def played() -> Iterator[Producer]:
    """A producer that plays the broker of its own records."""
    producer = Producer({"test.mock.num.brokers": 1})
    yield producer
    producer.flush(60)


def load_at(played: Producer) -> _Load:
    (broker,) = played.list_topics(timeout=60).brokers.values()
    load = _Load(SandboxAddresses(bootstrap_servers=f"{broker.host}:{broker.port}", agent="", password=""))
    load._common["security.protocol"] = "PLAINTEXT"
    return load


def test_more_records_than_the_queue_of_the_client_holds_are_written(played: Producer) -> None:
    load = load_at(played)
    load._common["queue.buffering.max.messages"] = 2
    load.write(["shop"], 20)
    assert (len(load.found), load.problems) == (20, [])


def test_a_record_that_is_repeated_behind_all_others_is_seen(played: Producer) -> None:
    load = load_at(played)
    load.write(["shop"], 10)
    (first, *_, last) = load.found
    for key in (first, b"of another client", last):
        played.produce("shop", key=key)
        played.flush(60)
    load.read_back()
    assert load.problems == ["2 records were read twice"]
