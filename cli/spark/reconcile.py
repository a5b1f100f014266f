"""`antipode reconcile`: prove two sites equal, or name what differs; large logs with a Spark
session on this machine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.recovery.drill import new_directory
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.lists import split_patterns
from cli.shared.output import Output, OutputFormat, print_json
from cli.shared.sites import EnvironmentFile
from cli.shared.times import parse_time
from cli.spark.proof.digests import compare_digests
from cli.spark.proof.records import compare_records, explain, print_records, write_history_of
from cli.spark.proof.sides import Sides, check_sites_answer, sides_of_brokers, sides_of_link
from cli.spark.proof.surroundings import compare_surroundings, print_surroundings, surroundings_document
from runtime.addresses import parse_host_port

if TYPE_CHECKING:
    from dr.proof.comparison import ComparisonRequest
    from spark_jobs.reconciling.request import Request

REPORTS = Path("out/reconciliations")
NOT_COMPARED = 2


def reconcile(
    source: Annotated[str, typer.Option(help="Bootstrap servers of the source site, host:port[,host:port...].")] = "",
    target: Annotated[str, typer.Option(help="Bootstrap servers of the target site.")] = "",
    environment: EnvironmentFile = None,
    link: Annotated[str, typer.Option(help="Link of the environment: says which sites and which topics.")] = "",
    translate_link: Annotated[
        str,
        typer.Option(
            "--translate-link",
            help="Translate link from --source to --target: compare record by record by its offset map.",
        ),
    ] = "",
    is_by_content: Annotated[
        bool,
        typer.Option("--by-content", help="Compare topics of the same name by content and order; offsets may differ."),
    ] = False,
    whitelist: Annotated[
        str, typer.Option(help="Topics: comma-separated regular expressions [default: the link's, or all].")
    ] = "",
    blacklist: Annotated[
        str,
        typer.Option(help="Topics to leave out; overrides the whitelist [default: the link's, or that of new links]."),
    ] = "",
    is_deep: Annotated[
        bool, typer.Option("--deep", help="Open the batches that differ, and name the exact offsets.")
    ] = False,
    is_quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Compare the digests that the brokers keep: a few kilobytes and no Spark, but bodies are not read.",
        ),
    ] = False,
    range_offsets: Annotated[int, typer.Option(help="Offsets in one digest's range; 0 chooses.", min=0)] = 0,
    settle_timeout_ms: Annotated[
        int, typer.Option(help="How long to wait for the target to reach the source's present ends.", min=0)
    ] = 10_000,
    until: Annotated[
        str,
        typer.Option(
            "--until", help="Compare only records before this time (Unix ms or ISO 8601), as `links complete`."
        ),
    ] = "",
    is_beside_compared: Annotated[
        bool | None,
        typer.Option(
            "--beside-records/--records-only",
            help="Compare topics, configs, groups' offsets, ACLs, quotas, users and quarantines too [default: unless --quick].",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            help="End after this many findings in total; --limit 1 only checks whether the sites are equal.", min=0
        ),
    ] = 0,
    limit_per_topic: Annotated[int, typer.Option(help="List at most this many findings of each topic.", min=0)] = 0,
    is_resumed: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted run whose report is at --out.")
    ] = False,
    is_explained: Annotated[
        bool, typer.Option("--explain", help="Print what a run would read, how, and what it would leave out; then end.")
    ] = False,
    is_watched: Annotated[
        bool, typer.Option("--watch", help="Compare the digests repeatedly until Ctrl-C; starts no Spark.")
    ] = False,
    interval_ms: Annotated[int, typer.Option(help="Time between two comparisons of --watch.", min=100)] = 5_000,
    metrics_listener: Annotated[
        str, typer.Option(help="Serve the metrics of --watch here, host:port; port 0 picks one.")
    ] = "",
    pause_lag_records: Annotated[
        int, typer.Option(help="Pause while the target lacks more records than this; 0: never.", min=0)
    ] = 0,
    pause_latency_ms: Annotated[
        int, typer.Option(help="Pause while a site takes longer than this to answer; 0: never.", min=0)
    ] = 0,
    cores: Annotated[int, typer.Option(help="Cores for Spark; 0 takes all.", min=0)] = 0,
    process_offsets: Annotated[
        int, typer.Option(help="Compare up to this many offsets without Spark, which starts for more.", min=0)
    ] = 500_000,
    out: Annotated[
        Path | None, typer.Option("--out", help=f"Where the report goes (default: a new directory in {REPORTS}).")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Compare both sites partition by partition, range by range; name every missing, extra,
    duplicate, diverged or corrupt range.

    Reads batch headers and checksums, not records; with --quick the digests of them that brokers
    keep. Exit code 0 equal, 1 different, 2 could not compare.

    Example: antipode reconcile --environment out/sites/environment.json --link a-b --out
    out/reconciliation
    """
    try:
        with failures_as_messages():
            _refuse_together(
                is_quick=is_quick or is_watched,
                given={
                    "--until": until,
                    "--range-offsets": range_offsets,
                    "--cores": cores,
                    "--resume": is_resumed,
                    "--limit": limit,
                    "--limit-per-topic": limit_per_topic,
                },
            )
            if is_watched and is_deep:
                raise usage_error("--watch opens no batches; --deep goes with --quick, or with neither of them")
            is_translated = bool(translate_link) or is_by_content
            if is_translated:
                _refuse_with_translate_links(
                    bool(source and target),
                    {
                        "--quick": is_quick,
                        "--watch": is_watched,
                        "--resume": is_resumed,
                        "--explain": is_explained,
                        "--limit": limit,
                        "--limit-per-topic": limit_per_topic,
                        "--beside-records": is_beside_compared,
                    },
                )
            if is_resumed and out is None:
                raise usage_error("--resume continues a run whose report is in --out: give --out")
            sides = sides_of_link(environment, link) if not source and not target else sides_of_brokers(source, target)
            sides = replace(
                sides,
                topic_whitelist=split_patterns("--whitelist", whitelist) or sides.topic_whitelist,
                topic_blacklist=split_patterns("--blacklist", blacklist) or sides.topic_blacklist,
            )
            ways = Ways(
                range_offsets=range_offsets,
                is_deep=is_deep,
                until=until,
                settle_timeout_ms=settle_timeout_ms,
                limits=(limit_per_topic, limit),
                pause=(pause_lag_records, pause_latency_ms),
                process_offsets_max=process_offsets,
            )
            request = _request(sides, ways)
            run = Run(
                environment=environment,
                out=out,
                cores=cores,
                is_quick=is_quick or is_watched,
                is_resumed=is_resumed,
                is_beside_compared=is_beside_compared if is_beside_compared is not None else not is_quick,
                output=output,
            )
            if is_translated:
                exit_code = _compare_translated(sides, request, run, translate_link)
            elif is_explained:
                exit_code = explain(request, out if is_resumed else None, output, is_quick=run.is_quick)
            elif is_watched:
                exit_code = _watch(request, interval_ms, metrics_listener)
            else:
                exit_code = _compare(sides, request, run)
    # Exit code 1 means different sites, so a failure on the way must have another one.
    except typer.Exit as ended:
        raise typer.Exit(NOT_COMPARED) from ended
    raise typer.Exit(exit_code)


