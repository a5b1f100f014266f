"""Spark's daemon of Python workers with this project's modules imported before it forks: a fork
begins to read at once, where one of Spark's own daemon imports for half a second of processor time.

    spark.python.daemon.module=spark_jobs.worker_daemon

Spark imports nothing before the fork because a library may start threads, which a fork does not
have. Modules that start threads (pyarrow) are left to the forks.
"""

from __future__ import annotations

import gc
import importlib
import os
from typing import Final

PRELOADED: Final = (
    "numpy",
    "pyspark.sql.datasource",
    "spark_jobs.connector.fetching",
    "spark_jobs.connector.sink_decider",
    "spark_jobs.connector.core.options",
    "spark_jobs.logs.log_reader",
)


def preload() -> None:
    """Import what forks use and what starts no thread. Garbage collections leave these objects
    out: Spark runs one in the worker after each task, which takes 30 ms with them.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's library starts a thread a core
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Preload, then be Spark's daemon."""
    from pyspark.daemon import manager

    preload()
    manager()


if __name__ == "__main__":
    main()
