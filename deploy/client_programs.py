"""Programs over Go's and Node's Kafka clients, for the compatibility matrix: built from pinned
sources into the parts folder.

Not needed to run anything. The sources are in `tests/compatibility/programs`; the programs are in a
folder that is named by the sources' digest. The folder is filled under another name and renamed, so
it is never incomplete. A changed source has another digest, so it is built again. The build needs
Go and npm; without them, the matrix reports these clients as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy import parts
from runtime.process import OperationalFailure

SOURCES = Path(__file__).resolve().parent.parent / "tests" / "compatibility" / "programs"
OUTPUT_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPrograms:
    """The programs of one language: their sources, the tool that builds them, the tool that runs
    them, and the file that pins their libraries.
    """

    name: str
    builder: tuple[str, ...]
    runner: tuple[str, ...]
    lock_file: str

    @property
    def sources(self) -> Path:
        """The folder with sources and pins."""
        return SOURCES / self.name

    @property
    def directory(self) -> Path:
        """The folder of the programs that were built from these sources."""
        digest = hashlib.sha256()
        for file in sorted(path for path in self.sources.rglob("*") if path.is_file()):
            digest.update(str(file.relative_to(self.sources)).encode() + file.read_bytes())
        return parts.parts_directory() / f"clients-{self.name}-{digest.hexdigest()[:12]}"

    def missing(self) -> str:
        """The reason why the programs cannot run; empty if they can."""
        if self.directory.is_dir():
            return ""
        if shutil.which(self.builder[0]) is None:
            return f"{self.builder[0]} is not on PATH, and the {self.name} programs have not been built"
        return f"the {self.name} programs have not been built: `make setup-clients` installs it"

    def command(self, program: str) -> list[str]:
        """The command that starts a program."""
        return [*self.runner, str(self.directory / program)]

    def pinned(self, library: str) -> str:
        """The version that the lock file names."""
        text = (self.sources / self.lock_file).read_text(encoding="utf-8")
        if self.lock_file.endswith(".json"):
            return str(json.loads(text)["packages"][f"node_modules/{library}"]["version"])
        found = re.search(rf"^\s*(?:require )?{re.escape(library)} v(\S+)", text, re.MULTILINE)
        assert found is not None, f"{self.lock_file} does not name {library}"
        return found[1]


GO = ClientPrograms(
    name="go",
    builder=("go", "build", "-trimpath", "-mod=readonly", "-o", "bin/", "./..."),
    runner=(),
    lock_file="go.mod",
)
NODE = ClientPrograms(
    name="node",
    builder=("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"),
    runner=("node",),
    lock_file="package-lock.json",
)


def build_all(say: Callable[[str], None]) -> None:
    """Build the missing programs for which the machine has the tools."""
    for programs in (GO, NODE):
        if not programs.directory.is_dir():
            if shutil.which(programs.builder[0]) is None:
                say(
                    f"{programs.builder[0]} is not on PATH: the compatibility matrix goes without its {programs.name} clients"
                )
                continue
            say(f"building the {programs.name} clients of the compatibility matrix")
            _build(programs)
        say(f"{programs.name} clients, {programs.directory.name}")


def _build(programs: ClientPrograms) -> None:
    partial = programs.directory.with_name(f"{programs.directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(programs.sources, partial)
    environment = {**os.environ, "CGO_ENABLED": "0"}
    ended = subprocess.run(programs.builder, cwd=partial, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        output = "\n".join((ended.stdout + ended.stderr).splitlines()[-OUTPUT_LINES_SHOWN:])
        raise OperationalFailure(f"the {programs.name} clients could not be built:\n{output}")
    for old in programs.directory.parent.glob(f"clients-{programs.name}-*"):
        if old != partial:
            shutil.rmtree(old)
    partial.rename(programs.directory)
