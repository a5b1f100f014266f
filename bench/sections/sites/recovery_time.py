"""Recovery time: how long writers wait when the active site of a link is moved as planned work, and
when it is lost and the standby fails over by itself; and the CPU of an idle pair.

A librdkafka producer with acks=all that knows both sites sends a record every few milliseconds to
each partition in turn. The figure of a planned move is the latency of the slowest record around it.
The time of a loss (kill -9 of the active site's broker and ZooKeeper) is divided into three parts:
until the standby began its failover (detection and lease), the failover itself, and until the
client had its first acknowledgement. The phases of both runs show where their time goes
(`bench/measuring/phases.py`).

MirrorMaker 2 has neither a planned move nor a failover: the commands of its operators' runbook are
measured beside it (`runbook.py`). The sums compare: the slowest record of a planned move, and the
time from a loss to the next acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psutil

from bench.loads.steady_writer import SteadyWriter
from bench.measuring.figures import Side, percentile
from bench.measuring.phases import TITLES, phases
from bench.measuring.plan import Plan
from bench.measuring.processes import cpu_s, metered
from bench.measuring.rest import wait_at_rest
from bench.peers import antipode
from bench.peers.systems import create_topic, wait_until
from bench.sections.sites.runbook import measure_runbook
from dr.drill.environment import Environment
from dr.failover.core.recorded_run import RUNNING, RunRecord
from dr.failover.core.steps import Step
from dr.sites.channels import Channels
from dr.sites.site_client import SiteClient
from runtime.compiled import ROOT
from runtime.process import OperationalFailure
from wire.client.raw_client import KafkaClient, call_client
from wire.protocol.ids import LATEST_TIMESTAMP

LINK: Final = "a-b"
TOPIC: Final = "moved"
MOVES: Final = 5
LEASE_MS: Final = 2_000
PARTITIONS: Final = (100, 1_000, 10_000)
STEADY_RECORDS: Final = 200
IDLE_S: Final = 30.0
READY_WITHIN_S: Final = 300
BOUNDS: Final = ("--unavailability-max-ms", "30000", "--drain-timeout-ms", "60000")
BROKER_SETTINGS: Final = {
    "antipode.arbiter.session.timeout.ms": str(LEASE_MS),
    # the default, because an idle pair should cost what users see: other sections check each log
    # every second
    "log.retention.check.interval.ms": "300000",
}


def measure(plan: Plan) -> None:
    """Samples go to the plan."""
    for partitions in PARTITIONS:
        count = plan.scaled(partitions, least=10)
        planned, lost = f"{partitions} partitions, planned", f"{partitions} partitions, site lost"
        if Side.ANTIPODE in plan.sides:
            _measure_moves(plan, planned, count)
            _measure_loss(plan, lost, count)
        if Side.PEER in plan.sides:
            measure_runbook(plan, topic=TOPIC, partitions=count, planned=planned, lost=lost)


@contextmanager
def _pair(plan: Plan, case: str, partitions: int, *arguments: str) -> Iterator[Environment]:
    """Two sites whose standby has the whole topic."""
    # of the case, not of the scaled count: small runs have the same count in every case
    directory = plan.directory / case.replace(", ", "-").replace(" ", "-")
    with antipode.sites(directory, "--sites", "a,b", *arguments, broker_settings=BROKER_SETTINGS) as environment:
        create_topic(environment.sites["a"].bootstrap_servers, TOPIC, partition_count=partitions)
        _wait_protected(environment, "a")
        yield environment


def _writer(environment: Environment, partitions: int) -> SteadyWriter:
    """A writer that knows both sites."""
    addresses = ",".join(site.bootstrap_servers for site in environment.sites.values())
    return SteadyWriter(addresses, TOPIC, partitions=partitions)


def _wait_acknowledged(load: SteadyWriter, *, sent_after: float) -> None:
    load.wait_acknowledged(STEADY_RECORDS, sent_after=sent_after, within_s=READY_WITHIN_S)


def _measure_moves(plan: Plan, case: str, partitions: int) -> None:
    plan.say(f"recovery-time: {case}")
    with _pair(plan, case, partitions) as environment:
        idle = _idle_cores(environment, within_s=plan.scaled(IDLE_S, least=5))
        slowest, stopped, moves = [], [], []
        with _writer(environment, partitions) as load, metered(os.getpid()) as usage:
            _wait_acknowledged(load, sent_after=time.monotonic())
            for number in range(plan.scaled(MOVES, least=2)):
                to_site = "ba"[number % 2]
                _wait_protected(environment, "ab"[number % 2])
                since = time.monotonic()
                steps = _moved(environment, to_site)
                _wait_acknowledged(load, sent_after=time.monotonic())
                slowest.append(load.slowest_ms(since))
                moves.append(phases(steps))
                stopped.append(sum(_ms_of(steps, step) for step in (Step.DRAIN, Step.RAISE, Step.ACCOUNT)))
    plan.record(
        "recovery-time",
        case,
        Side.ANTIPODE,
        usage,
        slowest_p50_ms=percentile(slowest, 50),
        slowest_p99_ms=percentile(slowest, 99),
        stopped_p50_ms=percentile(stopped, 50),
        idle_cores=idle,
        **{name: percentile([move[name] for move in moves], 50) for name in TITLES},
    )


def _measure_loss(plan: Plan, case: str, partitions: int) -> None:
    plan.say(f"recovery-time: {case}")
    arguments = ("--arbiter", "--lease-ms", str(LEASE_MS), "--failover", "automatic")
    with _pair(plan, case, partitions, *arguments) as environment:
        wait_until(lambda: _is_ready_to_fail_over(environment), within_s=READY_WITHIN_S, what="the first copy")
        with _writer(environment, partitions) as load, metered(os.getpid()) as usage:
            _wait_mirrored(environment, partitions)
            _wait_acknowledged(load, sent_after=time.monotonic())
            killed_at, killed_unix_ms = time.monotonic(), time.time() * 1000
            for process in reversed(environment.sites["a"].processes):
                process.child().send(signal.SIGKILL)
            _wait_acknowledged(load, sent_after=killed_at + LEASE_MS / 1000)
            run = _last_run(environment)
            back_at = load.first_after(killed_at + (run.began_at_ms - killed_unix_ms) / 1000)
    detected_ms = run.began_at_ms - killed_unix_ms
    promotion = next(step for step in reversed(run.steps) if step["step"] == Step.PROMOTE)
    # the run ends after another look at the site, for which no writer waits
    promoted_ms = promotion["started_at_ms"] + promotion["duration_ms"] - run.began_at_ms
    whole_ms = (back_at - killed_at) * 1000
    plan.record(
        "recovery-time",
        case,
        Side.ANTIPODE,
        usage,
        detection_ms=detected_ms,
        promotion_ms=promoted_ms,
        client_ms=max(0.0, whole_ms - detected_ms - promoted_ms),
        whole_ms=whole_ms,
        slowest_p99_ms=load.slowest_ms(killed_at),
        **phases(run.steps),
    )


def _wait_mirrored(environment: Environment, partitions: int) -> None:
    """Wait until the standby has a record of each partition: before the mirror has reported on all
    of them, the standby leaves a failover to a person.
    """

    async def ends(client: KafkaClient) -> int:
        found = await client.offsets_at([(TOPIC, index) for index in range(partitions)], LATEST_TIMESTAMP)
        return sum(end > 0 for end in found.values())

    bootstrap_servers = environment.sites["b"].bootstrap_servers
    wait_until(
        lambda: call_client(bootstrap_servers, ends) == partitions,
        within_s=READY_WITHIN_S,
        what="the mirror of every partition",
    )


def _wait_protected(environment: Environment, active: str) -> None:
    wait_until(
        lambda: _is_protected(environment, active),
        within_s=READY_WITHIN_S,
        what="the standby's protection",
        # each answer describes every partition, and takes a broker 100 ms for 10,000
        every_s=1.0,
    )


def _ms_of(steps: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(one["duration_ms"] for one in steps if one["step"] == name)


def _moved(environment: Environment, to_site: str) -> list[dict[str, Any]]:
    """The steps of a move. A process of its own runs it, as for an operator: the writer is in this
    one.
    """
    sites = [f"--site={name}={','.join(addresses)}" for name, addresses in environment.agents().items()]
    command = [sys.executable, "-m", "cli.main", "switchover", LINK, "--to", to_site, *sites, *BOUNDS]
    ended = subprocess.run(
        [*command, "--output", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=READY_WITHIN_S,
    )
    if ended.returncode:
        raise OperationalFailure(f"the move to {to_site} failed: {ended.stderr or ended.stdout}")
    return list(json.loads(ended.stdout)["steps"])


def _is_protected(environment: Environment, active: str) -> bool:
    async def ask(client: SiteClient) -> bool:
        found = await client.describe_link(LINK)
        has_topic = any(item.topic == TOPIC for item in found.partitions)
        is_judged = found.HasField("protection") and found.protection.epoch == found.record.epoch
        return has_topic and is_judged and not found.protection.reason and found.record.active_site == active

    return bool(_asked(environment, active, ask))


def _is_ready_to_fail_over(environment: Environment) -> bool:
    async def ask(client: SiteClient) -> bool:
        verdicts = [status.lease.failover_verdict for status in (await client.links()).links]
        return all(verdict and "first copy" not in verdict for verdict in verdicts)

    return bool(_asked(environment, "b", ask))


def _last_run(environment: Environment) -> RunRecord:
    """The failover that the standby's agents have carried out."""
    found: list[RunRecord] = []

    async def ask(client: SiteClient) -> list[RunRecord]:
        return [RunRecord.from_json(text) for text in await client.runs(LINK)]

    def has_ended() -> bool:
        found[:] = _asked(environment, "b", ask) or []
        return bool(found) and found[-1].outcome != RUNNING

    wait_until(has_ended, within_s=READY_WITHIN_S, what="the failover's record")
    return found[-1]


def _asked(environment: Environment, site: str, ask: Any) -> Any:
    """The response of a site's agents; None while they do not answer."""

    async def answer() -> Any:
        channels = Channels()
        try:
            return await ask(SiteClient(site, environment.agents()[site], channels))
        except OperationalFailure:
            return None
        finally:
            await channels.close()

    return asyncio.run(answer())


def _idle_cores(environment: Environment, *, within_s: float) -> float:
    """The CPU of the busiest process of the pair while no client is active, in cores."""
    processes = [process for site in environment.sites.values() for process in site.processes] + list(
        environment.mirrors
    )
    pids = [pid for process in processes if (pid := process.child().pid()) is not None and psutil.pid_exists(pid)]
    # the first looks at the partitions, once for each start, belong to no idle pair
    wait_at_rest(pids, within_s=READY_WITHIN_S)
    before = {pid: cpu_s(pid) for pid in pids}
    began = time.monotonic()
    time.sleep(within_s)
    return max(cpu_s(pid) - before[pid] for pid in pids) / (time.monotonic() - began)
