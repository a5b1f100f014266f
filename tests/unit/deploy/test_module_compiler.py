"""The compiler of modules leaves no process behind when it gives up on one."""

from __future__ import annotations

import subprocess
import sys

from deploy.module_compiler import process_group
from tests.support.eventually import eventually_sync

STARTS_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
child.wait()
"""


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_that_a_step_started_end_with_it() -> None:
    with process_group([sys.executable, "-c", STARTS_A_CHILD], stdout=subprocess.PIPE) as step:
        assert step.stdout is not None
        child = int(step.stdout.readline())
        assert _is_alive(child)
    eventually_sync(lambda: not _is_alive(child))


def test_the_exit_code_of_a_step_that_ends_is_kept() -> None:
    with process_group([sys.executable, "-c", "import sys; sys.exit(3)"]) as step:
        step.wait()
    assert step.returncode == 3
