"""The Spark session of a job: the cluster's own under spark-submit, else a small local one that
starts quickly and stays quiet. Also reports of progress, and the cause of a failure in a worker.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A job of seconds gains more from a quick start than from the last optimisation."""
MORE_JAVA_OPTIONS = "ANTIPODE_SPARK_JAVA_OPTIONS"
"""Environment variable with further options: those with which Java maps an archive of Spark's
classes (`deploy/class_archives.py`).
"""

DAEMON = {"spark.python.daemon.module": "spark_jobs.worker_daemon"}

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark settings that switch off the Java code generation for each query: in a short job it takes
longer than the query.
"""

Progress = Callable[[str], None]
"""Takes a line that says what a job is doing."""

Result = TypeVar("Result")


def session(name: str, *, is_local: bool, cores: int | None = None) -> SparkSession:
    """The session. With `is_local` False it uses the settings of spark-submit."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in DAEMON.items():
        builder = builder.config(key, value)
    if is_local:
        used = cores or os.cpu_count() or 2
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {os.environ.get(MORE_JAVA_OPTIONS, '')}".strip(),
            "spark.sql.shuffle.partitions": str(used),
            "spark.sql.adaptive.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.ui.showConsoleProgress": "false",
        }
        # They repeat each error with its Java stack as JSON on standard error.
        for repeating in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(repeating).setLevel(logging.CRITICAL)
        builder = builder.master(f"local[{used}]")
        for key, value in settings.items():
            builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Interpret the queries of the block; for small ones."""
    before = {key: spark.conf.get(key) for key in INTERPRETED}
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, former in before.items():
            if former is not None:
                spark.conf.set(key, former)


@contextmanager
def noise_into(file: Path) -> Iterator[None]:
    """Write the standard error of programs that start in the block to the file: Java prints
    messages that users do not need.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("ab") as noise:
            os.dup2(noise.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def result_of(action: Callable[[], Result]) -> Result:
    """The result of a Spark action. Raises OperationalFailure with the worker's own message when it
    fails.
    """
    from pyspark.errors import PySparkException

    try:
        return action()
    except PySparkException as error:
        raise OperationalFailure(f"the work in Spark failed: {_cause(str(error))}") from error


def _cause(text: str) -> str:
    """The worker's own message, without the text that Spark adds."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("wire.", "clients.", "runtime.", "OSError", "ValueError"))]
    return (errors or lines or [""])[-1 if errors else 0]
