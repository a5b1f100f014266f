"""The modules that are packed for Spark's workers run there as they run here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.spark_bundle import pack
from runtime import compiled


@pytest.mark.skipif(not compiled.compiled_files(compiled.directory()), reason="no C compiler on this machine")
def test_the_packed_modules_run_compiled_and_find_the_clients_of_pipelines(tmp_path: Path) -> None:
    pack(tmp_path / "antipode.tar.gz")
    worker = tmp_path / "worker"
    worker.mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "antipode.tar.gz", "-C", worker], check=True)
    program = "import confluent_kafka, requests; from runtime import compiled; print(compiled.describe())"
    program += "; print(confluent_kafka.__file__, requests.__file__)"
    said = subprocess.run([sys.executable, "-c", program], cwd=worker, capture_output=True, text=True, check=True)
    modules, files = said.stdout.splitlines()
    assert modules == ", ".join(compiled.MODULES)
    assert all(Path(file).is_relative_to(worker) for file in files.split())
