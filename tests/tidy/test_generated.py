"""The gRPC stubs are those that the .proto files give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.tidy import sources

FOLDER = "wire/control"


def test_the_grpc_stubs_are_up_to_date(tmp_path: Path) -> None:
    protos = [name for name in sources.files() if name.startswith(f"{FOLDER}/") and name.endswith(".proto")]
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, *protos]
    subprocess.run(command, cwd=sources.ROOT, check=True)
    fresh = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / FOLDER).iterdir()}
    kept = {
        name.rpartition("/")[2]: sources.text(name)
        for name in sources.files()
        if name.startswith(f"{FOLDER}/") and name.endswith(sources.GENERATED_SUFFIXES)
    }
    different = sorted(name for name in fresh.keys() | kept.keys() if fresh.get(name) != kept.get(name))
    sources.assert_none(different, "run `make proto`")
