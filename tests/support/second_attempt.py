"""Runs tests with processes that failed beside others once more, each by itself.

`make test` shares a thousand such tests among three workers a core, and a machine that is busy for
a second can make one client or one ZooKeeper session late. A test that fails again by itself fails
the build. One that passes is named at the end: each such name is a race to be mended. Tests under
faults (`tests/chaos`) and those of the simulation (`tests/sim`) get no second attempt, because a
history that is wrong once is wrong; nor does a run in which many tests failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

REPEATED_FOLDER = "tests/integration/"
REPEATED_MAX = 5
TESTS_FAILED = 1
"""pytest's exit code for a run that reached its end and had failures."""


def refusal_of(failed: Iterable[str]) -> str:
    """Why these failed tests get no second attempt; "" if they get one."""
    names = sorted(failed)
    if not names:
        return "pytest failed without a failed test"
    if others := [name for name in names if not name.startswith(REPEATED_FOLDER)]:
        return f"only tests of {REPEATED_FOLDER} are run twice, not {', '.join(others)}"
    if len(names) > REPEATED_MAX:
        return f"{len(names)} tests failed, and at most {REPEATED_MAX} are run twice"
    return ""


def main(cache: Path, arguments: list[str]) -> int:
    """Run pytest with the arguments, then its failed tests again; the exit code of the build."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={cache}"]
    status = subprocess.run([*pytest, "--cache-clear", *arguments], check=False).returncode
    if status != TESTS_FAILED:
        return status
    failures = cache / "v" / "cache" / "lastfailed"
    failed: list[str] = sorted(json.loads(failures.read_text())) if failures.exists() else []
    if refusal := refusal_of(failed):
        print(f"no second attempt: {refusal}", flush=True)
        return status
    again = [name for name in failed if subprocess.run([*pytest, name], check=False).returncode]
    for name in failed:
        print(f"{'failed twice' if name in again else 'passed only by itself, mend its race'}: {name}", flush=True)
    return status if again else os.EX_OK


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), sys.argv[2:]))
