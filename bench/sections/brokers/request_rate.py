"""Request rate: produce requests of one record of 100 bytes, one in flight, over one connection.

The client does as little as possible, so that its own time does not hide the broker's: it sends one
prepared frame on a blocking socket and reads the whole answer. The log's end shows that all records
were appended.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial

from bench.loads.payloads import payloads
from bench.measuring.figures import percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, metered
from bench.peers.systems import MeasuredBroker, check_complete, create_topic, delete_topic_and_files
from runtime.addresses import HostPort, parse_host_port
from runtime.process import OperationalFailure
from wire.batches.records import Record, encode_batch
from wire.protocol.messages.produce_codec import (
    API_KEY,
    PartitionRecords,
    ProduceRequest,
    TopicRecords,
    produce_request_parts,
)
from wire.protocol.streams.frames import SIZE_PREFIX_SIZE, request_prefix

VERSION = 9
RECORD_BYTES = 100
REQUEST_COUNT = 10_000
WARM_UP_SHARE = 5
"""One warm-up request for this many measured requests."""
ACKS = {1: "acks=1", -1: "acks=all"}
TIMEOUT_S = 30
_SIZE = struct.Struct(">i")


def measure(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Measure both acks on all brokers, and record the samples in the plan."""
    count = plan.scaled(REQUEST_COUNT, least=200)
    for repeat in range(plan.repeats):
        for acks, name in ACKS.items():
            for broker in brokers:
                values, usage = one_in_flight(broker, f"requests-{acks}-{repeat}", acks, count)
                plan.record("requests", f"one record, {name}", broker.side, usage, **values)


def one_in_flight(
    broker: MeasuredBroker, topic: str, acks: int, count: int, *, connect: Callable[[], socket.socket] | None = None
) -> tuple[dict[str, float], Usage]:
    """Send this many requests to a separate topic; return the figures of a sample, and the broker's
    use of CPU and memory. `connect` makes the connection, plaintext without it.
    """
    create_topic(broker.bootstrap_servers, topic)
    frame = prepared_request(topic, acks)
    warm_up_count = count // WARM_UP_SHARE
    with (connect or partial(connected, parse_host_port(broker.bootstrap_servers)))() as connection:
        _round_trips_ns(connection, frame, warm_up_count)
        with metered(broker.pid) as usage:
            taken_ns = _round_trips_ns(connection, frame, count)
    check_complete(broker.bootstrap_servers, topic, warm_up_count + count)
    delete_topic_and_files(broker, topic)
    values = {
        "per_s": count / (sum(taken_ns) / 1e9),
        "p50_ms": percentile(taken_ns, 50) / 1e6,
        "p99_ms": percentile(taken_ns, 99) / 1e6,
        "cpu_us_per_request": usage.cpu_s / count * 1e6,
    }
    return values, usage


def prepared_request(topic: str, acks: int) -> bytes:
    """A whole Produce request with one record for partition 0, which can be sent again and
    again.
    """
    batch = encode_batch([Record(key=None, value=payloads(RECORD_BYTES)[0], timestamp_ms=time.time_ns() // 1_000_000)])
    request = ProduceRequest(None, acks, TIMEOUT_S * 1000, [TopicRecords(topic, None, [PartitionRecords(0, batch)])])
    parts, size = produce_request_parts(request, VERSION)
    return b"".join([request_prefix(API_KEY, VERSION, 1, "bench", body_size=size), *parts])


def connected(address: HostPort) -> socket.socket:
    """A blocking connection with TCP_NODELAY."""
    connection = socket.create_connection(address, timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _round_trips_ns(connection: socket.socket, frame: bytes, count: int) -> list[int]:
    taken = []
    for _ in range(count):
        began = time.perf_counter_ns()
        connection.sendall(frame)
        read_answers(connection, 1)
        taken.append(time.perf_counter_ns() - began)
    return taken


def read_answers(connection: socket.socket, count: int) -> list[bytes]:
    """So many answers, whole. Raises OperationalFailure if the broker closes the connection."""
    received = b""
    answers: list[bytes] = []
    while len(answers) < count:
        wanted = SIZE_PREFIX_SIZE
        if len(received) >= SIZE_PREFIX_SIZE:
            wanted += _SIZE.unpack_from(received)[0]
        if SIZE_PREFIX_SIZE < wanted <= len(received):
            answers.append(received[:wanted])
            received = received[wanted:]
            continue
        more = connection.recv(65536)
        if not more:
            raise OperationalFailure("the broker closed the connection instead of answering")
        received += more
    return answers
