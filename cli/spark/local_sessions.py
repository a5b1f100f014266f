"""The Spark session of a command, on this machine; it starts when the job first needs it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.shared.command_config import command_config_environment
from cli.shared.output import report_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Cores = Annotated[int, typer.Option(help="Cores for Spark; 0 takes all.", min=0)]


@contextmanager
def lazy_session(name: str, cores: int, log_directory: Path | None = None) -> Iterator[Callable[[], SparkSession]]:
    """A function that starts Spark at its first call, with all cores if `cores` is 0; the session
    ends with the block. Spark's own messages go to `spark.log` in the directory, or are deleted.
    """
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            started.append(_started(name, cores, log_directory))
        return started[0]

    try:
        yield session
    finally:
        for one in started:
            one.stop()


def _started(name: str, cores: int, log_directory: Path | None) -> SparkSession:
    from deploy.class_archives import spark_environment
    from spark_jobs.session import noise_into, session

    # Spark starts its Java process with the environment of this one.
    os.environ.update(spark_environment() | command_config_environment())
    report_progress("starting Spark")
    with ExitStack() as opened:
        directory = log_directory or Path(opened.enter_context(tempfile.TemporaryDirectory()))
        opened.enter_context(noise_into(directory / "spark.log"))
        return session(name, is_local=True, cores=cores or None)
