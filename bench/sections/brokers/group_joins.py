"""Groups: the time of a hundred members from their start to their first records, and offset commits
a second.

The members are librdkafka consumers of one process with the library's own settings, all started at
once, with one record in each partition: the figure is the time until the last member has read its
record. A few threads commit for a group without members, each over its own connection with several
requests in flight, so that the coordinator is measured and not a client. The last commit is read
back.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

from bench.measuring.figures import percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import metered
from bench.peers.systems import MeasuredBroker, delete_topic
from bench.sections.brokers.request_rate import connected, read_answers
from runtime.addresses import parse_host_port
from runtime.process import OperationalFailure
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient, NewTopic, call_client
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.streams.frames import encode_request

MEMBER_COUNT = 100
PROTOCOLS = {
    "classic": {"partition.assignment.strategy": "range"},
    "consumer": {"group.protocol": "consumer"},
}
JOIN_WITHIN_S = 120
POLL_S = 0.001

OFFSET_COMMIT, COMMIT_VERSION = 8, 7
COMMIT_COUNT = 40_000
CONNECTIONS = 4
IN_FLIGHT = 20


def measure(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Measure all cases on all brokers, and record the samples in the plan."""
    for repeat in range(plan.repeats):
        for protocol in PROTOCOLS:
            for broker in brokers:
                _measure_joins(plan, broker, protocol, repeat)
        for broker in brokers:
            _measure_commits(plan, broker, repeat)


def _measure_joins(plan: Plan, broker: MeasuredBroker, protocol: str, repeat: int) -> None:
    count = plan.scaled(MEMBER_COUNT, least=5)
    topic = f"joined-{protocol}-{repeat}"
    _fill(broker.bootstrap_servers, topic, count)
    with metered(broker.pid) as usage:
        taken_s = _first_records_s(broker.bootstrap_servers, topic, protocol, count)
    delete_topic(broker.bootstrap_servers, topic)
    values = {"all_read_s": max(taken_s), "p50_s": percentile(taken_s, 50), "cpu_s": usage.cpu_s}
    plan.record("groups", f"{MEMBER_COUNT} members, {protocol}", broker.side, usage, **values)


def _fill(bootstrap_servers: str, topic: str, partition_count: int) -> None:
    """A topic with one record in each partition."""

    async def fill(client: KafkaClient) -> None:
        wanted = NewTopic(name=topic, partition_count=partition_count, replication_factor=1)
        (outcome,) = await client.create_topics([wanted])
        if outcome.error_code:
            raise OperationalFailure(f"topic {topic} cannot be created: {outcome.error_code.name}")
        batch = encode_batch([Record(key=None, value=b"waiting", timestamp_ms=time.time_ns() // 1_000_000)])
        for partition in range(partition_count):
            await client.produce(topic, partition, batch)

    call_client(bootstrap_servers, fill)


def _first_records_s(bootstrap_servers: str, topic: str, protocol: str, count: int) -> list[float]:
    """Seconds from the first subscription to each member's first record."""
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"group-of-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 2,
        **PROTOCOLS[protocol],
    }
    members = [Consumer(settings) for _ in range(count)]
    try:
        began = time.monotonic()
        for member in members:
            member.subscribe([topic])
        waiting, taken_s = dict(enumerate(members)), []
        while waiting:
            if time.monotonic() - began > JOIN_WITHIN_S:
                raise OperationalFailure(f"{len(waiting)} of {count} members have read nothing after {JOIN_WITHIN_S} s")
            # every member is polled, also one that has read all its records: a rebalance needs
            # every member
            for index, member in enumerate(members):
                message = member.poll(0)
                if message is not None and message.error() is None and waiting.pop(index, None) is not None:
                    taken_s.append(time.monotonic() - began)
            time.sleep(POLL_S)
        return taken_s
    finally:
        for member in members:
            member.close()


def _measure_commits(plan: Plan, broker: MeasuredBroker, repeat: int) -> None:
    topic, rounds = f"committed-{repeat}", plan.scaled(COMMIT_COUNT / CONNECTIONS / IN_FLIGHT, least=5)
    _fill(broker.bootstrap_servers, topic, 1)
    groups = [f"committers-{repeat}-{index}" for index in range(CONNECTIONS)]
    for group in groups:
        _commit_once(broker.bootstrap_servers, group, topic)
    taken_ns: list[int] = []
    with metered(broker.pid) as usage:
        began = time.monotonic()
        threads = [
            threading.Thread(target=_commit, args=(broker.bootstrap_servers, group, topic, rounds, taken_ns))
            for group in groups
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken_s = time.monotonic() - began
    for group in groups:
        found = _committed(broker.bootstrap_servers, group, topic)
        if found != rounds:
            raise OperationalFailure(f"{group} committed {rounds}, but {found} was expected")
    delete_topic(broker.bootstrap_servers, topic)
    count = rounds * IN_FLIGHT * CONNECTIONS
    values = {
        "commits_per_s": count / taken_s,
        "round_p99_ms": percentile(taken_ns, 99) / 1e6,
        "cpu_us_per_commit": usage.cpu_s / count * 1e6,
    }
    plan.record("groups", f"commits, {CONNECTIONS} x {IN_FLIGHT} in flight", broker.side, usage, **values)


def _commit(bootstrap_servers: str, group: str, topic: str, rounds: int, taken_ns: list[int]) -> None:
    with connected(parse_host_port(bootstrap_servers)) as connection:
        for number in range(1, rounds + 1):
            frames = _commit_frame(group, topic, number) * IN_FLIGHT
            began = time.perf_counter_ns()
            _exchange(connection, frames)
            taken_ns.append(time.perf_counter_ns() - began)


def _exchange(connection: socket.socket, frames: bytes) -> None:
    connection.sendall(frames)
    for answer in read_answers(connection, IN_FLIGHT):
        # the topic has one partition: its error ends the call
        if answer[-2:] != b"\0\0":
            raise OperationalFailure(f"a commit is answered with error {int.from_bytes(answer[-2:])}")


def _commit_frame(group: str, topic: str, offset: int) -> bytes:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    request = build_entity(schemas.request_type(OFFSET_COMMIT, COMMIT_VERSION), values)
    return encode_request(OFFSET_COMMIT, COMMIT_VERSION, 1, "bench", request)


def _commit_once(bootstrap_servers: str, group: str, topic: str) -> None:
    """Create the group, and the offsets topic if this is its first group."""

    async def commit(client: KafkaClient) -> None:
        outcomes = await client.commit(group, {(topic, 0): CommittedOffset(0)})
        if any(outcomes.values()):
            raise OperationalFailure(f"{group} cannot commit: {outcomes}")

    call_client(bootstrap_servers, commit)


def _committed(bootstrap_servers: str, group: str, topic: str) -> int:
    async def ask(client: KafkaClient) -> int:
        return (await client.committed(group))[topic, 0].offset

    return call_client(bootstrap_servers, ask)
