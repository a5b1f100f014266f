"""Spark's daemon of Python workers with this project's modules imported before it forks: a fork
begins to read at once, where one of Spark's own daemon imports for half a second of processor time.

    spark.python.daemon.module=spark_jobs.worker_daemon

Spark imports nothing before the fork because a library may start threads, which a fork does not
have. Modules that start threads (pyarrow) are left to the forks.
"""

from __future__ import annotations

import ctypes
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

MMAP_THRESHOLD: Final = -3
TRIM_THRESHOLD: Final = -1
"""Parameters of glibc's `mallopt`."""
MAPPED_ALONE_BYTES_MIN: Final = 32 * 1024 * 1024
"""The largest threshold that glibc accepts."""
FREE_BYTES_MAX: Final = 64 * 1024 * 1024


def keep_freed_memory() -> None:
    """Let glibc use freed memory of large buffers again, up to FREE_BYTES_MAX, in place of
    returning it to the system. A task makes and frees buffers of a megabyte all the time, and the
    system's zeroed pages for them took two fifths of its time. Other C libraries go without.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, MAPPED_ALONE_BYTES_MIN)
        mallopt(TRIM_THRESHOLD, FREE_BYTES_MAX)


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

    keep_freed_memory()
    preload()
    manager()


if __name__ == "__main__":
    main()
