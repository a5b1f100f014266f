"""The second half of `make setup`, inside the virtual environment: it verifies every outside part,
and installs missing ones.

Prints a line for each part. With `--java-programs` it also fetches the programs that only
benchmarks and tests with Java clients need; if they cannot be fetched, such tests are skipped.
`--client-programs` adds the programs that only the compatibility matrix needs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from deploy import class_training, client_programs, jar_sets, java_runtime, module_compiler, parts, toxiproxy_build
from runtime.process import ExitCode, OperationalFailure

Part = TypeVar("Part")
COMPILE_OPTION = "--compile-modules"
"""Makes this program compile the modules and nothing else."""


def say(line: str) -> None:
    """Print a progress line."""
    print(f"setup: {line}", flush=True)


def main() -> ExitCode:
    """Verify and install; return the exit code."""
    started = time.monotonic()
    # the compiler of the modules leaves a core free most of the time, and downloads leave more
    with subprocess.Popen([sys.executable, "-m", "deploy.setup", COMPILE_OPTION]):
        code = _ensure_parts()
    if code is ExitCode.DONE:
        say(f"ready ({time.monotonic() - started:.0f} s for the parts in {parts.parts_directory().name})")
    return code


def _ensure_parts() -> ExitCode:
    """Verify and install everything but the compiled modules; return the exit code."""
    try:
        _ensure_java()
        say(f"ZooKeeper {parts.zookeeper_version()}, from pyspark's jars")
        _ensure_toxiproxy()
    except OperationalFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return ExitCode.FAILED
    _archive_classes(class_training.ensure_zookeeper)
    _archive_classes(class_training.ensure_spark)
    if {"--java-programs", "--client-programs"} & set(sys.argv[1:]):
        _fetch_java_programs(jar_sets.TESTED)
        _archive_classes(class_training.ensure_kafka)
    if "--client-programs" in sys.argv[1:]:
        _fetch_java_programs((jar_sets.KAFKA_EXTENSIONS,))
        _build_client_programs()
    return ExitCode.DONE


def _ensure_java() -> None:
    java = _found_or_none(parts.java)
    if java is None:
        say("no Java 17 or newer here; installing one for this checkout")
        java = java_runtime.install(parts.parts_directory())
        # the search has cached its failure
        parts.java.cache_clear()
    say(f"Java {java.version}, {java.executable}")


def _ensure_toxiproxy() -> None:
    if _found_or_none(parts.toxiproxy) is None:
        say(f"no toxiproxy server {parts.TOXIPROXY_VERSION} here; building it (a minute)")
        toxiproxy_build.install(parts.parts_directory(), say)
        parts.toxiproxy.cache_clear()
    say(f"toxiproxy {parts.TOXIPROXY_VERSION}, {parts.toxiproxy()}")


def _compile_modules() -> ExitCode:
    """Compile the modules, or print why they run interpreted."""
    try:
        module_compiler.ensure(say)
    except OperationalFailure as failure:
        say(f"modules are not compiled: everything works, but small records take ten times the CPU: {failure}")
    return ExitCode.DONE


def _archive_classes(ensure: Callable[[Callable[[str], None]], None]) -> None:
    try:
        ensure(say)
    except OperationalFailure as failure:
        say(f"Java programs start without a class archive, which is slower: {failure}")


def _found_or_none(search: Callable[[], Part]) -> Part | None:
    try:
        return search()
    except OperationalFailure:
        return None


def _fetch_java_programs(wanted: Sequence[jar_sets.JarSet]) -> None:
    try:
        jar_sets.fetch(wanted, say)
    except OperationalFailure as failure:
        say(f"tests with Java clients will be skipped: {failure}")


def _build_client_programs() -> None:
    try:
        client_programs.build_all(say)
    except OperationalFailure as failure:
        say(f"the compatibility matrix goes without some clients: {failure}")


if __name__ == "__main__":
    sys.exit(_compile_modules() if COMPILE_OPTION in sys.argv[1:] else main())
