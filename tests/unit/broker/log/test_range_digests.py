"""The digests of a log's leaves: computed in pieces, kept in a file, and dropped where the log
changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.log import digesting
from broker.log.digesting import digests_between, headers_between, seal_some
from broker.log.partition_log import PartitionLog
from broker.log.range_digests import RANGE_DIGESTS
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, abandon_opened_logs, config, open_log
from wire.batches.leaf_digests import DIGEST_BYTES, LEAF_OFFSETS, part_digest
from wire.batches.record_batch import HEADER_SIZE

RECORDS = 500
"""A batch's records: no divisor of a leaf, so that batches reach over its end."""


@pytest.fixture(autouse=True)
def _close() -> Any:
    yield
    abandon_opened_logs()


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digesting, "PIECE_BYTES", 20_000)


def write(log: PartitionLog, batches: int, *, value: bytes = b"") -> None:
    for _ in range(batches):
        number = log.log_end_offset // RECORDS
        values = [value or b"%d" % number] * RECORDS
        records = batch(values, base_offset=log.log_end_offset, leader_epoch=1, timestamp_ms=NOW_MS + number)
        log.append_replicated(records, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)


async def leaves(log: PartitionLog) -> bytes:
    """The digests of all leaves that have ended."""
    while await seal_some(log):
        pass
    return log.digests.leaves()


def overwrite(path: str, position: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def leaf(found: bytes, number: int) -> bytes:
    return found[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


async def test_segments_make_no_difference(tmp_path: Path) -> None:
    one, many = open_log(tmp_path / "one"), open_log(tmp_path / "many", segment_bytes=9_000)
    for log in (one, many):
        write(log, 50)
    assert len(many.segments) > 10 > len(one.segments)
    found = await leaves(one)
    assert found == await leaves(many)
    assert one.digests.end_leaf == len(found) // DIGEST_BYTES == 25_000 // LEAF_OFFSETS


async def test_leaves_follow_the_high_watermark_and_do_not_change(tmp_path: Path) -> None:
    log, whole = open_log(tmp_path / "log"), open_log(tmp_path / "whole")
    write(whole, 60)
    write(log, 20)
    log.advance_high_watermark(2 * LEAF_OFFSETS - 1)
    assert len(await leaves(log)) == DIGEST_BYTES
    for _ in range(4):
        write(log, 10)
        await leaves(log)
    assert log.digests.leaves() == await leaves(whole)


async def test_a_truncation_gives_up_what_it_reaches(tmp_path: Path) -> None:
    log, other = open_log(tmp_path / "log"), open_log(tmp_path / "other")
    write(log, 50)
    write(other, 20)
    before = await leaves(log)
    log.truncate_to(10_000)
    assert log.digests.end_leaf == 10_000 // LEAF_OFFSETS
    assert len(log.digests.read().digests) == 2 * DIGEST_BYTES  # type: ignore[union-attr]
    for one in (log, other):
        write(one, 30, value=b"another history")
    after = await leaves(log)
    assert after == await leaves(other)
    assert [leaf(before, n) == leaf(after, n) for n in range(6)] == [True, True, False, False, False, False]


async def test_a_truncation_while_a_piece_is_read_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = open_log(tmp_path / "log"), open_log(tmp_path / "other")
    write(log, 30)
    in_thread = digesting.in_thread

    async def and_truncate(work: Any) -> Any:
        found = await in_thread(work)
        if log.log_end_offset == 15_000 and log.digests.is_loaded:
            log.truncate_to(1_000)
            write(log, 30, value=b"another history")
        return found

    monkeypatch.setattr(digesting, "in_thread", and_truncate)
    write(other, 2)
    write(other, 30, value=b"another history")
    assert await leaves(log) == await leaves(other)


async def test_a_deleted_head_takes_its_leaves_and_no_others(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 50)
    before = await leaves(log)
    log.advance_log_start_offset(LEAF_OFFSETS + 1)
    write(log, 10)
    after = await leaves(log)
    assert log.digests.first_leaf == 2
    assert after.startswith(before[2 * DIGEST_BYTES :])


async def test_a_log_that_is_restarted_elsewhere_begins_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 50)
    await leaves(log)
    log.truncate_fully_and_start_at(3 * LEAF_OFFSETS + 1)
    write(log, 20)
    found = await leaves(log)
    assert (log.digests.first_leaf, log.digests.end_leaf) == (4, log.high_watermark // LEAF_OFFSETS)
    assert len(found) == (log.digests.end_leaf - 4) * DIGEST_BYTES


async def test_a_clean_start_takes_the_leaves_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "log")
    write(log, 50)
    before = await leaves(log)
    log.close()
    again = open_log(tmp_path / "log", is_clean=True)
    again.advance_high_watermark(again.log_end_offset)
    read: list[object] = []
    monkeypatch.setattr(digesting, "_digest", lambda piece, run: read.append(piece))
    assert await leaves(again) == before
    assert not read


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped", "header"])
async def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: str) -> None:
    log = open_log(tmp_path / "log")
    write(log, 50)
    before = await leaves(log)
    log.close()
    file = tmp_path / "log" / RANGE_DIGESTS
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    else:
        content[{"torn": -1, "flipped": 70, "header": 9}[damage]] ^= 1
        file.write_bytes(content[:-3] if damage == "torn" else content)
    again = open_log(tmp_path / "log", is_clean=True)
    again.advance_high_watermark(again.log_end_offset)
    assert await leaves(again) == before
    write(again, 10)
    await leaves(again)
    again.close()
    stored = again.digests.read()
    assert stored is not None
    assert stored.is_whole
    assert stored.digests == again.digests.leaves()