def _refuse_together(*, is_quick: bool, given: Mapping[str, object]) -> None:
    options = [name for name, value in given.items() if value]
    if is_quick and options:
        raise usage_error(f"--quick and --watch compare digests of whole logs; they do not take {', '.join(options)}")


def _refuse_with_translate_links(has_brokers: bool, given: Mapping[str, object]) -> None:
    options = [name for name, value in given.items() if value]
    if options:
        raise usage_error(f"--translate-link and --by-content read both ends once; they do not take {options[0]}")
    if not has_brokers:
        raise usage_error("--translate-link and --by-content need the brokers of both ends: --source and --target")


def _compare_translated(sides: Sides, request: Request, run: Run, link: str) -> int:
    from cli.spark.proof.translated import compare_translated

    asyncio.run(check_sites_answer(sides))
    directory = run.out or new_directory(REPORTS)
    found = compare_translated(request, directory, link)
    if run.output is OutputFormat.JSON:
        print_json(found.as_document() | {"report_html": str(directory / "report.html")})
    else:
        print_records(found, directory)
    return found.verdict.exit_code


def _digest_request(request: Request, *, is_lag_a_difference: bool = True) -> ComparisonRequest:
    from dr.proof.comparison import ComparisonRequest

    return ComparisonRequest(
        source_site=request.source_site,
        target_site=request.target_site,
        source_bootstrap=request.source_bootstrap,
        target_bootstrap=request.target_bootstrap,
        topic_whitelist=request.topic_whitelist,
        topic_blacklist=request.topic_blacklist,
        settle_timeout_ms=request.settle_timeout_ms if is_lag_a_difference else 0,
        is_lag_a_difference=is_lag_a_difference,
    )


