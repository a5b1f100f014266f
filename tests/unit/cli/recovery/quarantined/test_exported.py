"""An export that fails leaves no file: half a file looks like a whole one."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from cli.recovery.quarantined.exported import write_log


def test_an_export_to_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_log(b"x" * 100, tmp_path / "log")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "log").exists()
    write_log(b"whole", tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"whole"
    with pytest.raises(FileExistsError):
        write_log(b"other", tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"whole"
