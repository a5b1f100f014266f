"""Builds the toxiproxy server into the parts folder, with the compilers of `go_toolchain.py`. One
binary of 12 MB remains.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from deploy import parts
from deploy.go_toolchain import compilers, install_program
from runtime.process import OperationalFailure

MODULE = "github.com/Shopify/toxiproxy/v2"
PROGRAM = f"{MODULE}/cmd/server@v{parts.TOXIPROXY_VERSION}"


def install(directory: Path, say: Callable[[str], None]) -> Path:
    """Build it into `directory`/bin. Raises OperationalFailure with the compiler's last lines if no
    Go works.
    """
    target = directory / "bin" / "toxiproxy-server"
    target.parent.mkdir(parents=True, exist_ok=True)
    refusals: list[str] = []
    with tempfile.TemporaryDirectory(dir=directory, prefix="build-") as scratch_name:
        scratch = Path(scratch_name)
        for go in compilers(scratch, say, refusals):
            failure = install_program(go, scratch, PROGRAM, flags=f"-X {MODULE}.Version={parts.TOXIPROXY_VERSION}")
            built = scratch / "bin" / "server"
            if failure is None and parts.probe_toxiproxy(built) == parts.TOXIPROXY_VERSION:
                built.replace(target)
                return target
            refusals.append(f"{go}: {failure or 'what it built does not run'}")
    raise OperationalFailure(
        f"the toxiproxy server {parts.TOXIPROXY_VERSION} could not be built: put one on PATH as toxiproxy-server, or install Go, "
        "then run `make setup` again.\n" + "\n".join(refusals)
    )
