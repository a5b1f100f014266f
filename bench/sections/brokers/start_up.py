"""Start-up: from the start of the process to the first answers on its client listener.

The first answers are to ApiVersions and to Metadata that names a broker. Parts outside the measured
process are ready: our broker has its ZooKeeper running, and the peer has its directory formatted.
Both start on a directory that contains a topic and was closed by an orderly stop.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

from bench.measuring.plan import Plan
from bench.measuring.processes import Usage, metered
from bench.peers.systems import STOP_TIMEOUT_MS, MeasuredBroker, create_topic
from runtime.addresses import HostPort, parse_host_port
from runtime.children import Child
from runtime.process import OperationalFailure
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.streams import frames

API_VERSIONS, METADATA = 18, 3
API_VERSIONS_VERSION, METADATA_VERSION = 0, 4
START_COUNT = 3
WITHIN_S = 60
POLL_S = 0.002
ATTEMPT_TIMEOUT_S = 5


def measure(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Stop and start each broker several times; it runs again afterwards."""
    for broker in brokers:
        create_topic(broker.bootstrap_servers, "start-up")
    for _ in range(START_COUNT):
        for broker in brokers:
            broker.child.stop(timeout_ms=STOP_TIMEOUT_MS)
            ready_s, usage = started(broker.child, parse_host_port(broker.bootstrap_servers))
            plan.record("start-up", "broker", broker.side, usage, ready_s=ready_s, cpu_s=usage.cpu_s)


def started(child: Child, address: HostPort) -> tuple[float, Usage]:
    """Start the process; return the seconds until its first response, and its use of CPU and memory
    until that time.
    """
    began = time.monotonic()
    pid = child.start()
    with metered(pid) as usage:
        while not answers(address):
            if child.pid() is None or time.monotonic() - began > WITHIN_S:
                raise OperationalFailure(f"{child.name} does not answer: {child.log_tail()}")
            time.sleep(POLL_S)
        ready_s = time.monotonic() - began
    return ready_s, usage


def answers(address: HostPort) -> bool:
    """True if the broker answers ApiVersions now, and Metadata with at least one broker."""
    try:
        with socket.create_connection(address, timeout=ATTEMPT_TIMEOUT_S) as connection:
            _ask(connection, API_VERSIONS, API_VERSIONS_VERSION, {})
            metadata = _ask(
                connection, METADATA, METADATA_VERSION, {"topics": None, "allow_auto_topic_creation": False}
            )
    except (OSError, EOFError):
        return False
    return len(metadata.brokers) > 0


def _ask(connection: socket.socket, api_key: int, version: int, values: dict[str, object]) -> Any:
    entity = build_entity(schemas.request_type(api_key, version), values)
    connection.sendall(frames.encode_request(api_key, version, 1, "bench", entity))
    size = int.from_bytes(_exactly(connection, frames.SIZE_PREFIX_SIZE), "big")
    return frames.decode_response(_exactly(connection, size), api_key, version)


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            raise EOFError
        received += more
    return received
