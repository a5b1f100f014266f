"""The records of logs that are kept before their copies are deleted: whole or not at all, after any
interruption.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from broker.log.partition_log import PartitionLog
from broker.replication.quarantine import Entry, Origin, Quarantine, QuarantineFull
from broker.replication.truncated_records import TruncatedRecords
from runtime.disk import RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log
from wire.batches.records import decode_records

ROOM = 1 << 20
TOPIC_ID = bytes(range(16))
ORIGIN = Origin(kind="reset", reason="histories diverge at offset 2", origin_site="a", link="a-b", link_epoch=3)


class Interrupted(BaseException):
    """The process is killed here."""


class Failing(RealDisk):
    """Raises at the call of that name, before the call changes anything."""

    def __init__(self, call: str, error: BaseException) -> None:
        super().__init__()

        def fail(*_: object, **__: object) -> None:
            raise error

        setattr(self, call, fail)


def filled(directory: Path, *values: bytes) -> PartitionLog:
    """The log of partition t-0 with a batch for each value."""
    log = open_log(directory / "t-0")
    for value in values:
        log.append_as_leader(batch([value], timestamp_ms=NOW_MS), leader_epoch=1, now_ms=NOW_MS)
    return log


async def keep(quarantine: Quarantine, log: PartitionLog, offset: int, topic_id: bytes = TOPIC_ID) -> Entry:
    return await quarantine.keep(log, offset, ORIGIN, topic_id=topic_id, now_ms=NOW_MS)


def values(quarantine: Quarantine, directory: Path, name: str) -> list[bytes | None]:
    content = quarantine.read([str(directory)], name, 0)
    assert quarantine.read([str(directory)], name, len(content)) == b""
    return [record.value for record in decode_records(content)]


async def test_an_entry_has_the_batches_and_says_what_they_are(tmp_path: Path) -> None:
    quarantine, log = Quarantine(RealDisk(), bytes_max=ROOM), filled(tmp_path, b"a", b"b", b"c", b"d")
    entry = await keep(quarantine, log, 2)
    assert quarantine.entries([str(tmp_path)]) == [entry]
    assert (entry.kind, entry.topic, entry.partition, entry.first_offset, entry.end_offset) == ("reset", "t", 0, 2, 4)
    assert (entry.reason, entry.origin_site, entry.link, entry.link_epoch) == (ORIGIN.reason, "a", "a-b", 3)
    assert (entry.at_ms, entry.topic_id) == (NOW_MS, "00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert values(quarantine, tmp_path, entry.name) == [b"c", b"d"]


async def test_asking_again_keeps_nothing_twice_and_more_records_are_another_entry(tmp_path: Path) -> None:
    quarantine, log = Quarantine(RealDisk(), bytes_max=ROOM), filled(tmp_path, b"a", b"b")
    first = await keep(quarantine, log, 1)
    assert await keep(Quarantine(RealDisk(), bytes_max=ROOM), log, 1) == first
    other_topic = await keep(quarantine, log, 1, topic_id=bytes(16))
    assert other_topic.name != first.name, "a topic that was made again has an entry of its own"
    filled(tmp_path / "again", b"x")
    assert len(quarantine.entries([str(tmp_path)])) == 2


@pytest.mark.parametrize("call", ["open", "pwritev", "fdatasync", "rename", "fsync_directory"])
@pytest.mark.parametrize("error", [Interrupted(), OSError(errno.EIO, "broken")])
async def test_an_interrupted_copy_counts_for_nothing_and_is_made_whole_the_next_time(
    tmp_path: Path, call: str, error: BaseException
) -> None:
    log = filled(tmp_path, b"a", b"b", b"c")
    with pytest.raises(type(error)):
        await keep(Quarantine(Failing(call, error), bytes_max=ROOM), log, 1)
    again = Quarantine(RealDisk(), bytes_max=ROOM)
    assert again.entries([str(tmp_path)]) == [], "an entry is there before it is whole"
    entry = await keep(again, log, 1)
    assert values(again, tmp_path, entry.name) == [b"b", b"c"]


class Slow(RealDisk):
    """Renames when the test says so: another thread is at work meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

        def rename(source: str, target: str) -> None:
            self.has_begun.set()
            self.may_go_on.wait(10)
            os.replace(source, target)

        self.rename = rename  # type: ignore[assignment]