def _watch(request: Request, interval_ms: int, listener: str) -> int:
    from cli.spark.proof.watching import watch_digests
    from spark_jobs.reconciling.request import load_of

    try:
        address = parse_host_port(listener) if listener else None
    except ValueError as error:
        raise usage_error(f"--metrics-listener {listener!r} is not usable: {error}") from error

    def paused() -> str:
        return request.pause.reason(load_of(request)) if request.pause.is_set else ""

    return watch_digests(
        _digest_request(request, is_lag_a_difference=False),
        interval_ms=interval_ms,
        listener=address,
        is_paused=paused,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The way in which the options ask to compare. `limits` are of findings by topic and in all,
    `pause` has the bounds of lag (records) and latency (ms).
    """

    range_offsets: int
    is_deep: bool
    until: str
    settle_timeout_ms: int
    limits: tuple[int, int]
    pause: tuple[int, int]
    process_offsets_max: int


def _request(sides: Sides, ways: Ways) -> Request:
    from spark_jobs.reconciling.core.waves import FindingLimits, PauseBounds
    from spark_jobs.reconciling.request import NO_BOUND, Request

    return Request(
        source_site=sides.source_site,
        target_site=sides.target_site,
        source_bootstrap=sides.source,
        target_bootstrap=sides.target,
        topic_whitelist=sides.topic_whitelist,
        topic_blacklist=sides.topic_blacklist,
        range_offsets=ways.range_offsets,
        is_deep=ways.is_deep,
        settle_timeout_ms=ways.settle_timeout_ms,
        until_ms=parse_time("--until", ways.until) if ways.until else NO_BOUND,
        limits=FindingLimits(per_topic=ways.limits[0], in_all=ways.limits[1]),
        pause=PauseBounds(lag_records=ways.pause[0], latency_ms=ways.pause[1]),
        process_offsets_max=ways.process_offsets_max,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one comparison runs and where its report goes."""

    environment: Path | None
    out: Path | None
    cores: int
    is_quick: bool
    is_resumed: bool
    is_beside_compared: bool
    output: OutputFormat


def _compare(sides: Sides, request: Request, run: Run) -> int:
    asyncio.run(check_sites_answer(sides))
    beside = None
    if run.is_beside_compared:
        beside = compare_surroundings(sides, run.environment, settle_timeout_ms=request.settle_timeout_ms)
    if run.is_quick:
        opening = request if request.is_deep else None
        return compare_digests(_digest_request(request), run.out, run.output, beside, opening)
    directory = run.out or new_directory(REPORTS)
    found = compare_records(request, directory, run.cores, is_resumed=run.is_resumed)
    document = found.as_document() | {"report_html": str(directory / "report.html")}
    if beside is not None:
        document["beside_records"] = surroundings_document(beside)
        (directory / "beside-records.json").write_text(json.dumps(document["beside_records"], indent=2) + "\n")
    if run.out is None:
        write_history_of(REPORTS)
    if run.output is OutputFormat.JSON:
        print_json(document)
    else:
        print_records(found, directory)
        if beside is not None:
            print_surroundings(beside, (request.source_site, request.target_site))
    return found.verdict.exit_code