async def test_after_a_crash_only_leaves_below_the_recovery_point_count(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 50)
    await leaves(log)
    abandon_opened_logs()
    again = open_log(tmp_path / "log", recovery_point=9_000)
    assert len(again.digests.read().digests) == 2 * DIGEST_BYTES  # type: ignore[union-attr]
    again.truncate_to(9_000)
    write(again, 40, value=b"another history")
    other = open_log(tmp_path / "other")
    write(other, 18)
    write(other, 40, value=b"another history")
    assert await leaves(again) == await leaves(other)


async def test_the_file_follows_a_head_that_is_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 100)
    await leaves(log)
    log.advance_log_start_offset(9 * LEAF_OFFSETS)
    write(log, 10)
    await leaves(log)
    stored = log.digests.read()
    assert stored is not None
    assert (stored.first, stored.digests) == (9, log.digests.leaves())


async def test_a_compacted_log_has_no_leaves(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 50)
    assert await leaves(log)
    log.update_config(config(is_compacted=True))
    assert await leaves(log) == b""
    assert log.digests.read().digests == b""  # type: ignore[union-attr]
    log.update_config(config())
    assert await leaves(log)


async def test_bytes_that_are_no_batch_end_the_leaves_and_are_named(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 50)
    with log.read(15_000, max_bytes=1) as piece:
        overwrite(log.segments.first.path, piece.position + 16, b"\x07")
    await leaves(log)
    assert log.digests.end_leaf <= 3
    assert "magic 7" in log.digests.failure


async def test_a_range_is_the_same_in_logs_that_start_and_end_elsewhere(tmp_path: Path) -> None:
    log, shorter = open_log(tmp_path / "log"), open_log(tmp_path / "shorter", segment_bytes=9_000)
    write(log, 60)
    write(shorter, 50)
    shorter.advance_log_start_offset(700)
    for one in (log, shorter):
        await leaves(one)
    for first, end in ((700, 25_000), (700, 900), (4_096, 8_192), (5_000, 5_500), (4_000, 4_100), (700, 700)):
        for span in (0, 1, 2):
            found = await digests_between(log, first, end, span=span)
            assert found is not None
            assert found == await digests_between(shorter, first, end, span=span)
        headers = await headers_between(log, first, end)
        begun = len([number for number in range(60) if first <= number * RECORDS < end])
        assert len(headers) == begun * HEADER_SIZE
        assert headers == await headers_between(shorter, first, end)


async def digest_of_part(log: PartitionLog, end_offset: int) -> tuple[bytes | None, bytes]:
    """The digest of the first part of leaf 0, and that of its headers read anew."""
    return await digests_between(log, 0, end_offset, span=1), part_digest(await headers_between(log, 0, end_offset))


@pytest.mark.parametrize("before", [0, 3_000, 3_900])
async def test_a_part_of_a_leaf_has_the_digest_of_its_headers_whatever_was_asked_before(
    tmp_path: Path, before: int
) -> None:
    log = open_log(tmp_path / "log")
    write(log, 8)
    for end in (3_900, 4_000, 300, 256, 255, 1):
        await digests_between(log, 0, before, span=1)
        found, expected = await digest_of_part(log, end)
        assert found == expected, end


async def test_a_truncation_gives_up_the_part_that_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 8)
    before, _ = await digest_of_part(log, 4_000)
    log.truncate_to(2_000)
    write(log, 4, value=b"another history")
    found, expected = await digest_of_part(log, 4_000)
    assert found == expected != before


async def test_a_longer_range_reads_only_the_end_of_its_last_leaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "log")
    write(log, 8)
    read: list[tuple[int, int]] = []

    async def noting(log: PartitionLog, first_offset: int, end_offset: int) -> bytes:
        read.append((first_offset, end_offset))
        return await headers_between(log, first_offset, end_offset)

    monkeypatch.setattr(digesting, "headers_between", noting)
    await digests_between(log, 0, 3_900, span=0)
    read.clear()
    await digests_between(log, 0, 4_000, span=0)
    assert sum(end - first for first, end in read) <= digesting.PART_OFFSETS + 100


async def test_a_range_whose_leaves_are_not_worked_out_has_no_digest_yet(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 30)
    assert await digests_between(log, 0, 10_000, span=0) is None
    await leaves(log)
    assert await digests_between(log, 0, 10_000, span=0) is not None
