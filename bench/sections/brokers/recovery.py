"""Recovery: how much longer a start after kill -9 takes than a start after an orderly stop, for
each GB that may not be on disk.

One broker, eight partitions, records of 1 KB, nothing flushed: both products check batch by batch
what was written since the last checkpoint of recovery points. The start ends with the first answers
to ApiVersions and Metadata, as in the start-up section; both brokers recover their logs before
that.
"""

from __future__ import annotations

import signal

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage
from bench.measuring.warm_memory import touch_free_memory
from bench.peers.sides import broker_of
from bench.peers.systems import STOP_TIMEOUT_MS, MeasuredBroker, check_complete, create_topic
from bench.sections.brokers.start_up import started
from runtime.addresses import parse_host_port

RECORD_BYTES = 1_000
LOAD_BYTES = 1e9
TOPIC = "recovered"
UNFLUSHED = {"log.flush.offset.checkpoint.interval.ms": "600000"}
"""Settings of both products: no checkpoint falls between the load and the kill."""


def measure(plan: Plan) -> None:
    """Measure both sides, one after the other, and record the samples in the plan."""
    for side in plan.sides:
        with broker_of(side, plan.directory / f"recovery-{side}", settings=UNFLUSHED) as broker:
            for repeat in range(plan.repeats):
                _measure(plan, broker, repeat)


def _measure(plan: Plan, broker: MeasuredBroker, repeat: int) -> None:
    count = plan.scaled(LOAD_BYTES / RECORD_BYTES, least=10_000)
    plan.say(f"writing {count:,} records of 1 KB to {broker.child.name}, which is then killed")
    topic = f"{TOPIC}-{repeat}"
    create_topic(broker.bootstrap_servers, topic)
    touch_free_memory(count * RECORD_BYTES)
    librdkafka.produce(broker.bootstrap_servers, topic, payloads(RECORD_BYTES), count, {"acks": "all"})
    check_complete(broker.bootstrap_servers, topic, count)
    broker.child.send(signal.SIGKILL)
    broker.child.wait_ended(timeout_ms=STOP_TIMEOUT_MS)
    after_kill_s, usage = _start(broker)
    check_complete(broker.bootstrap_servers, topic, count)
    broker.child.stop(timeout_ms=STOP_TIMEOUT_MS)
    after_stop_s, usage_after_stop = _start(broker)
    written_gb = count * RECORD_BYTES / 1e9
    values = {
        "s_per_gb": max(after_kill_s - after_stop_s, 0.0) / written_gb,
        "cpu_s_per_gb": max(usage.cpu_s - usage_after_stop.cpu_s, 0.0) / written_gb,
        "after_kill_s": after_kill_s,
        "after_stop_s": after_stop_s,
    }
    plan.record("recovery", "1 KB records, nothing flushed", broker.side, usage, **values)


def _start(broker: MeasuredBroker) -> tuple[float, Usage]:
    return started(broker.child, parse_host_port(broker.bootstrap_servers))
