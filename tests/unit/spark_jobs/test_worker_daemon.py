"""Spark's daemon of workers: Spark imports nothing before it forks because a thread does not
survive a fork, so what we import there must start none.
"""

from __future__ import annotations

import subprocess
import sys

PRELOADED = """
import gc, os, sys
from spark_jobs import worker_daemon
worker_daemon.preload()
print(gc.get_freeze_count() > 50_000, len(os.listdir("/proc/self/task")), *(name in sys.modules for name in ("pyarrow", "hypothesis")))
"""


def test_modules_imported_before_a_fork_start_no_thread_and_are_not_collected() -> None:
    ended = subprocess.run([sys.executable, "-c", PRELOADED], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "1", "False", "False"]


FAULTS_OF_BUFFERS = """
import resource
from spark_jobs import worker_daemon
worker_daemon.keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def allocate():
    buffers = [bytearray(3 << 20) for _ in range(4)]
allocate()
before = faults()
for _ in range(20):
    allocate()
print(faults() - before)
"""
PAGES_OF_A_ROUND = 3 * 4 * 256


def test_large_buffers_get_the_memory_of_freed_ones() -> None:
    ended = subprocess.run([sys.executable, "-c", FAULTS_OF_BUFFERS], capture_output=True, text=True, check=True)
    assert int(ended.stdout) < PAGES_OF_A_ROUND
