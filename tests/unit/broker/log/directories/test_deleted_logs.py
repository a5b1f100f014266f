"""Logs that leave their directory: deleted ones are removed after a delay, and ones that are set
aside stay.
"""

import asyncio
import os

from broker.log.partition_log import PartitionLog
from tests.support.disks.logs_on_disk import NOW_MS, fill
from tests.unit.broker.log.directories.test_log_directory import ID, OTHER_ID, create, store


async def test_a_deleted_log_is_gone_at_once_and_its_files_after_the_delay(tmp_path):
    logs = store(tmp_path)
    log = create(logs, file_delete_delay_ms=0)
    fill(log, 3)
    piece = log.read(0, max_bytes=100)
    logs.delete(log)
    assert logs.get("t", 0) is None
    create(logs)  # the name is free at once
    (renamed,) = [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    assert renamed.startswith("t-0.")
    assert piece.read_bytes()
    piece.release()
    fill(create(logs), 1)
    logs.abandon()
    again = store(tmp_path)
    assert [name for name in os.listdir(tmp_path) if name.endswith("-delete")] == []
    assert again.get("t", 0).log_end_offset == 2
    again.close()


async def test_old_segments_and_deleted_directories_are_removed_after_the_delay_without_another_pass(tmp_path):
    now = [NOW_MS]
    logs = store(tmp_path, now_ms=lambda: now[0])
    log = create(logs, segment_bytes=500, retention_bytes=1000, file_delete_delay_ms=10)
    gone = create(logs, "gone", file_delete_delay_ms=10)
    fill(log, 50)
    log.advance_high_watermark(log.log_end_offset)
    logs.delete(gone)
    fill(create(logs, "young", retention_bytes=10**6), 50)
    expired: list[PartitionLog] = []
    (sentence,) = await logs.maintain(10**9, on_expired=expired.append)
    assert expired == [log]
    assert "t-0" in sentence
    assert "retention.bytes" in sentence
    assert any(name.endswith(".deleted") for name in os.listdir(tmp_path / "t-0"))
    await logs.remove_due()
    assert any(name.endswith(".deleted") for name in os.listdir(tmp_path / "t-0"))
    assert any(name.startswith("gone-0.") for name in os.listdir(tmp_path))
    now[0] += 10
    await logs.remove_due()
    assert not any(name.endswith(".deleted") for name in os.listdir(tmp_path / "t-0"))
    assert not any(name.startswith("gone") for name in os.listdir(tmp_path))
    logs.close()


async def test_a_pass_leaves_a_topic_alone_that_was_made_again_meanwhile(tmp_path):
    logs = store(tmp_path, now_ms=lambda: NOW_MS + 10**6)
    fill(create(logs), 3)
    fill(create(logs, "again", segment_ms=1, retention_ms=1), 50)

    def as_in_the_pass(topic, partition):
        if topic == "t":
            logs.delete(logs.get("again", 0))
            fill(create(logs, "again", topic_id=OTHER_ID), 1)

    await logs.maintain(10**9, hold_of=as_in_the_pass)
    logs.close()
    found = store(tmp_path).get("again", 0)
    assert (found.log_start_offset, found.log_end_offset, len(found.segments)) == (0, 2, 1)


def test_a_log_of_an_older_topic_of_the_same_name_is_replaced(tmp_path):
    logs = store(tmp_path)
    fill(create(logs), 3)
    assert create(logs, topic_id=OTHER_ID).log_end_offset == 0
    (stray,) = logs.strays({"t": ID})
    assert stray.topic_id == OTHER_ID
    logs.close()


def test_a_log_that_is_set_aside_is_never_removed(tmp_path):
    now = [NOW_MS]
    logs = store(tmp_path, now_ms=lambda: now[0])
    log = create(logs, file_delete_delay_ms=0)
    fill(log, 3)
    log.flush_now()
    written = (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
    assert logs.stray_count == 0
    logs.set_aside(log)
    assert logs.stray_count == 1
    assert create(logs, topic_id=OTHER_ID).log_end_offset == 0
    now[0] += 10**9
    asyncio.run(logs.remove_due())
    logs.close()
    again = store(tmp_path)
    assert [(found.topic, found.topic_id) for found in again] == [("t", OTHER_ID)]
    (aside,) = tmp_path.glob("t-0.*-stray")
    assert (aside / f"{0:020d}.log").read_bytes() == written
    assert again.stray_count == 1
    again.close()


def test_a_new_log_does_not_inherit_checkpoints_of_a_deleted_one(tmp_path):
    logs = store(tmp_path)
    log = create(logs)
    fill(log, 10)
    log.flush_now()
    log.advance_high_watermark(10)
    log.advance_log_start_offset(9)
    asyncio.run(logs.checkpoint())
    logs.delete(log)
    fill(create(logs), 2)
    logs.abandon()
    again = store(tmp_path)
    assert (again.get("t", 0).log_start_offset, again.get("t", 0).recovery_point) == (0, 0)
    again.close()
