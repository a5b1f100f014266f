"""For any bytes that a crash or a bad disk leaves, recovery yields the longest sound prefix,
reports the truncated bytes, and never crashes.
"""

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from broker.log.directories.checkpoints import LEADER_EPOCHS
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.log_batches import TRANSACTIONAL, batch, marker
from tests.support.disks.logs_on_disk import NOW_MS, abandon_opened_logs, open_log, read_all
from tests.support.examples import examples
from wire.batches.record_batch import BatchHeader, read_header

SEGMENT_BYTES = 700
BATCHES = 24
MEMORY = Path("/dev/shm")


@contextmanager
def scratch() -> Iterator[Path]:
    # Hundreds of short logs: half as long in memory, and what a disk loses, `FaultyDisk` decides.
    folder = Path(tempfile.mkdtemp(prefix="log-recovery-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        abandon_opened_logs()
        shutil.rmtree(folder, ignore_errors=True)


def build(folder: Path) -> None:
    """A log of several segments with producers, transactions and epochs, left as by kill -9."""
    log = open_log(folder, segment_bytes=SEGMENT_BYTES)
    for number in range(BATCHES):
        records = batch(
            [b"%d" % number] * (number % 3 + 1),
            producer_id=number % 2,
            sequence=_sequences(number),
            attributes=TRANSACTIONAL,
            timestamp_ms=NOW_MS + number,
        )
        log.append_as_leader(records, leader_epoch=number // 10, now_ms=NOW_MS)
        if number % 8 == 7:
            end = marker(producer_id=number % 2, is_commit=number % 16 == 7)
            log.append_as_leader(end, leader_epoch=number // 10, now_ms=NOW_MS, is_from_client=False)
    for segment in log.segments.all:
        segment.write_indexes()
    log.abandon()


def _sequences(number: int) -> int:
    return sum(earlier % 3 + 1 for earlier in range(number) if earlier % 2 == number % 2)


def log_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def sound_prefix(folder: Path) -> list[tuple[int, int]]:
    """The naive twin of recovery: batches (offset, size) up to the first that is not sound, by a
    walk over whole files.
    """
    found: list[tuple[int, int]] = []
    expected, epoch = 0, -1
    for index, path in enumerate(log_files(folder)):
        base_offset = int(path.name[:20])
        if index and base_offset != expected:
            return found
        content = path.read_bytes()
        at, expected = 0, base_offset
        while at < len(content):
            header = _sound_header(content, at, expected, epoch)
            if header is None:
                return found
            found.append((header.base_offset, header.size_bytes))
            epoch = max(epoch, header.partition_leader_epoch)
            at, expected = at + header.size_bytes, header.next_offset
    return found


def _sound_header(content: bytes, at: int, expected: int, epoch: int) -> BatchHeader | None:
    from crc32c import crc32c

    if len(content) - at < 61:
        return None
    header = read_header(content, at)
    is_framed = header.magic == 2 and 49 <= header.batch_length <= len(content) - at - 12
    if not is_framed or crc32c(content[at + 21 : at + header.size_bytes]) != header.crc:
        return None
    is_sane = header.last_offset_delta >= 0 and 0 <= header.record_count <= header.last_offset_delta + 1
    if 0 <= header.partition_leader_epoch < epoch:
        return None
    return header if is_sane and header.base_offset >= expected and header.last_offset < expected + 2**31 else None


def zeros_behind(folder: Path, sound_bytes: int) -> int:
    """Bytes of zeros behind the sound prefix where its segment holds nothing else there, as one
    that had its length in advance.
    """
    for path in log_files(folder):
        content = path.read_bytes()
        if sound_bytes < len(content):
            behind = content[sound_bytes:]
            return 0 if behind.strip(b"\0") else len(behind)
        sound_bytes -= len(content)
    return 0


def check(folder: Path, recovery_point: int = 0) -> None:
    expected = sound_prefix(folder)
    sound_bytes = sum(size for _, size in expected)
    behind_bytes = sum(path.stat().st_size for path in log_files(folder)) - sound_bytes
    lost_bytes = behind_bytes - zeros_behind(folder, sound_bytes)
    log = open_log(folder, segment_bytes=SEGMENT_BYTES, recovery_point=recovery_point)
    assert [(h.base_offset, h.size_bytes) for h in read_all(log)] == expected
    assert sum(dropped.dropped_bytes for dropped in log.recovery.dropped) == lost_bytes
    assert all(dropped.reason and os.path.basename(dropped.path) for dropped in log.recovery.dropped)
    for offset, _ in expected:
        with log.read(offset, max_bytes=1) as piece:
            assert piece.base_offset == offset
    end = log.log_end_offset
    log.append_as_leader(batch([b"more"], timestamp_ms=NOW_MS), leader_epoch=max(99, log.latest_epoch), now_ms=NOW_MS)
    log.close()
    reopened = open_log(folder, segment_bytes=SEGMENT_BYTES, is_clean=True)
    assert [h.base_offset for h in read_all(reopened)] == [*(offset for offset, _ in expected), end]
    reopened.abandon()


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    with scratch() as folder:
        build(folder / "log")
        yield folder / "log"


def copied(template: Path, folder: Path) -> Path:
    return Path(shutil.copytree(template, folder / "t-0"))


damage = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@damage
@given(which=st.integers(0, 30), keep=st.floats(0, 1))
def test_a_truncated_segment_is_cut_at_its_last_whole_batch(template, which, keep):
    with scratch() as folder:
        log = copied(template, folder)
        path = log_files(log)[which % len(log_files(log))]
        os.truncate(path, int(path.stat().st_size * keep))
        check(log)


@damage
@given(which=st.integers(0, 30), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_ends_the_log_before_its_batch_or_changes_what_no_checksum_covers(template, which, where, bit):
    with scratch() as folder:
        log = copied(template, folder)
        path = log_files(log)[which % len(log_files(log))]
        content = bytearray(path.read_bytes())
        content[int(len(content) * where)] ^= 1 << bit
        path.write_bytes(content)
        check(log)


@damage
@given(
    which=st.integers(0, 30),
    where=st.floats(0, 1),
    noise=st.binary(min_size=1, max_size=300),
    is_inserted=st.booleans(),
)
def test_noise_over_or_between_batches_ends_the_log_there(template, which, where, noise, is_inserted):
    with scratch() as folder:
        log = copied(template, folder)
        path = log_files(log)[which % len(log_files(log))]
        content = path.read_bytes()
        at = int(len(content) * where)
        path.write_bytes(content[:at] + noise + content[at if is_inserted else at + len(noise) :])
        check(log)


@damage
@given(noise=st.binary(max_size=2000), zeros=st.integers(0, 5000))
def test_noise_and_zeros_behind_the_last_batch_are_cut(template, noise, zeros):
    with scratch() as folder:
        log = copied(template, folder)
        with log_files(log)[-1].open("ab") as file:
            file.write(noise + bytes(zeros))
        check(log)


@damage
@given(
    suffix=st.sampled_from([".index", ".timeindex", ".snapshot", ".txnindex", LEADER_EPOCHS]),
    which=st.integers(0, 30),
    content=st.one_of(st.none(), st.binary(max_size=200)),
    is_clean=st.booleans(),
    recovery_point=st.integers(0, 60),
)
def test_damaged_small_files_cost_nothing(template, suffix, which, content, is_clean, recovery_point):
    """Indexes, snapshots, epochs: missing or full of noise, also below the recovery point and after
    a clean stop.
    """
    with scratch() as folder:
        log = copied(template, folder)
        whole = sound_prefix(log)
        if is_clean:
            open_log(log, segment_bytes=SEGMENT_BYTES).close()
        paths = sorted(log.glob("*" + suffix))
        if paths:
            path = paths[which % len(paths)]
            path.unlink() if content is None else path.write_bytes(content)
        opened = open_log(log, segment_bytes=SEGMENT_BYTES, is_clean=is_clean, recovery_point=recovery_point)
        assert [(h.base_offset, h.size_bytes) for h in read_all(opened, max_bytes=150)] == whole
        for offset, _ in whole:
            with opened.read(offset, max_bytes=1) as piece:
                assert piece.base_offset == offset
        assert opened.latest_epoch == 2
        opened.abandon()


@damage
@given(recovery_point=st.integers(0, 70))
def test_state_after_recovery_does_not_depend_on_the_recovery_point(template, recovery_point):
    with scratch() as folder:
        full = open_log(copied(template, folder), segment_bytes=SEGMENT_BYTES)
        partial = open_log(copied(template, folder / "b"), segment_bytes=SEGMENT_BYTES, recovery_point=recovery_point)
        for log in (full, partial):
            log.advance_high_watermark(log.log_end_offset)
        assert partial._producers.snapshot() == full._producers.snapshot()
        assert partial._epochs.entries == full._epochs.entries
        assert partial.last_stable_offset == full.last_stable_offset
        assert partial.aborted_transactions(0, 100) == full.aborted_transactions(0, 100)
        assert partial.max_timestamp_ms == full.max_timestamp_ms
        assert partial.recovery.scanned_bytes <= full.recovery.scanned_bytes


@given(lengths=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5), seed=st.integers())
def test_hostile_lengths_are_not_followed(lengths, seed):
    with scratch() as folder:
        chance = random.Random(seed)
        (folder / "t-0").mkdir()
        content = b"".join(
            chance.randbytes(8)
            + length.to_bytes(4, "big", signed=True)
            + chance.randbytes(4)
            + b"\2"
            + chance.randbytes(100)
            for length in lengths
        )
        (folder / "t-0" / f"{0:020d}.log").write_bytes(content)
        check(folder / "t-0")


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
@example(seed=6853064)  # a tail that recovery had cut came back below the recovery point
def test_after_a_power_cut_everything_flushed_is_there_and_the_rest_is_a_prefix(seed):
    """Random appends, rolls, flushes, truncations and retention on a disk that loses unflushed
    data, then a power cut, three times over.
    """
    chance = random.Random(seed)
    with scratch() as folder:
        disk = FaultyDisk(str(folder))
        directory = folder / "t-0"
        written: list[bytes] = []
        saved = {"recovery_point": 0, "start": 0, "epoch": 0}
        for _ in range(3):
            log = open_log(
                directory,
                disk,
                segment_bytes=400,
                recovery_point=saved["recovery_point"],
                log_start_offset=saved["start"],
            )
            kept = [values_at(log, offset) for offset in range(log.log_start_offset, log.log_end_offset)]
            assert log.log_end_offset >= saved["recovery_point"]
            assert kept == written[log.log_start_offset : log.log_end_offset]
            del written[log.log_end_offset :]
            save_recovery_points_of(log, saved)
            for step in range(chance.randint(0, 40)):
                act(log, chance, written, saved, step)
            disk.crash(chance)
        disk.clear()


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
@example(seed=31772061)  # the next segment began at the cut, and the tail came back below the recovery point
def test_a_cut_that_a_power_cut_undoes_leaves_a_log_that_opens_with_every_offset_once(seed):
    """As above, but the truncation is not flushed at once."""
    chance = random.Random(seed)
    with scratch() as folder:
        disk = FaultyDisk(str(folder))
        saved = {"recovery_point": 0, "epoch": 0}
        for _ in range(3):
            log = open_log(folder / "t-0", disk, segment_bytes=400, recovery_point=saved["recovery_point"])
            offsets = [header.base_offset for header in read_all(log, max_bytes=150)]
            assert offsets == list(range(log.log_start_offset, log.log_end_offset))
            save_recovery_points_of(log, saved)
            for _ in range(chance.randint(0, 40)):
                match chance.choices(["append", "flush", "flush rolled", "truncate"], [20, 3, 3, 2])[0]:
                    case "append":
                        saved["epoch"] += 1
                        records = batch([chance.randbytes(chance.choice([3, 60, 150]))], timestamp_ms=NOW_MS)
                        log.append_as_leader(records, leader_epoch=saved["epoch"], now_ms=NOW_MS)
                    case "flush":
                        log.flush_now()
                        saved["recovery_point"] = log.recovery_point
                    case "flush rolled":
                        asyncio.run(log.flush(is_rolled_enough=True))
                        saved["recovery_point"] = log.recovery_point
                    case "truncate":
                        offset = max(log.log_end_offset - chance.randint(0, 9), log.log_start_offset)
                        is_last = chance.random() < 0.3
                        asyncio.run(truncate_in_threads(log, offset, is_last=is_last))
                        if is_last:
                            break
            disk.crash(chance)
        disk.clear()


def save_recovery_points_of(log, saved) -> None:
    def save() -> None:
        saved.update(recovery_point=log.recovery_point_to_save)

    async def save_in_thread() -> None:
        save()

    log.save_recovery_point_by(save, save_in_thread)


async def truncate_in_threads(log, offset, *, is_last) -> None:
    """With `is_last` the process dies before the files that were dropped are renamed."""
    async with log.truncation(offset):
        log.truncate_to(offset)
        if is_last:
            log.abandon()


def act(log, chance, written, saved, step) -> None:
    match chance.choices(["append", "flush", "flush rolled", "truncate", "retain"], [20, 3, 3, 1, 1])[0]:
        case "append":
            value = chance.randbytes(chance.choice([3, 60, 150]))
            written.append(value)
            saved["epoch"] += 1
            log.append_as_leader(batch([value], timestamp_ms=NOW_MS), leader_epoch=saved["epoch"], now_ms=NOW_MS)
        case "flush":
            log.flush_now()
            saved["recovery_point"] = log.recovery_point
        case "flush rolled":
            asyncio.run(log.flush(is_rolled_enough=True))
            assert not log.has_unflushed_segments
            saved["recovery_point"] = log.recovery_point
        case "truncate":
            log.truncate_to(max(log.log_end_offset - chance.randint(0, 5), log.log_start_offset))
            del written[log.log_end_offset :]
            log.flush_now()
            saved["recovery_point"] = log.recovery_point
        case "retain":
            log.advance_high_watermark(log.recovery_point)
            log.advance_log_start_offset(chance.randint(log.log_start_offset, log.high_watermark))
            log.expire_segments(NOW_MS)
            log.removals.put_aside()
            saved["start"] = log.log_start_offset


def values_at(log, offset: int) -> bytes:
    from wire.batches.records import decode_records

    with log.read(offset, max_bytes=1) as piece:
        (record,) = decode_records(piece.read_bytes())
    assert record.offset == offset
    return record.value
