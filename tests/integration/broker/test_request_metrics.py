"""Where the time of a request goes: Kafka's phases, as a scrape shows them."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.broker.test_requests import create, records, want
from tests.support.clients.quota_calls import alter
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.client.requests.fetch_requests import FetchRequest

pytestmark = pytest.mark.integration

PREFIX = "kafka_network_requestmetrics_"
PHASES = ("requestqueue", "local", "remote", "responsequeue", "responsesend")
RESOLUTION_MS = 0.01


def figures(broker: LoneBroker, api: str, kind: str) -> dict[str, float]:
    """Counts or sums of an API's phases and of the total, by phase."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{broker.facts['metrics']}/metrics").read().decode()
    return {
        sample.name.removeprefix(PREFIX).removesuffix(f"timems_{kind}"): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith(PREFIX) and sample.name.endswith(f"timems_{kind}") and sample.labels["request"] == api
    }


def await_counts(broker: LoneBroker, api: str, wanted: dict[str, int]) -> None:
    """Await the counts: a broker counts a request after it has sent the response, so a client may
    have that before.
    """

    def is_so() -> bool:
        assert figures(broker, api, "count") == wanted
        return True

    eventually_sync(is_so)


def test_each_answered_request_counts_in_each_phase_and_the_phases_make_up_its_time(
    start_broker: Callable[..., LoneBroker],
) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        create(client, "t")
        for _ in range(3):
            client.produce("t", records(1))
    for api, count in (("Produce", 3), ("CreateTopics", 1)):
        wanted = dict.fromkeys((*PHASES, "throttle", "total"), count)
        await_counts(broker, api, wanted)
        sums = figures(broker, api, "sum")
        assert sum(sums[phase] for phase in PHASES) == pytest.approx(sums["total"], abs=count * RESOLUTION_MS)
        assert sums["throttle"] == 0


def test_waiting_for_records_is_remote_time(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        create(client, "t")
        client.fetch(FetchRequest([want("t")], max_wait_ms=200, min_bytes=1))
    await_counts(broker, "FetchConsumer", dict.fromkeys((*PHASES, "throttle", "total"), 1))
    sums = figures(broker, "FetchConsumer", "sum")
    assert sums["remote"] >= 150
    assert sums["total"] >= sums["remote"]


def test_a_client_that_reads_slowly_makes_sending_long(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        create(client, "t", max_message_bytes=str(32 << 20))
        client.fetch(FetchRequest([want("t")], max_wait_ms=0))
        for _ in range(16):
            client.produce("t", records(1, size=1 << 20))
        everything = 64 << 20
        client.send_fetch(FetchRequest([want("t", max_bytes=everything)], max_bytes=everything))
        eventually_sync(lambda: figures(broker, "FetchConsumer", "count").get("local") == 2)
        began_s = time.monotonic()
        assert figures(broker, "FetchConsumer", "count")["total"] == 1
        held_ms = (time.monotonic() - began_s) * 1000
        assert len(client.read_frame()) > 16 << 20
    eventually_sync(lambda: figures(broker, "FetchConsumer", "count")["total"] == 2)
    assert figures(broker, "FetchConsumer", "sum")["responsesend"] >= held_ms


def test_a_quota_shows_as_throttle_time(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port, client_id="eager") as client:
        create(client, "t")
        alter(broker, {"client-id": "eager"}, producer_byte_rate=1000)
        client.send_produce("t", records(1, size=20_000))
        said_ms = client.produced().throttle_time_ms
    await_counts(broker, "Produce", dict.fromkeys((*PHASES, "throttle", "total"), 1))
    assert figures(broker, "Produce", "sum")["throttle"] == pytest.approx(said_ms, abs=1)
    assert said_ms > 0


def samples(broker: LoneBroker, name: str) -> dict[tuple[str, ...], float]:
    """Values of a figure by the values of its labels."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{broker.facts['metrics']}/metrics").read().decode()
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    }


def test_errors_count_by_request_and_code_for_each_partition_that_an_answer_names(
    start_broker: Callable[..., LoneBroker],
) -> None:
    broker = start_broker()
    large = records(1, size=2000)
    with RawClient(broker.port) as client:
        create(client, "t", max_message_bytes="1000")
        client.produce("t", records(1))
        client.produce("t", large)
        client.fetch(FetchRequest([want("t", 700), want("none"), want("t", partition=7)]))
        asked = {"current_leader_epoch": -1, "timestamp": -1}
        topics = [{"name": "none", "partitions": [{"partition_index": index, **asked} for index in range(3)]}]
        client.call(2, 7, {"replica_id": -1, "isolation_level": 0, "topics": topics})
        client.metadata("no:name")
    errors = samples(broker, f"{PREFIX}errors_total")
    assert errors == {
        ("MESSAGE_TOO_LARGE", "Produce"): 1,
        ("OFFSET_OUT_OF_RANGE", "Fetch"): 1,
        ("UNKNOWN_TOPIC_OR_PARTITION", "Fetch"): 2,
        ("UNKNOWN_TOPIC_OR_PARTITION", "ListOffsets"): 3,
        ("INVALID_TOPIC_EXCEPTION", "Metadata"): 1,
    }
    of_topics = "kafka_server_brokertopicmetrics_"
    for name, value in (("bytesrejected", len(large)), ("failedproducerequests", 1), ("failedfetchrequests", 1)):
        assert samples(broker, f"{of_topics}{name}_total") == {(): value, ("t",): value}


def test_a_produce_without_acks_counts_the_error_that_closes_its_connection(
    start_broker: Callable[..., LoneBroker],
) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        client.send_produce("none", records(1), acks=0)
        assert client.read_frame() == b""
    assert samples(broker, f"{PREFIX}errors_total") == {("UNKNOWN_TOPIC_OR_PARTITION", "Produce"): 1}
