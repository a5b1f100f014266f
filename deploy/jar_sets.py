"""Java programs of other projects, to compare with in tests and benchmarks: Apache Kafka itself,
its Streams and Connect, Spark's Kafka connector.

Not needed to run anything. Maven fetches them into the parts folder from the files in
`deploy/jars`; a set is complete if its folder exists, because the folder is filled under another
name and renamed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy import parts
from runtime.process import OperationalFailure

DECLINE_APT_VARIABLE = "ANTIPODE_NO_APT"
OUTPUT_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """A Maven project for its dependencies, and the version of its main artifact."""

    name: str
    version: str

    @property
    def directory(self) -> Path:
        """The folder of its jars."""
        return parts.parts_directory() / f"{self.name}-{self.version}"

    @property
    def is_there(self) -> bool:
        """True if the jars were fetched."""
        return self.directory.is_dir()

    def jars(self) -> tuple[Path, ...]:
        """Its jars. Raises OperationalFailure if the set has not been fetched."""
        if not self.is_there:
            raise OperationalFailure(
                f"the Java programs {self.name} {self.version} are not there: run `make setup-java` (needs Maven)"
            )
        return tuple(sorted(self.directory.glob("*.jar")))


KAFKA = JarSet(name="kafka", version="4.3.1")
SPARK_KAFKA = JarSet(name="spark-kafka", version="4.2.0")
KAFKA_EXTENSIONS = JarSet(name="kafka-extensions", version=KAFKA.version)
"""Streams and the file connectors; their store is large, and only the compatibility matrix needs
them.
"""
OPENSEARCH = JarSet(name="opensearch", version="2.19.1")
"""A document store, for the pipeline that writes to one."""
HADOOP = JarSet(name="hadoop", version="3.5.0")
"""HDFS and YARN, in the version of Spark's own Hadoop classes; only long tests need them, and fetch
them.
"""
TESTED = (KAFKA, SPARK_KAFKA, OPENSEARCH)


def fetch(wanted: Sequence[JarSet], say: Callable[[str], None]) -> None:
    """Fetch what is missing. Raises OperationalFailure, which says why the set cannot be
    fetched.
    """
    missing = [jar_set for jar_set in wanted if not jar_set.is_there]
    if missing:
        maven = _maven(say)
        for jar_set in missing:
            _fetch(maven, jar_set)
    for jar_set in wanted:
        say(f"{jar_set.name} {jar_set.version}, {len(jar_set.jars())} jars")


def _fetch(maven: str, jar_set: JarSet) -> None:
    partial = jar_set.directory.with_name(f"{jar_set.directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    project = Path(__file__).resolve().parent / "jars" / f"{jar_set.name}.xml"
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        f"--file={project}",
        f"-Dset.version={jar_set.version}",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={partial}",
        "dependency:copy-dependencies",
    ]
    environment = {**os.environ, **parts.spark_environment()}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        output = "\n".join((ended.stdout + ended.stderr).splitlines()[-OUTPUT_LINES_SHOWN:])
        raise OperationalFailure(f"Maven could not fetch {jar_set.name} {jar_set.version}:\n{output}")
    # renamed at the end: an interrupted download leaves no folder that looks complete
    partial.rename(jar_set.directory)


def _maven(say: Callable[[str], None]) -> str:
    found = shutil.which("mvn")
    if found is None and _may_install_packages():
        say(f"installing the Debian package maven ({DECLINE_APT_VARIABLE}=1 declines)")
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "maven"]):
            subprocess.run(
                ["apt-get", "--quiet", *arguments],
                capture_output=True,
                check=False,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )
        found = shutil.which("mvn")
    if found is None:
        raise OperationalFailure(
            "Maven (mvn) is not on PATH and could not be installed: install it for the tests with Java clients"
        )
    return found


def _may_install_packages() -> bool:
    declined = os.environ.get(DECLINE_APT_VARIABLE, "") not in ("", "0")
    return os.geteuid() == 0 and shutil.which("apt-get") is not None and not declined
