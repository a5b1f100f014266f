"""Makes `deploy/requirements.txt`: every package that the project and its tests need, at the exact
version that pip chooses today.

Run by `make lock` inside the environment. pip resolves `pyproject.toml` anew and ignores installed
packages, so the file does not depend on the packages of this machine. The file has names and
versions only: pip's own configuration decides where packages come from.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from runtime.process import OperationalFailure

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "deploy" / "requirements.txt"

HEADER = """\
# Every Python package of the product and of its tests, pinned. Made by `make lock` from pyproject.toml; do not edit.
"""


def resolve() -> dict[str, str]:
    """Name and version of every direct and indirect dependency in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["test"],
    ]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    ended = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise OperationalFailure(f"pip finds no set of versions:\n{ended.stderr}")
    chosen = (entry["metadata"] for entry in json.loads(ended.stdout)["install"])
    return {metadata["name"].lower().replace("_", "-"): metadata["version"] for metadata in chosen}


def main() -> None:
    """Write the file."""
    pins = resolve()
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    REQUIREMENTS.write_text(HEADER + "".join(lines), encoding="utf-8")
    print(f"{REQUIREMENTS.relative_to(ROOT)}: {len(pins)} packages")


if __name__ == "__main__":
    main()
