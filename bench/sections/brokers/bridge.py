"""Measures the HTTP bridge against the native protocol on the same broker: both write and read
records of 100 bytes.

The HTTP client is as thin as can be: prepared requests on one blocking socket. CPU is that of the
bridge's process. Native figures are librdkafka's own, called in bulk. The log end offset shows that
the broker has all records.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, metered
from bench.peers.systems import PARTITION_COUNT, MeasuredBroker, check_complete, create_topic, delete_topic, running
from deploy.ports import free_ports
from runtime.addresses import HostPort
from runtime.children import Child
from runtime.compiled import ROOT
from runtime.process import OperationalFailure

SECTION = "bridge"
RECORD_BYTES = 100
SINGLE_COUNT = 5_000
BULK_COUNT = 300_000
RECORDS_PER_REQUEST = 1_000
RECORDS_PER_CHUNK = 100
READ_BYTES = 1_000_000
TIMEOUT_S = 60
READY_WITHIN_S = 30
BINARY = "application/vnd.kafka.binary.v2+json"
HOST = "127.0.0.1"
END_OF_CHUNKS = b"0\r\n\r\n"
NO_LATENCY: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBridge:
    """A bridge that serves a broker."""

    broker: MeasuredBroker
    child: Child
    address: HostPort

    @property
    def pid(self) -> int:
        """Its process. OperationalFailure when it has ended."""
        pid = self.child.pid()
        if pid is None:
            raise OperationalFailure(f"the bridge has ended: {self.child.log_tail()}")
        return pid

    def get(self, path: str) -> requests.Response:
        """Send a request that is not measured."""
        with _session() as session:
            return session.get(f"http://{self.address}{path}", timeout=TIMEOUT_S)


def measure(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Measure all cases on all brokers, and record the samples in the plan."""
    for repeat in range(plan.repeats):
        for broker in brokers:
            with _bridge(broker, plan.directory / f"bridge-{broker.side}-{repeat}") as bridge:
                _produce_by_requests(plan, bridge, f"http-1-{repeat}", plan.scaled(SINGLE_COUNT, least=100), 1)
                bulk = plan.scaled(BULK_COUNT / RECORDS_PER_REQUEST, least=2)
                _produce_by_requests(plan, bridge, f"http-n-{repeat}", bulk, RECORDS_PER_REQUEST)
                _produce_by_stream(plan, bridge, f"http-stream-{repeat}", bulk * RECORDS_PER_REQUEST)
                _natively_and_back(plan, bridge, f"native-{repeat}", bulk * RECORDS_PER_REQUEST)


def _produce_by_requests(plan: Plan, bridge: MeasuredBridge, topic: str, request_count: int, size: int) -> None:
    with _topic(bridge.broker, topic):
        encoded = [base64.b64encode(value).decode() for value in payloads(RECORD_BYTES)]
        records = [{"value": encoded[index % len(encoded)]} for index in range(size)]
        body = json.dumps({"records": records}, separators=(",", ":")).encode()
        head = f"POST /topics/{topic} HTTP/1.1\r\nhost: bench\r\ncontent-type: {BINARY}\r\ncontent-length: {len(body)}\r\n\r\n"
        with _connected(bridge.address) as connection, metered(bridge.pid) as usage:
            taken_ns = [_round_trip_ns(connection, head.encode() + body) for _ in range(request_count)]
        check_complete(bridge.broker.bootstrap_servers, topic, request_count * size)
    words = "one record" if size == 1 else f"{size:,} records"
    latency = {"p50_ms": percentile(taken_ns, 50) / 1e6, "p99_ms": percentile(taken_ns, 99) / 1e6}
    taken_s = sum(taken_ns) / 1e9
    _record(
        plan,
        bridge,
        case=f"HTTP v2, {words} a request",
        count=request_count * size,
        taken_s=taken_s,
        usage=usage,
        latency=latency,
    )


