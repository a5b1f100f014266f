"""Measures the gain of the compiled modules: produce, consume and requests of one record on a
broker of ours with machine code, on one that runs the source, and on Apache Kafka.

The files that a process has mapped show whether its broker runs compiled modules. Figures of the
interpreted broker have names of their own, and the peer's samples are compared with both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.loads import librdkafka
from bench.measuring.figures import Side
from bench.measuring.plan import Plan
from bench.measuring.processes import Usage
from bench.peers import antipode, apache_kafka
from bench.peers.systems import PARTITION_COUNT, MeasuredBroker, delete_topic_and_files
from bench.sections.brokers import consume, produce, request_rate
from runtime import compiled
from runtime.process import OperationalFailure

SECTION = "compiled"
INTERPRETED = "interpreted_"
"""Prefix of the figures of interpreted modules."""
ACKS, ACKS_OF_REQUESTS = "all", -1


class Measured(NamedTuple):
    """A broker, and the prefixes of the names of its figures; the peer has both prefixes."""

    broker: MeasuredBroker
    prefixes: Sequence[str]


def measure(plan: Plan) -> None:
    """Measure all cases on all brokers, and record the samples in the plan. Measures nothing if no
    module is compiled.
    """
    if not compiled.compiled_files(compiled.directory()):
        plan.say(f"{SECTION} is left out: `make setup` has compiled no modules")
        return
    with _brokers(plan) as all_measured:
        produce.warm_up(plan, [one.broker for one in all_measured])
        for repeat in range(plan.repeats):
            for size_bytes, size in produce.SIZES_BYTES.items():
                for one in all_measured:
                    _measure_size(plan, one, f"compiled-{size_bytes}-{repeat}", size_bytes, size)
            count = plan.scaled(request_rate.REQUEST_COUNT, least=200)
            for one in all_measured:
                measured = request_rate.one_in_flight(
                    one.broker, f"compiled-requests-{repeat}", ACKS_OF_REQUESTS, count
                )
                _record(plan, one, "requests, one record, acks=all", *measured)


def prefixed(values: Mapping[str, float], prefixes: Sequence[str]) -> dict[str, float]:
    """The values under each of the prefixes."""
    return {prefix + name: value for prefix in prefixes for name, value in values.items()}


def is_mapped(maps: str, folder: Path) -> bool:
    """True if a process has files of the folder mapped, by the text of /proc/PID/maps."""
    return any(f"{folder}/" in line for line in maps.splitlines())


@contextmanager
def _brokers(plan: Plan) -> Iterator[list[Measured]]:
    with ExitStack() as running:
        found = []
        for name, prefix, variable in (("compiled", "", "0"), ("interpreted", INTERPRETED, "1")):
            plan.say(f"starting antipode, {name}")
            start = antipode.lone_broker(
                plan.directory / f"{SECTION}-{name}", variables={compiled.INTERPRETED_VARIABLE: variable}
            )
            broker = running.enter_context(start)
            _check_runs(broker, is_compiled=not prefix)
            found.append(Measured(broker, (prefix,)))
        if Side.PEER in plan.sides:
            plan.say(f"starting {Side.PEER}")
            peer = running.enter_context(apache_kafka.lone_broker(plan.directory / f"{SECTION}-peer"))
            found.append(Measured(peer, ("", INTERPRETED)))
        yield found


def _check_runs(broker: MeasuredBroker, *, is_compiled: bool) -> None:
    maps = Path(f"/proc/{broker.pid}/maps").read_text(encoding="utf-8", errors="replace")
    if is_mapped(maps, compiled.directory().resolve()) is not is_compiled:
        raise OperationalFailure(f"{broker.child.name} runs {'no' if is_compiled else 'the'} compiled modules")


def _measure_size(plan: Plan, one: Measured, topic: str, size_bytes: int, size: str) -> None:
    """Produce to a topic, read it once to warm up, and read it."""
    broker, count = one.broker, plan.scaled(produce.LOAD_BYTES[size_bytes] / size_bytes, least=1_000)
    _record(plan, one, f"produce, {size}", *produce.by_librdkafka(broker, topic, size_bytes, ACKS, count))
    librdkafka.consume(broker.bootstrap_servers, topic, PARTITION_COUNT, count, {})
    _record(plan, one, f"consume, {size}", *consume.by_librdkafka(broker, topic, size_bytes, count))
    delete_topic_and_files(broker, topic)


def _record(plan: Plan, one: Measured, case: str, values: Mapping[str, float], usage: Usage) -> None:
    plan.record(SECTION, case, one.broker.side, usage, **prefixed(values, one.prefixes))
