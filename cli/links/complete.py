"""`antipode links complete`: checks that all records produced before a time have arrived at the
other site.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import to_builtins

from cli.links.mirrors import CALL_TIMEOUT_S, MirrorAddress, Name, Topics, asked
from cli.shared.failures import failures_as_messages, print_error, usage_error
from cli.shared.output import Output, OutputFormat, error_console, print_json, print_table
from cli.shared.sites import EnvironmentFile, SiteOptions, agents, site_clients
from cli.shared.times import parse_time
from runtime.process import ExitCode
from runtime.times import iso_time

if TYPE_CHECKING:
    from pathlib import Path

    from dr.links.completeness import Look, Show
    from dr.links.core.completeness import TopicCompleteness

Until = Annotated[
    str,
    typer.Option("--until", help="Unix milliseconds, ISO 8601 (2026-01-31T12:00:00Z), or now: when the command began."),
]
NEVER_TEXT = "not known"
MIRROR_KNOWS_WITHIN_MS = 3_000
"""A mirror knows its source with a delay; a healthy one knows the present end within this time."""


def complete(
    name: Name,
    until: Until = "now",
    topic: Topics = None,
    is_waiting: Annotated[bool, typer.Option("--wait", help="Repeat the check until it succeeds.")] = False,
    timeout_ms: Annotated[int, typer.Option("--timeout-ms", min=0, help="Timeout of --wait.")] = 300_000,
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Report by topic whether everything that was produced at the active site before a time has
    arrived at the other site. Exit code 0 yes, 1 no.

    Both sites are asked; with --mirror, the link's mirror is asked: only the mirror knows when a
    target has offsets of its own. See docs/reconcile.md.

    Example: antipode links complete a-b --until 2026-01-31T12:00:00Z --wait --timeout-ms 600000
    """
    until_ms = round(time.time() * 1000) if until == "now" else parse_time("--until", until, besides="now, ")
    _check_patterns(topic)
    wait_ms = timeout_ms if is_waiting else 0
    with _shown(is_waiting) as show:
        if mirror is None:
            found = _ask_sites(
                name,
                agents(environment, site),
                until_ms=until_ms,
                topics=topic or [".*"],
                timeout_ms=wait_ms,
                show=show,
            )
        else:
            wait_ms = max(wait_ms, MIRROR_KNOWS_WITHIN_MS)
            found = _ask_mirror(
                name,
                mirror,
                environment=environment,
                until_ms=until_ms,
                topics=topic or [".*"],
                timeout_ms=wait_ms,
                show=show,
            )
    if not found:
        print_error(f"link {name} carries no topic that is meant")
    is_complete = bool(found) and all(one.is_complete for one in found)
    if output is OutputFormat.JSON:
        topics = [{**to_builtins(one), "complete_until": iso_time(one.complete_until_ms)} for one in found]
        print_json({"link": name, "until_ms": until_ms, "is_complete": is_complete, "topics": topics})
    else:
        rows = [
            (
                one.topic,
                "yes" if one.is_complete else "NO",
                iso_time(one.complete_until_ms) or NEVER_TEXT,
                f"{one.partitions_complete} of {one.partitions}",
                one.behind_records if one.behind_records >= 0 else NEVER_TEXT,
            )
            for one in found
        ]
        title = f"link {name}: records that were produced before {iso_time(until_ms)}"
        print_table(title, ("topic", "complete", "complete until", "partitions", "records behind"), rows)
    raise typer.Exit(ExitCode.DONE if is_complete else ExitCode.FAILED)


def _check_patterns(patterns: Sequence[str] | None) -> None:
    from wire.rules.links import InvalidPattern, matches

    for pattern in patterns or ():
        try:
            matches("", whitelist=[pattern], blacklist=())
        except InvalidPattern as error:
            raise usage_error(f"--topic {error}") from error


def _ask_sites(
    name: str, known: dict[str, tuple[str, ...]], until_ms: int, topics: Sequence[str], timeout_ms: int, show: Show
) -> list[TopicCompleteness]:
    from dr.links.completeness import looks_at_sites
    from runtime.clock import SystemClock

    async def run() -> list[TopicCompleteness]:
        async with site_clients(known) as clients:
            look = await looks_at_sites(name, clients, SystemClock())
            return await _repeated(look, until_ms, topics, timeout_ms, show)

    with failures_as_messages():
        return asyncio.run(run())


def _ask_mirror(
    name: str,
    mirror: str,
    environment: Path | None,
    until_ms: int,
    topics: Sequence[str],
    timeout_ms: int,
    show: Show,
) -> list[TopicCompleteness]:
    from dr.links.completeness import looks_at_mirror
    from runtime.clock import SystemClock
    from wire.control.mirror_pb2 import DescribeMirrorReply, DescribeMirrorRequest

    async def ask(stub: Any) -> list[TopicCompleteness]:
        async def described() -> DescribeMirrorReply:
            reply: DescribeMirrorReply = await stub.DescribeMirror(
                DescribeMirrorRequest(link=name), timeout=CALL_TIMEOUT_S
            )
            return reply

        return await _repeated(looks_at_mirror(described, SystemClock()), until_ms, topics, timeout_ms, show)

    return asked(name, mirror, environment, ask)


async def _repeated(
    look: Look, until_ms: int, topics: Sequence[str], timeout_ms: int, show: Show
) -> list[TopicCompleteness]:
    from dr.links.completeness import complete_until
    from runtime.clock import SystemClock

    return await complete_until(
        look, until_ms=until_ms, topics=topics, timeout_ms=timeout_ms, clock=SystemClock(), show=show
    )


@contextmanager
def _shown(is_waiting: bool) -> Iterator[Show]:
    """A progress bar of complete partitions on a terminal while the command waits."""
    if not is_waiting or not error_console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("complete"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("partitions"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=error_console, transient=True) as bar:
        task = bar.add_task("complete", total=None)

        def show(found: Sequence[TopicCompleteness]) -> None:
            total, done = sum(one.partitions for one in found), sum(one.partitions_complete for one in found)
            bar.update(task, total=total, completed=done)

        yield show
