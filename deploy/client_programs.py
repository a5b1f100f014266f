"""Programs over Go's and Node's Kafka clients, for the compatibility matrix: built from pinned
sources into the parts folder.

Not needed to run anything. The sources are in `tests/compatibility/programs`; the programs are in a
folder that is named by the sources' digest. The folder is filled under another name and renamed, so
it is never incomplete. A changed source has another digest, so it is built again. Go comes with the
machine or from its wheel (`go_toolchain.py`); without npm, the matrix reports the client of Node as
missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy import parts
from deploy.go_toolchain import compilers
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
    """Build the missing programs; those of Node only where the machine has npm."""
    if not GO.directory.is_dir():
        _build_with_go(say)
    say(f"{GO.name} clients, {GO.directory.name}")
    if not NODE.directory.is_dir():
        npm = shutil.which(NODE.builder[0])
        if npm is None:
            say("npm is not on PATH: the compatibility matrix goes without its node client")
            return
        say("building the node clients of the compatibility matrix")
        failure = _build(NODE, Path(npm), {})
        if failure is not None:
            raise OperationalFailure(f"the node clients could not be built:\n{failure}")
    say(f"{NODE.name} clients, {NODE.directory.name}")


def _build_with_go(say: Callable[[str], None]) -> None:
    say("building the go clients of the compatibility matrix")
    refusals: list[str] = []
    with tempfile.TemporaryDirectory(dir=parts.parts_directory(), prefix="build-") as scratch:
        for go in compilers(Path(scratch), say, refusals):
            # an older Go must not fetch a newer one: the wheel's is tried instead
            failure = _build(GO, go, {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"})
            if failure is None:
                return
            refusals.append(f"{go}: {failure}")
    raise OperationalFailure("the go clients could not be built:\n" + "\n".join(refusals))


def _build(programs: ClientPrograms, tool: Path, variables: Mapping[str, str]) -> str | None:
    """Build with this tool; return None on success, else the last lines of the output."""
    partial = programs.directory.with_name(f"{programs.directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(programs.sources, partial)
    command = (str(tool), *programs.builder[1:])
    environment = {**os.environ, **variables}
    ended = subprocess.run(command, cwd=partial, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        return "\n".join((ended.stdout + ended.stderr).splitlines()[-OUTPUT_LINES_SHOWN:])
    for old in programs.directory.parent.glob(f"clients-{programs.name}-*"):
        if old != partial:
            shutil.rmtree(old)
    partial.rename(programs.directory)
    return None
