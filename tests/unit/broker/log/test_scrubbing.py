"""Passes over logs find bytes that changed on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.log import scrubbing
from broker.log.partition_log import PartitionLog
from broker.log.scrubbing import Scrubber
from tests.support.clock import ManualClock
from tests.support.disks.logs_on_disk import abandon_opened_logs, fill, open_log

FAST = 1 << 40
BODY_POSITION = 70


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    abandon_opened_logs()


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "PIECE_BYTES", 500)


def log_of(path: Path, *, batches: int = 30) -> PartitionLog:
    log = open_log(path, segment_bytes=1_000)
    fill(log, batches)
    log.advance_high_watermark(log.log_end_offset)
    return log


def flip_a_bit(log: PartitionLog, offset: int, position: int = BODY_POSITION) -> None:
    """Flips a bit at this position of the batch that begins at the offset."""
    with log.read(offset, max_bytes=1) as piece:
        (segment,) = [one for one in log.segments.all if one.base_offset == piece.segment_base_offset]
        place = piece.position + position
    with open(segment.path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


async def test_every_damaged_batch_is_named_and_gone_when_it_is_mended(tmp_path: Path) -> None:
    log, clock = log_of(tmp_path / "log"), ManualClock()
    scrubber = Scrubber([log], clock)
    await scrubber.scrub_due(interval_ms=0, bytes_per_second=lambda: FAST)
    assert log.corrupt_batches == ()
    assert scrubber.read_bytes == log.size_bytes
    for offset in (0, 40, 58):
        flip_a_bit(log, offset)
    await scrubber.scrub_due(interval_ms=0, bytes_per_second=lambda: FAST)
    assert [one[:2] for one in log.corrupt_batches] == [(0, 1), (40, 41), (58, 59)]
    assert scrubber.corrupt_count() == 3
    flip_a_bit(log, 40)
    await scrubber.scrub_due(interval_ms=0, bytes_per_second=lambda: FAST)
    assert [one[:2] for one in log.corrupt_batches] == [(0, 1), (58, 59)]


async def test_a_batch_that_is_replaced_during_a_pass_is_not_named_after_it(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log")
    for offset in (0, 4):
        flip_a_bit(log, offset)
    replaced: list[int] = []

    def rate() -> int:
        # called before the pass and after each piece: by then the damaged batches have been read
        if not replaced and scrubber.read_bytes >= 1_000:
            flip_a_bit(log, 0)
            log.note_replaced(0)
            replaced.append(0)
        return FAST

    scrubber = Scrubber([log], ManualClock())
    await scrubber.scrub_due(interval_ms=0, bytes_per_second=rate)
    assert replaced
    assert [one[:2] for one in log.corrupt_batches] == [(4, 5)]


async def test_bytes_that_are_no_batch_are_named_with_all_that_lies_behind(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log")
    flip_a_bit(log, 40, position=16)
    await Scrubber([log], ManualClock()).scrub_due(interval_ms=0, bytes_per_second=lambda: FAST)
    (found,) = log.corrupt_batches
    assert found.base_offset <= 40
    assert found.last_offset == 59
    assert "magic 3" in found.reason


async def test_a_log_is_read_again_after_the_interval_and_the_oldest_first(tmp_path: Path) -> None:
    logs, clock = [log_of(tmp_path / "one"), log_of(tmp_path / "two")], ManualClock()
    scrubber = Scrubber(logs, clock)
    clock.advance(1_000)
    assert scrubber.oldest_pass_ms() == 1_000
    await scrubber.scrub_due(interval_ms=1_000, bytes_per_second=lambda: FAST)
    assert scrubber.oldest_pass_ms() == 0
    read = scrubber.read_bytes
    clock.advance(999)
    await scrubber.scrub_due(interval_ms=1_000, bytes_per_second=lambda: FAST)
    assert scrubber.read_bytes == read
    clock.advance(1)
    await scrubber.scrub_due(interval_ms=1_000, bytes_per_second=lambda: FAST)
    assert scrubber.read_bytes == 2 * read


async def test_a_rate_of_0_reads_nothing_and_a_log_that_is_gone_harms_no_other(tmp_path: Path) -> None:
    gone, log = log_of(tmp_path / "gone"), log_of(tmp_path / "log")
    scrubber = Scrubber([gone, log], ManualClock())
    await scrubber.scrub_due(interval_ms=0, bytes_per_second=lambda: 0)
    assert scrubber.read_bytes == 0
    gone.abandon()
    flip_a_bit(log, 0)
    await scrubber.scrub_due(interval_ms=0, bytes_per_second=lambda: FAST)
    assert len(log.corrupt_batches) == 1
