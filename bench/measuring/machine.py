"""Describes the measured machine, its system and versions for the report."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import confluent_kafka

from deploy import jar_sets, parts
from runtime.compiled import ROOT
from runtime.process import OperationalFailure

KIB_PER_GIB = 1024 * 1024


def description() -> dict[str, Any]:
    """The description as JSON-ready values; unknown facts are "unknown"."""
    return {
        "cores": os.cpu_count(),
        "processor": _field("/proc/cpuinfo", "model name"),
        "memory_gib": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / KIB_PER_GIB, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java_version(),
        "antipode": _commit(),
        "librdkafka": confluent_kafka.libversion()[0],
        "confluent_kafka": metadata.version("confluent-kafka"),
        "uvloop": metadata.version("uvloop"),
        "apache_kafka": jar_sets.KAFKA.version if jar_sets.KAFKA.is_there else "not there",
        "load_average": os.getloadavg()[0],
    }


def one_line(machine: dict[str, Any]) -> str:
    """The description as a line under the table."""
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
        f"Python {machine['python']}, Java {machine['java']}, Antipode {machine['antipode']}, librdkafka {machine['librdkafka']}, "
        f"Apache Kafka {machine['apache_kafka']}"
    )


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0 unknown"


def _java_version() -> str:
    try:
        return str(parts.java().version)
    except OperationalFailure:
        return "unknown"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return metadata.version("antipode")
    return ended.stdout.strip() or metadata.version("antipode")
