"""`antipode reassign`: moves replicas between brokers: proposes a plan, executes it, shows its
progress, cancels it.

Plans are files in the JSON of kafka-reassign-partitions.sh, so either tool can continue a
reassignment that the other one began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from cli.administration import reassignment
from cli.administration.moves import (
    NO_THROTTLES,
    Throttles,
    all_move_states,
    begin_moves,
    cancel_moves,
    end_throttle,
    node_list,
    propose_plan,
    watch_moves,
)
from cli.administration.reassignment_directories import DONE, ELSEWHERE, MISSING
from cli.administration.reassignment_plan import Replica, UnusablePlan, parse_directories, parse_plan, plan_document
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from runtime.process import ExitCode, OperationalFailure
from wire.protocol.ids import TopicPartition

app = typer.Typer(
    help="Move partitions between the brokers of the site to which the command connects.\n\n"
    "Example: antipode reassign plan --topic orders --out plan.json && antipode reassign execute plan.json --throttle 50000000",
    no_args_is_help=True,
)


PlanFile = Annotated[
    Path, typer.Argument(help="Plan in the JSON of kafka-reassign-partitions.sh.", exists=True, dir_okay=False)
]
KeepThrottle = Annotated[bool, typer.Option("--keep-throttle", help="Keep the throttle after everything has moved.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


@app.command()
def plan(
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    topic: Annotated[list[str] | None, typer.Option("--topic", help="Only this partition; may be given again.")] = None,
    brokers: Annotated[
        str, typer.Option(help="Node ids for the replicas, separated by commas [default: all live brokers].")
    ] = "",
    replication_factor: Annotated[
        int | None, typer.Option(help="Replicas of each partition [default: unchanged].", min=1)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file.", dir_okay=False)] = None,
    rollback: Annotated[
        Path | None, typer.Option(help="Write the present assignment to this file, as a plan.", dir_okay=False)
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Propose an assignment of replicas that is even over brokers and racks, with the fewest moves.
    Changes nothing.

    Example: antipode reassign plan --topic orders --brokers 1001,1002,1003 --out plan.json
    --rollback back.json
    """
    wanted = _node_ids(brokers)
    with failures_as_messages():
        before, after = ask_cluster(
            bootstrap_server,
            lambda client: propose_plan(client, topic, wanted, replication_factor),
            is_site_local=True,
        )
        moved = {place: replicas for place, replicas in after.items() if replicas != before[place]}
        for path, content in ((out, moved), (rollback, {place: before[place] for place in moved})):
            if path is not None:
                _write(path, content)
    if output is OutputFormat.JSON:
        print_json(plan_document(moved))
    elif not moved:
        console.print("every replica is on a wanted broker")
    else:
        _show(before, moved)


