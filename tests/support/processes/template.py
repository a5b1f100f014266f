"""A process that has imported what a site's parts need, and forks them: the other half of
`warm_children.py`. A part that starts this way does not import 900 modules again.

Each line of standard input is a request of JSON, each line of standard output its answer. The
process has one thread, so a fork copies all of it; it ends when its input ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PARTS: Final = (
    "tests.support.lone_brokers.lone_broker",
    "tests.support.pairs.full_sites",
    "tests.support.pairs.lone_mirror",
    "tests.support.pairs.lone_site",
    "tests.support.sites.site_node",
)
"""The modules that can be started this way, all of them with `python -m` in mind."""


def main() -> None:
    """Serve until the end of the input; a forked part goes on behind the loop."""
    for name in PARTS:
        importlib.import_module(name)
    if threading.active_count() > 1:
        raise RuntimeError("a module starts a thread when it is imported: a fork would not have it")
    part = _serve()
    if part is not None:
        _become(part)


def _serve() -> Mapping[str, Any] | None:
    """Answer requests: None at the end of the input, and in a forked process its part."""
    answers = sys.stdout
    for line in sys.stdin:
        request = json.loads(line)
        if "module" in request:
            pid = os.fork()
            if not pid:
                return dict(request)
            answer: int | None = pid
        else:
            answer = _exit_code(request["pid"])
        print(json.dumps(answer), file=answers, flush=True)
    return None


def _exit_code(pid: int) -> int | None:
    """How a part ended, negative for a signal; None while it runs. Asked once after the end."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(part: Mapping[str, Any]) -> None:
    """Be the part, as if this process had been started for it."""
    os.setsid()
    with contextlib.suppress(OSError), Path(f"/proc/{os.getpid()}/comm").open("w") as name:
        name.write(part["module"].rpartition(".")[2][:15])
    with open(os.devnull, "rb") as nothing, Path(part["log"]).open("ab") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(part["directory"])
    os.environ.clear()
    os.environ.update(part["environment"])
    sys.argv = [part["module"], *part["arguments"]]
    # It runs as __main__: a second copy under its name would warn.
    sys.modules.pop(part["module"])
    runpy.run_module(part["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
