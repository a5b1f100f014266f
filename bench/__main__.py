"""The command line of the benchmark: `python -m bench`, or `make bench` for everything."""

from __future__ import annotations

import signal
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from bench.measuring.figures import Row, Side
from bench.measuring.section_figures import SECTIONS
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import Output, OutputFormat, console, print_json, print_table, report_progress

RESULTS = Path("out/bench")

app = typer.Typer(
    name="bench",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def bench(
    only: Annotated[str, typer.Option(help=f"Sections to measure, comma-separated, of: {', '.join(SECTIONS)}.")] = "",
    scale: Annotated[
        float,
        typer.Option(help="Fraction of the load; the figures of less than 1 are for trying out.", min=0.0001, max=10),
    ] = 1.0,
    repeats: Annotated[int, typer.Option(help="Samples of each case; the report shows the best.", min=1)] = 2,
    has_peer: Annotated[
        bool,
        typer.Option("--peer/--no-peer", help="Measure Apache Kafka and MirrorMaker 2 beside us (make setup-java)."),
    ] = True,
    results: Annotated[Path, typer.Option(help="Where the JSON and, while it runs, the brokers' data go.")] = RESULTS,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Measure Antipode beside Apache Kafka and MirrorMaker 2: throughput, CPU, latency, start-up,
    memory, mirroring, and with three brokers replication, many partitions, compaction and recovery.

    Both sides get the same load in the same run, in turns. The table shows our figure, theirs, the
    ratio, the target and whether it was reached; a JSON file keeps every sample. Full scale takes
    about half an hour on four cores and 10 GB of disk.

    Examples: python -m bench --only mirror

              python -m bench --only produce,consume --scale 0.1 --repeats 1
    """
    sections = _sections(only)
    _end_in_order_on_signals()
    with failures_as_messages():
        document, file = _measured(sections, scale, repeats, has_peer, results)
    if output is OutputFormat.JSON:
        print_json({**document, "file": str(file)})
    else:
        _print(document, file)


def _measured(
    sections: list[str], scale: float, repeats: int, has_peer: bool, results: Path
) -> tuple[dict[str, Any], Path]:
    from bench.measuring import machine, report
    from bench.measuring.plan import Plan
    from bench.run import run

    began, began_s = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), time.monotonic()

    def say(text: str) -> None:
        report_progress(f"{time.monotonic() - began_s:4.0f} s  {text}")

    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=results.resolve(), ignore_cleanup_errors=True) as directory:
        sides = tuple(Side) if has_peer else (Side.ANTIPODE,)
        plan = Plan(directory=Path(directory), scale=scale, repeats=repeats, sides=sides, say=say)
        described = machine.description()
        run(plan, sections)
    document = report.document(
        began=began,
        took_s=time.monotonic() - began_s,
        machine=described,
        options={"sections": sections, "scale": scale, "repeats": repeats, "has_peer": has_peer},
        samples=plan.samples,
    )
    return document, report.write(document, results)


def _print(document: dict[str, Any], file: Path) -> None:
    from bench.measuring import machine, report

    print_table("", report.COLUMNS, report.table([Row(**row) for row in document["rows"]]))
    console.print(f"{document['summary']}; {document['noise']}", highlight=False)
    console.print(machine.one_line(document["machine"]), highlight=False)
    if document["options"]["scale"] < 1:
        console.print("measured at less than full scale: warm-up weighs more, compare nothing with it")
    console.print(f"every sample: {file}", highlight=False)


def _sections(only: str) -> list[str]:
    if not only:
        return list(SECTIONS)
    named = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in named if name not in SECTIONS]
    if unknown or not named:
        raise usage_error(f"--only {only!r}: accepted are {', '.join(SECTIONS)}, separated by commas")
    return named


def _end_in_order_on_signals() -> None:
    """The first Ctrl-C or SIGTERM unwinds the run, which ends every process that was started;
    further signals do not interrupt this.
    """
    # rich imports this at its first text: an interrupt in the middle of that breaks every later one
    console.render_str(":ok:")

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (what a handler is called with)
        for ignored in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ignored, signal.SIG_IGN)
        report_progress("ending what was started")
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


if __name__ == "__main__":
    app(prog_name="python -m bench")