@app.command()
def execute(
    file: PlanFile,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    throttle: Annotated[
        int | None,
        typer.Option(help="Bytes per second that moves may take at each broker; by default no bound.", min=1),
    ] = None,
    log_dirs_throttle: Annotated[
        int | None,
        typer.Option(help="Bytes per second that moves between the log directories of a broker may take.", min=1),
    ] = None,
    does_wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until everything has moved.")] = True,
    is_keeping_throttle: KeepThrottle = False,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Execute a plan and show its progress. The same command with another --throttle changes the
    throttle.

    A replica for which the plan names a log directory, not `any`, is placed in that directory, also
    when it stays on its broker.

    The throttle limits new replicas only, never replicas in sync, and is removed at the end. If you
    interrupt the command, the moves continue; `antipode reassign verify` shows them and removes the
    throttle when they have ended.

    Example: antipode reassign execute plan.json --throttle 50000000
    """
    wanted, directories = _read(file)
    throttles = Throttles(throttle, log_dirs_throttle)
    with failures_as_messages():
        before = ask_cluster(
            bootstrap_server,
            lambda client: begin_moves(client, wanted, directories, throttles=throttles, is_dry_run=is_dry_run),
            is_site_local=True,
        )
        moved = {place: replicas for place, replicas in wanted.items() if replicas != before[place]}
        if output is OutputFormat.TEXT:
            _show(before, moved)
            _show_directories(directories)
        if does_wait and not is_dry_run:
            ask_cluster(bootstrap_server, lambda client: watch_moves(client, wanted, directories), is_site_local=True)
            if throttles != NO_THROTTLES and not is_keeping_throttle:
                ask_cluster(
                    bootstrap_server, lambda client: end_throttle(client, wanted, directories), is_site_local=True
                )
    if output is OutputFormat.JSON:
        document = {"before": plan_document(before), "moves": len(moved), "log_directories": len(directories)}
        document["is_dry_run"] = is_dry_run
        print_json({**document, "is_complete": does_wait and not is_dry_run})
    else:
        done = "would be moved" if is_dry_run else "are where they shall be" if does_wait else "are moving"
        console.print(f"{len(wanted)} partitions {done}", markup=False)


@app.command()
def verify(
    file: PlanFile,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_keeping_throttle: KeepThrottle = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the progress of a plan; remove its throttles when everything has moved. Exit code 1 when
    a partition has neither reached its assignment nor is being moved to it.

    Example: antipode reassign verify plan.json --output json
    """
    wanted, directories = _read(file)
    with failures_as_messages():
        states, lying = ask_cluster(
            bootstrap_server, lambda client: all_move_states(client, wanted, directories), is_site_local=True
        )
        found = [*states.values(), *lying.values()]
        is_complete = all(state == DONE for state in found)
        if is_complete and not is_keeping_throttle:
            ask_cluster(bootstrap_server, lambda client: end_throttle(client, wanted, directories), is_site_local=True)
    rows = [{"topic": place.topic, "partition": place.partition, "state": state} for place, state in states.items()]
    replicas = [
        {**replica.place._asdict(), "broker": replica.node_id, "log_directory": directories[replica], "state": state}
        for replica, state in lying.items()
    ]
    if output is OutputFormat.JSON:
        print_json({"is_complete": is_complete, "partitions": rows, "replicas": replicas})
    else:
        print_table(str(file), ("topic", "partition", "state"), [tuple(row.values()) for row in rows])
        if replicas:
            columns = ("topic", "partition", "broker", "log directory", "state")
            print_table("", columns, [tuple(row.values()) for row in replicas])
    if not {ELSEWHERE, MISSING}.isdisjoint(found):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def cancel(
    file: Annotated[Path | None, typer.Argument(help="A plan; or give --all.", exists=True, dir_okay=False)] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_all: Annotated[bool, typer.Option("--all", help="All reassignments in progress.")] = False,
    is_keeping_throttle: KeepThrottle = False,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Cancel the moves of a plan that have not ended: the former replicas stay, and the throttle is
    removed.

    Example: antipode reassign cancel plan.json --dry-run
    """
    if (file is None) is not is_all:
        raise usage_error("say what to cancel: a plan, or --all")
    named = None if file is None else set(_read(file)[0])
    with failures_as_messages():
        places = ask_cluster(
            bootstrap_server,
            lambda client: cancel_moves(client, named, keep=is_keeping_throttle, is_dry_run=is_dry_run),
            is_site_local=True,
        )
    if output is OutputFormat.JSON:
        print_json({"cancelled": [str(place) for place in places], "is_dry_run": is_dry_run})
    else:
        console.print(f"{len(places)} moves {'would be' if is_dry_run else 'are'} cancelled", markup=False)


@app.command("list")
def list_ongoing(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP, output: Output = OutputFormat.TEXT) -> None:
    """List the running moves.

    Example: antipode reassign list --output json
    """
    with failures_as_messages():
        found = ask_cluster(bootstrap_server, reassignment.ongoing, is_site_local=True)
    rows = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for place, move in sorted(found.items())
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
    else:
        columns = ("topic", "partition", "replicas", "adding", "removing")
        print_table("", columns, [tuple(row.values()) for row in rows])


# --- files and tables


def _node_ids(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",") if item.strip()]
    except ValueError as error:
        raise usage_error(f"--brokers {text!r} is not usable: accepted are node ids, such as 1001,1002") from error


def _read(file: Path) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[Replica, str]]:
    """The replicas of the plan, and the log directories that it names."""
    try:
        text = file.read_text(encoding="utf-8")
        return parse_plan(text), parse_directories(text)
    except (UnusablePlan, UnicodeDecodeError) as error:
        raise usage_error(f"{file} is not usable: {error}") from error


def _write(path: Path, content: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    try:
        path.write_text(json.dumps(plan_document(content)) + "\n", encoding="utf-8")
    except OSError as error:
        raise OperationalFailure(f"{path} cannot be written: {error.strerror}") from error


def _show(before: Mapping[TopicPartition, tuple[int, ...]], after: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    rows = [
        (place.topic, place.partition, node_list(before[place]), node_list(replicas))
        for place, replicas in sorted(after.items())
    ]
    print_table("", ("topic", "partition", "replicas now", "replicas then"), rows)


def _show_directories(directories: Mapping[Replica, str]) -> None:
    if directories:
        rows = [(*place, node_id, path) for (place, node_id), path in sorted(directories.items())]
        print_table("", ("topic", "partition", "broker", "log directory then"), rows)


# --- work