def _produce_by_stream(plan: Plan, bridge: MeasuredBridge, topic: str, count: int) -> None:
    with _topic(bridge.broker, topic):
        cluster = bridge.get("/health").json()["cluster_id"]
        encoded = base64.b64encode(payloads(RECORD_BYTES)[0]).decode()
        record = json.dumps({"value": {"type": "BINARY", "data": encoded}}, separators=(",", ":")).encode() + b"\n"
        chunk = b"%x\r\n%b\r\n" % (len(record) * RECORDS_PER_CHUNK, record * RECORDS_PER_CHUNK)
        head = (
            f"POST /v3/clusters/{cluster}/topics/{topic}/records HTTP/1.1\r\nhost: bench\r\n"
            "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )

        def send() -> None:
            connection.sendall(head.encode())
            for _ in range(count // RECORDS_PER_CHUNK):
                connection.sendall(chunk)
            connection.sendall(END_OF_CHUNKS)

        with _connected(bridge.address) as connection, metered(bridge.pid) as usage:
            began = time.monotonic()
            sending = threading.Thread(target=send)
            sending.start()
            _read_to_the_end(connection)
            sending.join()
            taken_s = time.monotonic() - began
        check_complete(bridge.broker.bootstrap_servers, topic, count)
    _record(plan, bridge, case="HTTP v3, one stream of records", count=count, taken_s=taken_s, usage=usage)


def _natively_and_back(plan: Plan, bridge: MeasuredBridge, topic: str, count: int) -> None:
    """Write and read by librdkafka, then read over HTTP."""
    address = bridge.broker.bootstrap_servers
    with _topic(bridge.broker, topic):
        with metered(bridge.pid) as usage:
            taken_s = librdkafka.produce(address, topic, payloads(RECORD_BYTES), count, {"acks": "all"})
        check_complete(address, topic, count)
        _record(plan, bridge, case="native, one producer", count=count, taken_s=taken_s, usage=usage, has_cpu=False)
        with metered(bridge.pid) as usage:
            per_s = librdkafka.consume(address, topic, PARTITION_COUNT, count, {})
        _record(
            plan, bridge, case="native, one consumer", count=count, taken_s=count / per_s, usage=usage, has_cpu=False
        )
        _consume(plan, bridge, topic, count)


def _consume(plan: Plan, bridge: MeasuredBridge, topic: str, count: int) -> None:
    """Consume from the first records on, as the native case does."""
    with _session() as session:
        base = f"http://{bridge.address}/consumers/bench-{topic}"
        settings = {"name": "reader", "format": "binary", "auto.offset.reset": "earliest", "fetch.min.bytes": 1}
        headers = {"content-type": "application/vnd.kafka.v2+json"}
        session.post(base, json.dumps(settings), headers=headers, timeout=TIMEOUT_S).raise_for_status()
        instance = f"{base}/instances/reader"
        wanted = json.dumps({"topics": [topic]})
        session.post(f"{instance}/subscription", wanted, headers=headers, timeout=TIMEOUT_S).raise_for_status()
        first = 0
        while not first:
            first = _records_in(session, instance)
        received = 0
        with metered(bridge.pid) as usage:
            began = time.monotonic()
            while first + received < count:
                received += _records_in(session, instance)
            taken_s = time.monotonic() - began
        session.delete(instance, timeout=TIMEOUT_S)
    if received:
        _record(plan, bridge, case="HTTP v2, reads of 1 MB", count=received, taken_s=taken_s, usage=usage)


def _records_in(session: requests.Session, instance: str) -> int:
    """Read once, and count the records without parsing the response."""
    answer = session.get(f"{instance}/records?max_bytes={READ_BYTES}", timeout=TIMEOUT_S)
    answer.raise_for_status()
    return answer.content.count(b'{"topic":')


def _record(
    plan: Plan,
    bridge: MeasuredBridge,
    case: str,
    count: int,
    taken_s: float,
    usage: Usage,
    latency: Mapping[str, float] = NO_LATENCY,
    *,
    has_cpu: bool = True,
) -> None:
    values = {"records_per_s": count / taken_s, "mb_per_s": count * RECORD_BYTES / taken_s / 1e6, **latency}
    if has_cpu:
        values["cpu_us_per_record"] = usage.cpu_s / count * 1e6
    plan.record(SECTION, case, bridge.broker.side, usage, **values)


@contextmanager
def _bridge(broker: MeasuredBroker, directory: Path) -> Iterator[MeasuredBridge]:
    (port,) = free_ports(1)
    address = HostPort(HOST, port)
    directory.mkdir(parents=True)
    file = directory / "bridge.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\nlisteners=http://{address}\n", encoding="utf-8")
    child = Child(
        name=f"bridge-{broker.side}",
        command=[sys.executable, "-m", "cli.main", "bridge", "--config", str(file)],
        directory=directory,
        log=directory / "bridge.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
    bridge = MeasuredBridge(broker=broker, child=child, address=address)

    def is_ready() -> bool:
        try:
            return bridge.get("/health").ok
        except requests.RequestException:
            return False

    with running(child, is_ready, within_s=READY_WITHIN_S):
        yield bridge


@contextmanager
def _topic(broker: MeasuredBroker, topic: str) -> Iterator[None]:
    create_topic(broker.bootstrap_servers, topic)
    yield
    delete_topic(broker.bootstrap_servers, topic)


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    return session


def _connected(address: HostPort) -> socket.socket:
    connection = socket.create_connection(address, timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _round_trip_ns(connection: socket.socket, request: bytes) -> int:
    began = time.perf_counter_ns()
    connection.sendall(request)
    received = _more(connection)
    while (head_end := received.find(b"\r\n\r\n")) < 0:
        received += _more(connection)
    head = received[:head_end].lower()
    if not head.startswith(b"http/1.1 200"):
        raise OperationalFailure(f"the bridge answered {received[:200]!r}")
    wanted = head_end + 4 + int(head.partition(b"content-length:")[2].partition(b"\r")[0])
    while len(received) < wanted:
        received += _more(connection)
    return time.perf_counter_ns() - began


def _read_to_the_end(connection: socket.socket) -> None:
    tail = b""
    while not tail.endswith(b"\r\n" + END_OF_CHUNKS):
        piece = _more(connection)
        if b'"message":' in piece:
            raise OperationalFailure(f"the bridge answered {piece[:500]!r}")
        tail = (tail + piece)[-64:]


def _more(connection: socket.socket) -> bytes:
    piece = connection.recv(1 << 20)
    if not piece:
        raise OperationalFailure("the bridge closed the connection instead of answering")
    return piece
