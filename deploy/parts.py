"""Finds the outside programs that embedded sites need, and verifies them by running them: Java,
ZooKeeper's jars, toxiproxy.

It only searches; `setup.py` (by `make setup`) installs. `antipode up`, the tests and the Spark jobs
call it. A part that is missing or too old is an OperationalFailure that says what to do.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runtime.process import OperationalFailure

JAVA_VERSION_MIN = 17
TOXIPROXY_VERSION = "2.12.0"
ZOOKEEPER_JARS = (
    "zookeeper-3.9.5.jar",
    "zookeeper-jute-3.9.5.jar",
    "slf4j-api-2.0.17.jar",
    "metrics-core-4.2.37.jar",
    "snappy-java-1.1.10.8.jar",
)
"""The jars of pyspark that a ZooKeeper server needs. Without the snappy jar the server starts but
never serves.
"""
ZOOKEEPER_LOG_JARS = ("log4j-slf4j2-impl-2.25.4.jar", "log4j-api-2.25.4.jar", "log4j-core-2.25.4.jar")
"""Jars for the server's log, which has the reason of a failed start."""

NETTY_TLS_PARTS = ("transport-classes-epoll", "tcnative-classes")
NETTY_PARTS = ("handler", "buffer", "codec-base", "common", "resolver", "transport", "transport-native-unix-common")
"""Jars that the server needs if users log in."""

PARTS_DIRECTORY_VARIABLE = "ANTIPODE_PARTS"
PROBE_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime that has been tested by running it: its `java`, the home for Spark, its
    feature version.
    """

    executable: Path
    home: Path
    version: int


def parts_directory() -> Path:
    """The one folder that `make setup` installs into; ANTIPODE_PARTS names another."""
    named = os.environ.get(PARTS_DIRECTORY_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parent.parent / ".parts"


@functools.cache
def java() -> Java:
    """The first usable Java of JAVA_HOME, PATH and the parts folder. OperationalFailure names what
    was tried.
    """
    refusals: list[str] = []
    for executable in _java_candidates():
        found = probe_java(executable)
        if isinstance(found, Java):
            return found
        refusals.append(found)
    tried = "; ".join(refusals) or "none found by JAVA_HOME, on PATH or in the parts folder"
    raise OperationalFailure(
        f"no Java {JAVA_VERSION_MIN} or newer ({tried}): run `make setup`, or install a Java runtime and set JAVA_HOME"
    )


def _java_candidates() -> list[Path]:
    candidates: list[Path] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path))
    installed = parts_directory() / "java" / "bin" / "java"
    if installed.exists():
        candidates.append(installed)
    return candidates


def probe_java(executable: Path) -> Java | str:
    """Run this `java`; the returned string is the reason why it cannot be used, or ""."""
    try:
        output = _output_of([str(executable), "-XshowSettings:properties", "-version"])
    except OSError as error:
        return f"{executable}: {error.strerror}"
    except subprocess.SubprocessError as error:
        return f"{executable}: {error}"
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", output)
    home = re.search(r"java\.home = (.+)", output)
    # Java 8 reports its version as 1.8, hence the optional `1.` in the pattern
    if version is None or home is None:
        return f"{executable}: does not print its version"
    if int(version[1]) < JAVA_VERSION_MIN:
        return f"{executable}: is Java {version[1]}"
    # Java reports the home of the wrapped runtime; Spark must start our wrapper instead, so the
    # home is the wrapper's folder.
    is_ours = parts_directory() in executable.parents
    return Java(
        executable=executable,
        home=executable.parent.parent if is_ours else Path(home[1].strip()),
        version=int(version[1]),
    )


def _output_of(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    return ended.stdout + ended.stderr


def spark_environment() -> dict[str, str]:
    """The environment of a process that starts Spark with our Java."""
    return {"JAVA_HOME": str(java().home)}


def spark_jars() -> tuple[Path, ...]:
    """All jars of the installed pyspark. OperationalFailure without it."""
    return tuple(sorted(zookeeper_jars()[0].parent.glob("*.jar")))


@functools.cache
def zookeeper_jars() -> tuple[Path, ...]:
    """The jars of a ZooKeeper server, including those for its log, from the installed pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise OperationalFailure(
            "ZooKeeper's jars come with the Python package pyspark, which is missing: run `make setup`"
        )
    folder = Path(spec.origin).parent / "jars"
    jars = tuple(folder / name for name in (*ZOOKEEPER_JARS, *ZOOKEEPER_LOG_JARS))
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        raise OperationalFailure(
            f"the installed pyspark does not ship {', '.join(missing)}: it is not the release that deploy/requirements.txt pins; "
            "run `make setup`"
        )
    return jars


def netty_jars(*, with_tls: bool = False) -> tuple[Path, ...]:
    """Jars of the same folder: a ZooKeeper server with user logins or encrypted sessions loads
    netty classes.
    """
    folder, names = zookeeper_jars()[0].parent, (*NETTY_PARTS, *(NETTY_TLS_PARTS if with_tls else ()))
    return tuple(sorted(jar for name in names for jar in folder.glob(f"netty-{name}-[24]*.jar")))


def zookeeper_version() -> str:
    """The version of the server in those jars."""
    return zookeeper_jars()[0].stem.removeprefix("zookeeper-")


@functools.cache
def toxiproxy() -> Path:
    """A toxiproxy server of the right version: from the parts folder, else from PATH."""
    refusals: list[str] = []
    for executable in _toxiproxy_candidates():
        version = probe_toxiproxy(executable)
        if version == TOXIPROXY_VERSION:
            return executable
        refusals.append(f"{executable} is {version}")
    tried = "; ".join(refusals) or "none found in the parts folder or on PATH"
    raise OperationalFailure(
        f"no toxiproxy server {TOXIPROXY_VERSION} ({tried}): run `make setup`, or go without it (--no-proxy)"
    )


def _toxiproxy_candidates() -> list[Path]:
    installed = parts_directory() / "bin" / "toxiproxy-server"
    on_path = shutil.which("toxiproxy-server")
    return ([installed] if installed.exists() else []) + ([Path(on_path)] if on_path else [])


def probe_toxiproxy(executable: Path) -> str:
    """The version that this server reports; the reason if it cannot be run."""
    try:
        output = _output_of([str(executable), "-version"])
    except (OSError, subprocess.SubprocessError) as error:
        return f"not usable ({error})"
    version = re.search(r"\d+\.\d+\.\d+", output)
    return version[0] if version else "of an unknown version"
