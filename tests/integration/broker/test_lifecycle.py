"""Start, stop, crash and restart; an obstacle is reported in one message."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import urllib.request
from collections.abc import Callable

import pytest

from tests.integration.broker.test_requests import create, records, want
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.client.requests.fetch_requests import FetchRequest
from wire.protocol.ids import CONSUMER, MIRROR

pytestmark = pytest.mark.integration


def metrics_page(broker: LoneBroker) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.facts['metrics']}/metrics") as page:
        return str(page.read().decode())


def end_offset(broker: LoneBroker, topic: str) -> int:
    with RawClient(broker.port) as client:
        (partition,) = client.fetch(FetchRequest([want(topic)], max_wait_ms=0)).topics[0].partitions
        return int(partition.high_watermark)


def test_a_clean_stop_needs_no_recovery(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        create(client, "t")
        for _ in range(10):
            client.produce("t", records(5))
    broker.process.stop()
    assert broker.process.exit_code == 0
    assert (broker.data / ".kafka_cleanshutdown").exists()
    broker.restart()
    assert end_offset(broker, "t") == 50
    assert "log recovered" not in broker.process.log_text()
    assert "recovered logs after unclean shutdown" not in broker.process.log_text()


def test_after_kill_9_everything_acknowledged_is_there(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        create(client, "t")
        acknowledged = 0
        for _ in range(30):
            acknowledged = client.produce("t", records(5)).base_offset + 5
        broker.process.kill()
    broker.restart()
    assert end_offset(broker, "t") == acknowledged
    with RawClient(broker.port) as client:
        assert client.produce("t", records()).base_offset == acknowledged


def test_a_damaged_checkpoint_is_named_at_the_next_start(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    broker.process.stop()
    (broker.data / "replication-offset-checkpoint").write_text("7\nnonsense\n")
    broker.restart()
    text = broker.process.log_text()
    assert "replication-offset-checkpoint" in text
    assert "it is ignored" in text


def test_a_stop_answers_waiting_requests(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        create(client, "t")
        client.send_fetch(FetchRequest([want("t")], max_wait_ms=60_000))
        with RawClient(broker.port) as other:
            other.produce("t", records(), partition=0)
            other.send_fetch(FetchRequest([want("t", 1)], max_wait_ms=60_000))
            waiting = 'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"} 1.0'
            eventually_sync(lambda: waiting in metrics_page(broker))
            os.kill(broker.process.pid, signal.SIGTERM)
            assert client.read_frame()
            assert other.read_frame()
    assert broker.process.wait_ended() == 0


@pytest.mark.parametrize("replica_id", [CONSUMER, MIRROR])
def test_a_stop_does_not_wait_for_a_client_that_repeats_its_request(
    start_broker: Callable[..., LoneBroker], replica_id: int
) -> None:
    broker = start_broker(antipode_shutdown_grace_ms="3600000")
    patient = FetchRequest([want("t")], max_wait_ms=3_600_000, replica_id=replica_id)
    with RawClient(broker.port) as client:
        create(client, "t")
        client.send_fetch(patient)
        os.kill(broker.process.pid, signal.SIGTERM)
        answers = 0
        with contextlib.suppress(OSError):
            while client.read_frame():
                answers += 1
                client.send_fetch(patient)
    assert answers
    assert broker.process.wait_ended() == 0


def test_a_follower_that_begins_its_session_anew_leaves_none_behind(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()

    def session_count() -> float:
        page = urllib.request.urlopen(f"http://127.0.0.1:{broker.facts['metrics']}/metrics").read().decode()
        (line,) = re.findall(r"^kafka_server_fetchsessioncache_numincrementalfetchsessions (.*)$", page, re.MULTILINE)
        return float(line)

    with RawClient(broker.port) as client:
        create(client, "t")
        for _ in range(3):
            first = client.fetch(FetchRequest([want("t")], max_wait_ms=0, replica_id=2, session_epoch=0))
            again = FetchRequest([], max_wait_ms=0, replica_id=2, session_id=first.session_id, session_epoch=1)
            assert client.fetch(again).session_id == first.session_id
        assert session_count() == 1
    eventually_sync(lambda: session_count() == 0)


def test_a_deleted_topics_log_goes_even_when_the_broker_was_away(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        create(client, "gone")
        create(client, "kept")
    broker.process.stop()
    state = broker.data / ".." / "lone-controller.state"
    _forget_topic(state.resolve().as_posix(), "gone")
    broker.restart()
    eventually_sync(lambda: not (broker.data / "gone-0").exists())
    assert (broker.data / "kept-0").is_dir()


def _forget_topic(path: str, name: str) -> None:
    from wire.control.broker_pb2 import ControlBatch

    with open(path, "rb") as stored:
        batch = ControlBatch.FromString(stored.read())
    kept = [topic for topic in batch.topics if topic.name != name]
    del batch.topics[:]
    batch.topics.extend(kept)
    with open(path, "wb") as stored:
        stored.write(batch.SerializeToString())


def test_metrics_name_what_kafkas_exporters_name(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client:
        create(client, "t")
        client.produce("t", records(7))
    # a request is counted when its answer is on its way
    counted = 'kafka_network_requestmetrics_totaltimems_bucket{le="+Inf",request="Produce"} 1.0'
    eventually_sync(lambda: counted in metrics_page(broker))
    page = metrics_page(broker)
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 7.0' in page
    assert 'kafka_log_log_logendoffset{partition="0",topic="t"} 7.0' in page
    assert 'kafka_network_requestmetrics_requests_total{request="Produce"} 1.0' in page
    assert "kafka_server_replicamanager_underreplicatedpartitions 0.0" in page
    assert "kafka_server_kafkaserver_brokerstate 3.0" in page
    assert "kafka_log_logmanager_offlinelogdirectorycount 0.0" in page
    assert 'kafka_server_app_info{version="' in page


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"listeners": "CLIENT://127.0.0.1:notaport"}, "listeners"),
        ({"num_partitions": "zero"}, "num.partitions='zero'"),
        ({"log_retention_ms": "soon"}, "log.retention.ms='soon'"),
        ({"listener_security_protocol_map": "CLIENT:TLS"}, "accepted: PLAINTEXT, SSL"),
        ({"listener_security_protocol_map": "CLIENT:SSL"}, "listener.name.client.ssl.keystore.location='(not set)'"),
        ({"antipode_site_number": "7"}, "7000 to 7999"),
    ],
)
def test_bad_settings_are_named(
    start_broker: Callable[..., LoneBroker], properties: dict[str, str], complaint: str
) -> None:
    with pytest.raises(AssertionError, match="error: ") as ended:
        start_broker(**properties)
    assert complaint in str(ended.value)


def test_a_taken_port_is_named_and_nothing_is_written(
    start_broker: Callable[..., LoneBroker], lone_broker: LoneBroker
) -> None:
    with pytest.raises(AssertionError, match="cannot be bound"):
        start_broker(listeners=f"CLIENT://127.0.0.1:{lone_broker.port}")


def test_a_second_broker_on_the_same_folder_is_refused(
    start_broker: Callable[..., LoneBroker], lone_broker: LoneBroker
) -> None:
    with pytest.raises(AssertionError, match="another process uses this log directory"):
        start_broker(log_dirs=str(lone_broker.data))
