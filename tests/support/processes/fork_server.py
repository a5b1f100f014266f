"""The fork server of a test run. It forks what tests start by the hundred: parts of sites,
commands, and `antipode up` with all that it starts. A forked process has its pid, its files for
output, its signals and its exit code as any other, and needs no imports.
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runtime.children import Child, forked_by
from runtime.forking.fork_server import PYTHON_MODULE, ForkRequest, ForkServer, is_forkable
from tests.support.eventually import eventually_sync

REPOSITORY: Final = Path(__file__).resolve().parents[3]
COMMAND: Final = "cli.main"
FORKED: Final = frozenset(
    {
        COMMAND,
        "tests.support.lone_brokers.lone_broker",
        "tests.support.pairs.full_sites",
        "tests.support.pairs.lone_mirror",
        "tests.support.pairs.lone_site",
        "tests.support.sites.site_node",
    }
)
"""Modules that need no import of their own; others replace functions before they import."""
COMMAND_WITHIN_S: Final = 400


@functools.cache
def fork_server() -> ForkServer:
    """The fork server of this process. The first call starts it."""
    server = ForkServer.start(["tests.support.processes.preloaded"])
    atexit.register(server.close)
    return server


def start(child: Child) -> None:
    """Start a child, by the fork server where it knows the module."""
    if is_forkable(child.command) and child.command[len(PYTHON_MODULE)] in FORKED:
        with forked_by(fork_server()):
            child.start()
    else:
        child.start()


def run_antipode(
    *arguments: str,
    given: str = "",
    directory: Path = REPOSITORY,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = COMMAND_WITHIN_S,
) -> subprocess.CompletedProcess[str]:
    """An `antipode` command to its end; `environment` replaces this process's own.
    ConditionNeverHeld, after kill -9, when it takes longer.
    """
    with tempfile.TemporaryDirectory() as outputs:
        source, output, errors = (Path(outputs) / name for name in ("input", "output", "errors"))
        source.write_text(given, encoding="utf-8")
        process = fork_server().fork(
            ForkRequest(
                module=COMMAND,
                arguments=arguments,
                directory=str(directory),
                environment=dict(os.environ if environment is None else environment),
                input=str(source),
                output=str(output),
                errors=str(errors),
            )
        )
        try:
            eventually_sync(lambda: process.poll() is not None, timeout_s * 1000)
        except BaseException:
            os.kill(process.pid, 9)
            raise
        code = process.poll()
        assert code is not None
        printed, complaints = output.read_text(encoding="utf-8"), errors.read_text(encoding="utf-8")
    return subprocess.CompletedProcess(["antipode", *arguments], code, printed, complaints)
