"""`antipode demo`: the demonstration drill on a fresh pair of embedded sites, from nothing to a
report, cleaned up afterwards.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.embedding.layout_plan import Wishes
from cli.processes.up import PRELOADED
from cli.recovery.drill import commands, print_result, run_with_view
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import console, report_progress
from runtime.compiled import ROOT
from runtime.process import ExitCode, run_daemon

if TYPE_CHECKING:
    from dr.drill.drill_report import ReportFiles
    from dr.drill.drill_results import DrillResult

DIRECTORY = Path("out/demo")
PLAN = ROOT / "deploy" / "examples" / "demo-drill.yaml"
BLACKLIST = ("control",)
MARKER = "antipode-demo"
"""A file that says the directory is the demo's own and may be replaced."""


def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="Directory of the demo; an earlier demo in it is replaced.")
    ] = DIRECTORY,
    plan: Annotated[Path, typer.Option(help="The drill to run on the pair of sites.")] = PLAN,
    is_secure: Annotated[
        bool,
        typer.Option("--secure/--plaintext", help="On sites that demand certificates, as of `antipode up --secure`."),
    ] = False,
) -> None:
    """Two sites, real data, a network partition, a lost site, a failover, proof of equality: about
    three minutes, then a report.

    Example: antipode demo --dir out/demo
    """
    from cli.embedding.embedded import ENVIRONMENT_FILE, EmbeddedSites
    from cli.embedding.link_setup import LinkFilters
    from cli.embedding.port_file import layout_in_directory
    from dr.drill.environment import parse_environment
    from dr.drill.plan.drill_plan import load_plan

    with failures_as_messages():
        loaded = load_plan(plan)
    root = emptied(directory)
    sites_directory = root / "sites"
    wishes = Wishes(sites=("a", "b"), brokers=1, directory=sites_directory, is_secure=is_secure)
    ended: list[tuple[DrillResult, ReportFiles]] = []
    seen: list[dict[str, Any]] = []

    async def run(stop: asyncio.Event) -> None:
        embedded = EmbeddedSites(
            layout=layout_in_directory(wishes),
            filters=LinkFilters(topic_blacklist=BLACKLIST),
            preloaded=PRELOADED,
            report=report_progress,
        )
        async with embedded.running(stop) as document:
            if document is None:
                return
            seen.append(document)
            environment = parse_environment((sites_directory / ENVIRONMENT_FILE).read_text(), where="demo")
            found = await run_with_view(
                loaded,
                environment,
                stop,
                directory=root / "drill",
                commands=commands(sites_directory / ENVIRONMENT_FILE, environment),
            )
            ended.append(found)

    code = run_daemon(run)
    if not ended:
        raise typer.Exit(code or ExitCode.FAILED)
    result, files = ended[0]
    print_result(result, files)
    _print_way_around(seen[0], sites_directory)
    raise typer.Exit(ExitCode.DONE if result.is_passed else ExitCode.FAILED)


def emptied(directory: Path) -> Path:
    """The directory without an earlier demo. A usage error when it holds anything else."""
    root = directory.resolve()
    if root.exists() and any(root.iterdir()):
        if not (root / MARKER).exists():
            raise usage_error(
                f"--dir {str(directory)!r} holds something else than an earlier demo: give an empty directory"
            )
        shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / MARKER).touch()
    return root


def _print_way_around(environment: dict[str, Any], sites_directory: Path) -> None:
    from cli.embedding.security import kcat_login

    promoted = environment["sites"]["b"]
    console.print("\nThe processes are gone, their data is kept. To look around, start the same two sites again:")
    command = _shown(Path(sys.executable).with_name("antipode"))  # it need not be on PATH
    secure = " --secure" if "security" in environment else ""
    console.print(
        f"  {command} up{secure} --dir {_shown(sites_directory)} --blacklist {','.join(BLACKLIST)}",
        highlight=False,
        markup=False,
    )
    console.print(
        f"  kcat{kcat_login(environment)} -C -b {promoted['bootstrap_servers']} -t flights -c 3", highlight=False
    )
    console.print(f"  curl http://{promoted['metrics'][0]}/metrics   (Prometheus)", highlight=False, markup=False)


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
