"""Archives of loaded Java classes (class-data sharing, JEP 310): a JVM with an archive needs half
the processor time to start, because it does not parse and verify those classes.

An archive belongs to one Java and one class path; both are in its name, so an archive that does not
fit is not found and the JVM starts without one. `deploy/class_training.py` (by `make setup`) makes
them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy import jar_sets, parts
from runtime.process import OperationalFailure

WARNINGS_TO_STDERR = ("-Xlog:disable", "-Xlog:all=warning:stderr")
"""A JVM that cannot use its archive prints a warning, by default on standard output, where it would
mix with a program's results.
"""
DUMP_WITHIN_S = 120
OUTPUT_LINES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    """The classes that programs with one class path load. `jars` may raise OperationalFailure if
    the programs are not installed.
    """

    name: str
    jars: Callable[[], Sequence[Path]]

    @property
    def directory(self) -> Path:
        """The folder of the archives."""
        return parts.parts_directory() / "class-archives"

    @property
    def file(self) -> Path:
        """The archive for the current Java and jars; it need not exist. OperationalFailure without
        either.
        """
        state = hashlib.sha256()
        for file in (parts.java().executable.resolve(), *self.jars()):
            status = file.stat()
            state.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
        return self.directory / f"{self.name}-{state.hexdigest()[:16]}.jsa"

    def options(self) -> list[str]:
        """The options with which a JVM with these jars first on its class path uses the archive;
        empty without an archive.
        """
        file = self.file
        return [f"-XX:SharedArchiveFile={file}", *WARNINGS_TO_STDERR] if file.is_file() else []

    def keep(self, made: Path) -> None:
        """Rename a new archive to its final name, and delete archives of the same name for other
        versions.
        """
        target = self.file
        # renamed only when complete: a JVM that starts at the same time finds no archive rather
        # than an incomplete one
        made.rename(target)
        for other in self.directory.glob(f"{self.name}-*.jsa"):
            if other != target:
                other.unlink()

    def make(self, loaded: Sequence[Path]) -> None:
        """Write the archive from class lists, which JVMs with `listing_option` wrote, and delete
        archives of the same name for other versions. OperationalFailure with Java's output.
        """
        target = self.file
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="build-") as scratch_name:
            scratch = Path(scratch_name)
            classes = scratch / "classes.lst"
            classes.write_text("".join(f"{line}\n" for line in _lines_of_all(loaded)), encoding="utf-8")
            command = [
                str(parts.java().executable),
                "-Xshare:dump",
                f"-XX:SharedClassListFile={classes}",
                f"-XX:SharedArchiveFile={scratch / target.name}",
                "-cp",
                os.pathsep.join(map(str, self.jars())),
            ]
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DUMP_WITHIN_S)
            if ended.returncode != 0 or not (scratch / target.name).is_file():
                reported = "\n".join((ended.stdout + ended.stderr).splitlines()[-OUTPUT_LINES_SHOWN:])
                raise OperationalFailure(f"Java wrote no archive of {self.name}'s classes:\n{reported}")
            self.keep(scratch / target.name)


ZOOKEEPER = ClassArchive(name="zookeeper", jars=parts.zookeeper_jars)
KAFKA = ClassArchive(name="kafka", jars=jar_sets.KAFKA.jars)
SPARK = ClassArchive(name="spark", jars=parts.spark_jars)
"""Written by the JVM of a small Spark job when it ends (JEP 350), since Spark composes its class
path itself.
"""
SPARK_OPTIONS_VARIABLE = "ANTIPODE_SPARK_JAVA_OPTIONS"
"""Java options of local Spark sessions, which `spark_jobs/session.py` adds to its own."""


def spark_environment() -> dict[str, str]:
    """The environment of a process that starts Spark with our Java, and with the archive of Spark's
    classes if there is one.
    """
    return {**parts.spark_environment(), SPARK_OPTIONS_VARIABLE: " ".join(SPARK.options())}


def listing_option(directory: Path) -> str:
    """The option with which a JVM lists its loaded classes in a file `*.lst` in this directory."""
    return f"-XX:DumpLoadedClassList={directory}/%p.lst"


def _lines_of_all(files: Sequence[Path]) -> Iterator[str]:
    """Each line once, in the order of the files: a class comes after those that it needs."""
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return iter(dict.fromkeys(lines))
