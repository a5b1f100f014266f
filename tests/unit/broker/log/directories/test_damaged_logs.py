"""A log that is too damaged to be opened takes its own partition offline, and no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.log.errors import CorruptLog
from runtime.disk import RealDisk
from tests.support.disks.log_stores import create_log, open_store
from tests.support.disks.logs_on_disk import fill, read_all

MAGIC_AT = 16


def test_a_damaged_header_without_an_index_keeps_no_other_log_from_opening(tmp_path: Path) -> None:
    logs = open_store(tmp_path, RealDisk())
    for partition in range(2):
        fill(create_log(logs, partition=partition, segment_bytes=400), 20)
    logs.close()
    first = min((tmp_path / "t-0").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[MAGIC_AT] = 9
    first.write_bytes(content)
    first.with_suffix(".index").unlink()

    logs = open_store(tmp_path, RealDisk())
    assert logs.is_offline("t", 0)
    assert logs.offline_count == 1
    whole = logs.get("t", 1)
    assert whole is not None
    assert len(read_all(whole)) == 20
    assert any("t-0 is offline, because its log is damaged" in note for note in logs.notes)
    # nothing takes its place, also under another topic id
    with pytest.raises(CorruptLog):
        create_log(logs)
    assert first.read_bytes() == content
    logs.close()
