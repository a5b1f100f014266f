"""`antipode spark-cluster`: a standalone Spark cluster of a master and workers on this machine,
until it is ended.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from cli.shared.failures import failures_as_messages
from cli.shared.output import Output, OutputFormat, console, print_json


def spark_cluster(
    directory: Annotated[
        Path, typer.Option("--dir", help="Directory of logs, pid files and the workers' files.")
    ] = Path("out/spark-cluster"),
    workers: Annotated[int, typer.Option(help="How many workers.", min=1)] = 3,
    cores: Annotated[int, typer.Option(help="Cores of each worker.", min=1)] = 1,
    memory_mb: Annotated[int, typer.Option(help="Memory of each worker, in MB.", min=512)] = 1024,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Start a Spark cluster of a master and workers as processes on this machine, until Ctrl-C.

    For trying a job before it goes to a cluster: `spark-submit --master` takes the printed address.

    Example: antipode spark-cluster --workers 2 --dir out/spark-cluster
    """
    from deploy.spark_cluster import SparkCluster

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    with failures_as_messages():
        cluster = SparkCluster(
            directory=directory.absolute(), worker_count=workers, cores_each=cores, memory_each_mb=memory_mb
        )
        try:
            cluster.start()
            cluster.wait_ready()
            processes = {child.name: child.pid() for child in (cluster.master, *cluster.workers)}
            if output is OutputFormat.JSON:
                print_json({"master": cluster.address, "page": cluster.page, "processes": processes})
            else:
                console.print(
                    f"{cluster.address} with {workers} workers, page {cluster.page}", highlight=False, markup=False
                )
            signal.pause()
        finally:
            cluster.stop()


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signature of handlers
    """Stop the processes and end with code 0."""
    raise typer.Exit