async def test_a_copy_whose_caller_is_cancelled_while_its_account_is_written_is_made_again(tmp_path: Path) -> None:
    """A mirror's connection may close at any moment. An account without its batches would make the
    next request truncate records that are nowhere kept.
    """
    log, disk = filled(tmp_path, b"a", b"b", b"c"), Slow()
    caller = asyncio.ensure_future(keep(Quarantine(disk, bytes_max=ROOM), log, 1))
    await asyncio.to_thread(disk.has_begun.wait, 10)
    caller.cancel()
    await asyncio.sleep(0)
    disk.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    again = Quarantine(RealDisk(), bytes_max=ROOM)
    entry = await keep(again, log, 1)
    assert values(again, tmp_path, entry.name) == [b"b", b"c"]


@pytest.mark.parametrize("lost", ["batches", "end of the batches"])
async def test_an_account_without_all_of_its_batches_is_no_entry(tmp_path: Path, lost: str) -> None:
    quarantine, log = Quarantine(RealDisk(), bytes_max=ROOM), filled(tmp_path, b"a", b"b", b"c")
    entry = await keep(quarantine, log, 1)
    path = tmp_path / f"{entry.name}.log"
    if lost == "batches":
        path.unlink()
    else:
        os.truncate(path, entry.size_bytes - 1)
    assert quarantine.entries([str(tmp_path)]) == []
    assert await keep(quarantine, log, 1) == entry
    assert values(quarantine, tmp_path, entry.name) == [b"b", b"c"]


async def test_records_that_do_not_fit_are_refused_with_the_key_and_leave_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path, b"a", b"b")
    one = log.size_bytes // 2
    with pytest.raises(QuarantineFull) as refused:
        await keep(Quarantine(RealDisk(), bytes_max=2 * one - 1), log, 0)
    for said in ("t-0", f"antipode.truncated.records.max.bytes is {2 * one - 1}", "accepted: a larger value"):
        assert said in str(refused.value)
    assert os.listdir(tmp_path) == ["t-0"]
    kept = Quarantine(RealDisk(), bytes_max=2 * one)
    entry = await keep(kept, log, 0)
    with pytest.raises(QuarantineFull, match="room for 0 bytes"):
        await kept.keep(log, 1, ORIGIN, topic_id=TOPIC_ID, now_ms=NOW_MS)
    kept.delete([str(tmp_path)], entry.name)
    await keep(kept, log, 1)


async def test_truncated_records_are_listed_beside_and_count_for_the_bound(tmp_path: Path) -> None:
    log = filled(tmp_path, b"a", b"b", b"c")
    cuts = TruncatedRecords(RealDisk(), bytes_max=log.size_bytes)
    assert await cuts.keep(log, 1)
    (found,) = cuts.quarantine.entries([str(tmp_path)])
    assert (found.kind, found.topic, found.partition, found.first_offset, found.end_offset) == (
        "truncated",
        "t",
        0,
        1,
        3,
    )
    assert values(cuts.quarantine, tmp_path, found.name) == [b"b", b"c"]
    with pytest.raises(QuarantineFull):
        await keep(cuts.quarantine, log, 0)
    cuts.quarantine.delete([str(tmp_path)], found.name)
    assert cuts.quarantine.entries([str(tmp_path)]) == []


def test_a_name_that_is_not_there_is_named(tmp_path: Path) -> None:
    quarantine = Quarantine(RealDisk(), bytes_max=ROOM)
    for name in ("0.cut.t-9", "../../etc/passwd"):
        with pytest.raises(LookupError, match="has no entry named"):
            quarantine.read([str(tmp_path)], name, 0)
        with pytest.raises(LookupError, match="has no entry named"):
            quarantine.delete([str(tmp_path)], name)
