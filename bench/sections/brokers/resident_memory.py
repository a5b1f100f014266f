"""Resident memory of a freshly started broker after it received and served 2 GB of records of 1
KB.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.plan import Plan
from bench.measuring.processes import memory, metered
from bench.peers.systems import PARTITION_COUNT, MeasuredBroker, check_complete, create_topic, delete_topic

RECORD_BYTES = 1_000
TRAFFIC_BYTES = 2e9
TOPIC = "traffic"


def measure(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Send the traffic through each broker, which must have had none before."""
    count = plan.scaled(TRAFFIC_BYTES / RECORD_BYTES, least=1_000)
    for broker in brokers:
        plan.say(f"{count:,} records of 1 KB through {broker.child.name}")
        servers = broker.bootstrap_servers
        create_topic(servers, TOPIC)
        with metered(broker.pid) as usage:
            librdkafka.produce(servers, TOPIC, payloads(RECORD_BYTES), count, {"acks": "all"})
            check_complete(servers, TOPIC, count)
            librdkafka.consume(servers, TOPIC, PARTITION_COUNT, count, {})
        used = memory(broker.pid)
        values = {"resident_mb": used.resident_bytes / 1e6, "peak_mb": used.peak_bytes / 1e6}
        plan.record("memory", "after 2 GB in and out", broker.side, usage, **values)
        delete_topic(servers, TOPIC)
