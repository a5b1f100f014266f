"""The compiler of modules leaves no process behind when it gives up on one, divides its work
evenly, and makes one library that starts every module.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.module_compiler import equal_parts, process_group
from runtime import compiled
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


@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_files_are_divided_evenly_and_keep_their_order(tmp_path: Path, count: int) -> None:
    files = []
    for i, size in enumerate([50, 10, 30, 20, 40, 10, 60, 20, 30, 30]):
        file = tmp_path / f"{i}.c"
        file.write_bytes(b"x" * size)
        files.append(str(file))
    parts = equal_parts(files, count)
    assert [file for part in parts for file in part] == files
    assert len(parts) <= count
    largest = max(sum(Path(file).stat().st_size for file in part) for part in parts)
    assert largest <= 300 / count + 60


def test_the_library_can_start_each_module_by_the_last_part_of_its_name() -> None:
    names = [name.rpartition(".")[2] for name in compiled.MODULES]
    assert len(set(names)) == len(names)


def test_a_folder_without_the_library_has_no_compiled_module(tmp_path: Path) -> None:
    assert compiled.compiled_files(tmp_path) == {}
    compiled.library_file(tmp_path).touch()
    assert compiled.compiled_files(tmp_path).keys() >= set(compiled.MODULES)
