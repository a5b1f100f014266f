"""`make proof-soak`: compares two sites by digests many times while producers write and the line
between the sites fails in random ways, and counts the verdicts.

    python -m bench.false_alarms --runs 100

Nothing is wrong with the sites, so each verdict `different` is a false alarm, unless the standby
only lacks the newest records because the line is cut: such a run counts as `behind`. Each run is
`antipode reconcile --quick` in a process of its own. It reads the standby through the failing line.
At the end the line is whole again, writing stops, and the sites must be equal.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bench.loads.payloads import payloads
from bench.peers import antipode
from bench.peers.systems import create_topic
from cli.shared.failures import failures_as_messages
from cli.shared.output import console, report_progress
from dr.drill.environment import Environment
from dr.drill.faults import NetworkFaults, Toxic
from runtime.compiled import ROOT
from runtime.process import OperationalFailure

LINK: Final = "a-b"
TOPIC: Final = "compared"
PARTITIONS: Final = 8
RECORD_BYTES: Final = 500
RECORDS_PER_S: Final = 1_000
RESULTS: Final = Path("out/bench")
RUN_WITHIN_S: Final = 120
FAULT_S: Final = (0.3, 5.0)
WHOLE_S: Final = (0.3, 2.0)
EQUAL, BEHIND, NOT_COMPARED, FALSE_ALARM = "equal", "behind", "not compared", "false alarm"
END_DETAIL: Final = "beyond the end of the other log"
CUT: Final = "cut line"
FAULTS: Final[Mapping[str, Sequence[Toxic]]] = {
    CUT: (),
    "black hole": (Toxic(kind="timeout", attributes={"timeout": 0}),),
    "latency": (Toxic(kind="latency", attributes={"latency": 300, "jitter": 200}),),
    "little bandwidth": (Toxic(kind="bandwidth", attributes={"rate": 100}),),
    "tiny packets": (Toxic(kind="slicer", attributes={"average_size": 600, "size_variation": 300, "delay": 100}),),
    "resets": (Toxic(kind="reset_peer", attributes={"timeout": 50}),),
    "breaking off within an answer": (Toxic(kind="limit_data", attributes={"bytes": 3_000}),),
}

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


@dataclass(slots=True)
class Soak:
    """The verdicts so far, and the runs that were not equal."""

    verdicts: Counter[str] = field(default_factory=Counter)
    others: list[str] = field(default_factory=list)

    def add(self, verdict: str, reason: str) -> None:
        """Count a run; `reason` is empty for equal sites."""
        self.verdicts[verdict] += 1
        if reason:
            self.others.append(f"{verdict}: {reason}")


@app.command()
def soak(
    runs: Annotated[int, typer.Option(help="Comparisons.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Chooses the faults.")] = 1,
    results: Annotated[Path, typer.Option(help="Where the sites' data go while it runs.")] = RESULTS,
) -> None:
    """Compare two sites under load and faults, and count the verdicts. Exit code 1 if one of them
    was a false alarm, or the sites are not equal at the end.
    """
    results.mkdir(parents=True, exist_ok=True)
    with failures_as_messages(), tempfile.TemporaryDirectory(prefix="run-", dir=results.resolve()) as directory:
        found, last = _soaked(Path(directory), runs, random.Random(seed))
    for one in found.others:
        console.print(f"  {one}", highlight=False, markup=False)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in found.verdicts.most_common())
    console.print(f"{runs} comparisons: {counted}; at the end: {last}", highlight=False)
    raise typer.Exit(int(found.verdicts[FALSE_ALARM] > 0 or last != EQUAL))


def _soaked(directory: Path, runs: int, chance: random.Random) -> tuple[Soak, str]:
    found = Soak()
    with antipode.sites(directory / "sites", "--sites", "a,b") as environment:
        source = environment.sites["a"].bootstrap_servers
        create_topic(source, TOPIC, partition_count=PARTITIONS)
        with _writing(source), _failing(environment, chance) as faults:
            for number in range(runs):
                verdict, reason = _compared(environment)
                found.add(verdict, reason)
                report_progress(f"{number + 1} of {runs}: {verdict} ({faults[-1] if faults else 'no fault yet'})")
        deadline = time.monotonic() + RUN_WITHIN_S
        while (last := _compared(environment))[0] in (BEHIND, NOT_COMPARED) and time.monotonic() < deadline:
            report_progress(f"the line is whole: {last[0]}")
    return found, last[0]


def _compared(environment: Environment) -> tuple[str, str]:
    """The verdict of one run, and its reason."""
    source, target = environment.sites["a"].bootstrap_servers, environment.sites["b"].link_bootstrap_servers
    command = [sys.executable, "-m", "cli.main", "reconcile", "--quick", "--output", "json"]
    command += ["--source", source, "--target", target, "--whitelist", TOPIC]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=RUN_WITHIN_S)
    except subprocess.TimeoutExpired:
        return NOT_COMPARED, f"no end within {RUN_WITHIN_S} s"
    return verdict_of(json.loads(done.stdout) if done.stdout else {}, done.stderr)


def verdict_of(report: Mapping[str, Any], errors: str) -> tuple[str, str]:
    """The meaning of a report (empty if there is none) for sites that are sound, and the reason."""
    if report.get("verdict") == "equal":
        return EQUAL, ""
    if report.get("verdict") != "different":
        return NOT_COMPARED, "; ".join(report.get("problems", ())) or errors.strip()
    findings = report["findings"]
    if all((one["kind"], one["detail"]) == ("missing", END_DETAIL) for one in findings):
        return BEHIND, f"the standby lacks the end of {len(findings)} logs"
    return FALSE_ALARM, json.dumps(findings)


@contextmanager
def _writing(bootstrap_servers: str) -> Iterator[None]:
    """Write at a steady rate until the block ends. OperationalFailure when a record is lost."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "enable.idempotence": "true"})
    failures: list[str] = []
    is_over = threading.Event()

    def noted(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    def write() -> None:
        values, began, sent = payloads(RECORD_BYTES), time.monotonic(), 0
        while not is_over.wait(0.01):
            due = int((time.monotonic() - began) * RECORDS_PER_S)
            for number in range(sent, due):
                producer.produce(TOPIC, values[number % len(values)], partition=number % PARTITIONS, on_delivery=noted)
            sent = max(sent, due)
            producer.poll(0)

    thread = threading.Thread(target=write, name="writing")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        producer.flush(RUN_WITHIN_S)
    if failures:
        raise OperationalFailure(f"{len(failures)} records were not acknowledged: {failures[0]}")


@contextmanager
def _failing(environment: Environment, chance: random.Random) -> Iterator[list[str]]:
    """Let the line fail again and again until the block ends; gives the faults so far."""
    network, faults = NetworkFaults(environment, LINK), list[str]()
    is_over = threading.Event()
    problems: list[Exception] = []

    def fail() -> None:
        while not is_over.wait(chance.uniform(*WHOLE_S)):
            name = chance.choice(list(FAULTS))
            faults.append(name)
            begin = partial(network.cut, is_silent=False) if name == CUT else partial(network.add, toxics=FAULTS[name])
            try:
                begin(network.selected())
                is_over.wait(chance.uniform(*FAULT_S))
                network.heal()
            except OperationalFailure as failure:
                problems.append(failure)
                return

    thread = threading.Thread(target=fail, name="faults")
    thread.start()
    try:
        yield faults
    finally:
        is_over.set()
        thread.join()
        network.heal()
    if problems:
        raise problems[0]


if __name__ == "__main__":
    app(prog_name="python -m bench.false_alarms")
