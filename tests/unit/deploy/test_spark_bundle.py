"""The modules that are packed for Spark's workers run there as they run here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.spark_bundle import pack
from runtime import compiled


@pytest.mark.skipif(not compiled.compiled_files(compiled.directory()), reason="no C compiler on this machine")
def test_the_packed_modules_run_compiled(tmp_path: Path) -> None:
    pack(tmp_path / "antipode.tar.gz")
    (tmp_path / "worker").mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "antipode.tar.gz", "-C", tmp_path / "worker"], check=True)
    said = subprocess.run(
        [sys.executable, "-c", "from runtime import compiled; print(compiled.describe())"],
        cwd=tmp_path / "worker",
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == ", ".join(compiled.MODULES)
