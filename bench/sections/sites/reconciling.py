"""Reconciliation beside producers: how much comparing both sites by digests, again and again, adds
to the latency of acknowledgements.

Two sites with a mirror between them. An open-loop producer with acks=all writes at a steady rate to
the active site. Another process compares the sites with `antipode reconcile --watch`, which starts
the next comparison as soon as the last one has ended. It is stopped (SIGSTOP) and continued in
turns of a few seconds, so that both periods see the same machine; the p99 of a period is the median
of its turns. Only Antipode is measured, since Apache Kafka keeps no digests.
"""

from __future__ import annotations

import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.loads import librdkafka
from bench.loads.paced_load import PacedLoad, PacedLoadProcess
from bench.loads.payloads import payloads
from bench.measuring.figures import Side, percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import metered
from bench.peers import antipode
from bench.peers.systems import PARTITION_COUNT, create_topic, record_count, running, wait_until
from dr.drill.environment import Environment
from runtime.children import Child
from runtime.compiled import ROOT
from runtime.process import OperationalFailure

TOPIC: Final = "compared"
RECORD_BYTES: Final = 1_000
EARLIER_RECORDS: Final = 200_000
RECORDS_PER_S: Final = 2_000
TURNS: Final = 10
TURN_S: Final = 4.0
INTERVAL_MS: Final = 100
"""The shortest pause that `reconcile --watch` takes between two comparisons."""
WARM_UP_S, SPARE_S = 2.0, 10.0
"""Time before the turns and, since the load's first record may take long, behind them."""
SETTLED_S: Final = 0.5
"""The beginning of each turn that does not count: acknowledgements of the turn before."""
WITHIN_S: Final = 300
EQUAL: Final = "equal until"
"""What `reconcile --watch` prints after a comparison."""


def measure(plan: Plan) -> None:
    """Samples go to the plan."""
    if Side.ANTIPODE not in plan.sides:
        return
    with antipode.sites(plan.directory / "reconcile", "--sites", "a,b") as environment:
        _fill(plan, environment)
        with _comparisons(plan, environment) as comparing:
            for repeat in range(plan.repeats):
                _measure(plan, environment, comparing, repeat)


def _fill(plan: Plan, environment: Environment) -> None:
    servers = [environment.sites[site].bootstrap_servers for site in "ab"]
    create_topic(servers[0], TOPIC)
    count = plan.scaled(EARLIER_RECORDS, least=5_000)
    plan.say(f"writing {count:,} records that both sites compare")
    librdkafka.produce(servers[0], TOPIC, payloads(RECORD_BYTES), count, {"acks": "all"})
    wait_until(lambda: record_count(servers[1], TOPIC) == count, within_s=WITHIN_S, what="the standby's copy")


@contextmanager
def _comparisons(plan: Plan, environment: Environment) -> Iterator[Child]:
    """A process that compares both sites without end; it is stopped at first."""
    directory = plan.directory / "reconcile-watch"
    sides = [
        f"--{name}={environment.sites[site].bootstrap_servers}" for name, site in (("source", "a"), ("target", "b"))
    ]
    watching = ("--watch", "--interval-ms", str(INTERVAL_MS), "--whitelist", TOPIC)
    child = Child(
        name="reconcile-watch",
        command=(sys.executable, "-m", "cli.main", "reconcile", *sides, *watching),
        directory=directory,
        log=directory.with_suffix(".log"),
        environment={"PYTHONPATH": str(ROOT)},
    )
    with running(child, lambda: _comparison_count(child) > 0, within_s=WITHIN_S):
        child.send(signal.SIGSTOP)
        try:
            yield child
        finally:
            child.send(signal.SIGCONT)


def _comparison_count(child: Child) -> int:
    return child.log.read_text(encoding="utf-8").count(EQUAL) if child.log.exists() else 0


def _measure(plan: Plan, environment: Environment, comparing: Child, repeat: int) -> None:
    turns, turn_s = max(2, round(TURNS * min(plan.scale, 1))), max(2.0, TURN_S * min(plan.scale, 1))
    plan.say(f"reconcile: {turns} turns of {turn_s:g} s without it and beside it")
    load = PacedLoad(
        bootstrap_servers=environment.sites["a"].bootstrap_servers,
        topic=TOPIC,
        partition_count=PARTITION_COUNT,
        records_per_s=RECORDS_PER_S,
        record_bytes=RECORD_BYTES,
        duration_s=WARM_UP_S + turns * turn_s + SPARE_S,
        result=str(plan.directory / f"beside-reconcile-{repeat}.npz"),
    )
    spans: list[tuple[int, int]] = []
    compared = 0
    broker = antipode.broker_of(environment, "a")
    written = record_count(load.bootstrap_servers, TOPIC)
    with PacedLoadProcess(load) as producing, metered(broker.pid) as usage:
        wait_until(lambda: record_count(load.bootstrap_servers, TOPIC) > written, within_s=WITHIN_S, what="the load")
        time.sleep(WARM_UP_S)
        for number in range(turns):
            before = _comparison_count(comparing)
            comparing.send(signal.SIGCONT if number % 2 else signal.SIGSTOP)
            began_ns = time.monotonic_ns() + int(SETTLED_S * 1e9)
            time.sleep(turn_s)
            spans.append((began_ns, time.monotonic_ns()))
            compared += _comparison_count(comparing) - before
        comparing.send(signal.SIGSTOP)
        acknowledged = producing.finish()
    alone, beside = (statistics.median(_p99s(acknowledged, spans[first::2])) for first in (0, 1))
    plan.record(
        "reconcile",
        "1 KB, 2,000 records/s",
        Side.ANTIPODE,
        usage,
        alone_p99_ms=alone,
        beside_p99_ms=beside,
        p99_ratio=beside / alone,
        comparisons_per_s=compared / (len(spans[1::2]) * turn_s),
    )


def _p99s(acknowledged: Any, spans: list[tuple[int, int]]) -> list[float]:
    """The p99 of each turn. OperationalFailure if nothing was acknowledged in one of them."""
    at_ns, latency_ms = acknowledged["acknowledged_ns"], acknowledged["latency_ms"]
    turns = [latency_ms[(at_ns >= first) & (at_ns < end)].tolist() for first, end in spans]
    if not all(turns):
        raise OperationalFailure("no record was acknowledged for seconds: the machine has too little time for the load")
    return [percentile(turn, 99) for turn in turns]
