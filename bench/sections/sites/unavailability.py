"""Unavailability: how long a producer with acks=all waits when the leader's broker is killed,
vanishes silently, or is stopped in order.

A topic of one partition with three replicas, of which two must be in sync, on a site of three
brokers of each product; one librdkafka producer sends a record every few milliseconds. A round ends
the leader's broker in its way, takes the longest time between two acknowledgements around that
moment, and restarts the broker until all replicas are in sync.

The client detects a vanished broker by its own request timeout, and asks for metadata often, so
that the brokers' own times are visible. Both products have the same short sessions.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from bench.loads.steady_writer import SteadyWriter
from bench.measuring.figures import Side, percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import metered
from bench.peers import antipode, apache_kafka
from bench.peers.systems import STOP_TIMEOUT_MS, MeasuredSite, wait_until
from runtime.children import Child
from runtime.process import OperationalFailure
from wire.client.client_errors import KafkaClientError
from wire.client.cluster_metadata import PartitionMetadata
from wire.client.raw_client import KafkaClient, NewTopic, call_client

TOPIC: Final = "unavailability"
ROUNDS: Final = 50
SESSION_TIMEOUT_MS: Final = 2000
SETTINGS: Final[Mapping[Side, Mapping[str, str]]] = {
    Side.ANTIPODE: {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)},
    Side.PEER: {"broker.session.timeout.ms": str(SESSION_TIMEOUT_MS), "broker.heartbeat.interval.ms": "500"},
}
STEADY_RECORDS: Final = 100
WITHIN_S: Final = 90


def _kill(child: Child) -> None:
    child.send(signal.SIGKILL)
    child.wait_ended(timeout_ms=STOP_TIMEOUT_MS)


def _pause(child: Child) -> None:
    child.send(signal.SIGSTOP)


def _stop(child: Child) -> None:
    child.stop(timeout_ms=STOP_TIMEOUT_MS)


def _resume(child: Child) -> None:
    child.send(signal.SIGCONT)


def _start(child: Child) -> None:
    child.start()


WAYS: Final[Mapping[str, tuple[Callable[[Child], None], Callable[[Child], None]]]] = {
    "kill -9 of the leader": (_kill, _start),
    "the leader vanishes": (_pause, _resume),
    "the leader is stopped": (_stop, _start),
}
"""The ways in which the leader's broker stops, and how it returns."""


def measure(plan: Plan) -> None:
    """Measure all ways on a site of each side; a sample for each way goes to the plan."""
    for side in plan.sides:
        plan.say(f"starting three brokers of {side}")
        start = antipode.replicated_site if side is Side.ANTIPODE else apache_kafka.cluster
        with start(plan.directory / f"unavailability-{side}", settings=SETTINGS[side]) as site:
            call_client(site.bootstrap_servers, _create_topic)
            with SteadyWriter(site.bootstrap_servers, TOPIC) as load:
                for case in WAYS:
                    _measure(plan, site, load, case)


def _measure(plan: Plan, site: MeasuredSite, load: SteadyWriter, case: str) -> None:
    end, bring_back = WAYS[case]
    silences = []
    with metered(os.getpid()) as usage:
        for _ in range(plan.scaled(ROUNDS, least=1)):
            wait_until(lambda: _leader_when_whole(site) is not None, within_s=WITHIN_S, what=f"all replicas of {TOPIC}")
            load.wait_acknowledged(STEADY_RECORDS, sent_after=time.monotonic(), within_s=WITHIN_S)
            leader = _leader_when_whole(site)
            if leader is None:
                raise OperationalFailure(f"{TOPIC} has lost a replica by itself")
            since = time.monotonic()
            end(site.children[leader])
            load.wait_acknowledged(STEADY_RECORDS, sent_after=since, within_s=WITHIN_S)
            silences.append(load.silence_ms(since))
            bring_back(site.children[leader])
    values = {f"p{percent}_ms": percentile(silences, percent) for percent in (50, 99)}
    plan.record("unavailability", case, site.side, usage, **values, longest_ms=max(silences), rounds=len(silences))


async def _create_topic(client: KafkaClient) -> None:
    topic = NewTopic(name=TOPIC, partition_count=1, replication_factor=3, configs={"min.insync.replicas": "2"})
    (outcome,) = await client.create_topics([topic])
    if outcome.error_code is not ErrorCode.none:
        raise OperationalFailure(f"topic {TOPIC} cannot be created: {outcome.error_code.name}")


def _leader_when_whole(site: MeasuredSite) -> int | None:
    """The partition's leader when every broker says that all replicas are in sync."""
    leaders = set()
    for address in site.addresses.values():
        try:
            found = call_client(address, _described)
        except KafkaClientError:
            return None
        if found is None or len(found.isr) < len(site.addresses):
            return None
        leaders.add(found.leader_id)
    return leaders.pop() if len(leaders) == 1 else None


async def _described(client: KafkaClient) -> PartitionMetadata | None:
    topic = (await client.metadata([TOPIC])).topics.get(TOPIC)
    return None if topic is None else topic.partitions.get(0)
