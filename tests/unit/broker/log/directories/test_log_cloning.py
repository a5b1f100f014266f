"""Clones of a log to which its broker continues to write: neither affects the other."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from broker.log.directories import log_cloning
from broker.log.directories.log_cloning import ClonedLog, clone_log, cloning_bytes
from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from tests.support.disks.logs_on_disk import fill, open_log, read_all

SEGMENT_BYTES = 2_000


def opened(directory: Path, clone: ClonedLog) -> PartitionLog:
    return open_log(directory, is_clean=False, recovery_point=clone.recovery_offset, segment_bytes=SEGMENT_BYTES)


def contents(directory: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in directory.iterdir() if one.is_file()}


def test_the_clone_ends_where_it_was_asked_to_and_shares_closed_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=SEGMENT_BYTES)
    fill(log, 200)
    end = log.log_end_offset
    clone = clone_log(str(tmp_path / "t-0"), str(tmp_path / "c" / "t-0"), end_offset=end)
    assert len(clone.shared) > 3
    assert clone.shared_bytes > 3 * clone.copied_bytes / 2
    fill(log, 100, first_time_ms=1000)
    copy = opened(tmp_path / "c" / "t-0", clone)
    assert copy.log_end_offset == end
    assert read_all(copy) == read_all(log)[: len(read_all(copy))]


@pytest.mark.parametrize("end", [0, 1, 2, 37, 38, 150, 399])
def test_any_end_is_at_a_batch_and_never_above(tmp_path: Path, end: int) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=SEGMENT_BYTES)
    fill(log, 200)
    clone = clone_log(str(tmp_path / "t-0"), str(tmp_path / "c"), end_offset=end)
    copy = opened(tmp_path / "c", clone)
    assert copy.log_end_offset == end + end % 2  # batches have two records


def test_writing_to_the_clone_leaves_every_file_of_the_log_as_it_was(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=SEGMENT_BYTES)
    fill(log, 200)
    log.close()
    before = contents(tmp_path / "t-0")
    clone = clone_log(str(tmp_path / "t-0"), str(tmp_path / "c"), end_offset=400)
    copy = opened(tmp_path / "c", clone)
    fill(copy, 300, leader_epoch=7, first_time_ms=5000)
    copy.close()
    assert contents(tmp_path / "t-0") == before
    assert [one.change() for one in clone.shared] == [""] * len(clone.shared)


def test_a_write_to_a_shared_file_is_found(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=SEGMENT_BYTES)
    fill(log, 200)
    clone = clone_log(str(tmp_path / "t-0"), str(tmp_path / "c"), end_offset=400)
    with open(clone.shared[1].path, "ab") as file:
        file.write(b"x")
    assert [bool(one.change()) for one in clone.shared[:3]] == [False, True, False]
    os.unlink(clone.shared[0].path)  # as retention does
    assert clone.shared[0].change() == ""


def test_a_log_that_changes_while_it_is_cloned_is_cloned_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=SEGMENT_BYTES)
    fill(log, 200)
    bases = log_cloning._base_offsets(str(tmp_path / "t-0"))
    share, removed = log_cloning._share, []

    def share_and_retain(source: str, target: str, base: int) -> log_cloning.SharedSegment:
        found = share(source, target, base)
        if not removed:
            removed.append(bases[1])
            os.unlink(f"{source}/{bases[1]:020d}.log")
        return found

    monkeypatch.setattr(log_cloning, "_share", share_and_retain)
    clone = clone_log(str(tmp_path / "t-0"), str(tmp_path / "c"), end_offset=400)
    assert removed
    assert bases[1] not in log_cloning._base_offsets(str(tmp_path / "c"))
    assert clone.recovery_offset == bases[-1]


def test_a_log_that_never_holds_still_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(open_log(tmp_path / "t-0"), 1)

    def changed(*_: object) -> ClonedLog:
        raise log_cloning._LogChanged

    monkeypatch.setattr(log_cloning, "_clone", changed)
    with pytest.raises(StorageError, match="changed 5 times"):
        clone_log(str(tmp_path / "t-0"), str(tmp_path / "c"), end_offset=None)
    assert not (tmp_path / "c").exists()


def test_the_cost_of_a_clone_is_known_before(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=SEGMENT_BYTES)
    fill(log, 200)
    shared, copied = cloning_bytes(str(tmp_path / "t-0"), end_offset=400)
    clone = clone_log(str(tmp_path / "t-0"), str(tmp_path / "c"), end_offset=400)
    assert (shared, copied <= SEGMENT_BYTES) == (clone.shared_bytes, True)
