"""Logs that move between log directories: while they grow, and when a move ends at any step."""

import contextlib
import os
import random
import shutil
from pathlib import Path

from broker.log.directories.log_store import LogStore
from broker.settings.core.topic_configs import LogConfig
from tests.support.disks.compacted_logs import compacted, put, settle
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, fill, read_all
from tests.support.disks.two_directories import ID, create, filled, opened, other_directory
from wire.protocol.ids import TopicPartition


async def test_a_log_moves_while_it_grows(tmp_path):
    logs = opened(tmp_path)
    log = filled(logs, count=100)
    log.advance_log_start_offset(7)
    target = other_directory(logs, log)
    moved = []
    assert logs.wish_home("t", 0, target)
    move = logs.moves[TopicPartition("t", 0)]
    await logs._mover.copy(move)
    assert 0 < move.lag < 193
    fill(log, 50, leader_epoch=5)
    log.advance_high_watermark(log.log_end_offset - 3)
    log.start_leader_epoch(9)
    before = read_all(log)
    piece = log.read(20, max_bytes=100)
    (sentence,) = await logs.move(on_moved=moved.append)
    assert target.path in sentence
    (new,) = moved
    assert logs.get("t", 0) is new
    assert logs.home_of(new) == target.path
    assert read_all(new) == before
    assert (new.log_start_offset, new.high_watermark, new.log_end_offset) == (7, 297, 300)
    assert (new.latest_epoch, new.topic_id, new.leader_epochs) == (9, ID, log.leader_epochs)
    assert piece.read_bytes()
    piece.release()
    fill(new, 1, leader_epoch=9)
    logs.close()
    again = opened(tmp_path)
    assert again.get("t", 0).log_end_offset == 302
    assert not [name for home in "ab" for name in os.listdir(tmp_path / home) if name.endswith("-future")]
    again.close()


async def test_a_moved_log_knows_what_its_producers_may_send_again(tmp_path):
    logs = opened(tmp_path)
    log = create(logs)

    def produced(log, sequence):
        records = batch(producer_id=5, sequence=sequence, timestamp_ms=NOW_MS)
        return log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)

    for sequence in range(5):
        produced(log, sequence)
    log.producers.carry_over(before_offset=5)
    logs.wish_home("t", 0, other_directory(logs, log))
    await logs.move()
    moved = logs.get("t", 0)
    assert moved is not log
    assert [produced(moved, sequence).first_offset for sequence in range(5)] == list(range(5))
    assert produced(moved, 9).first_offset == 5
    logs.close()


async def test_a_moved_log_knows_after_a_crash_how_far_it_is_compacted(tmp_path):
    logs = opened(tmp_path)
    log = logs.open_or_create("t", 0, topic_id=ID, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    settle(log)
    assert await logs.compact()
    compacted_to = log.compacted_to
    assert compacted_to > 2
    logs.wish_home("t", 0, other_directory(logs, log))
    assert len(await logs.move()) == 1
    logs.abandon()

    logs = opened(tmp_path)
    log = logs.get("t", 0)
    assert log.whole_end_below(compacted_to - 1) == 0
    log.update_config(compacted())
    assert log.compacted_to == compacted_to
    logs.abandon()


async def test_an_empty_log_moves_too(tmp_path):
    logs = opened(tmp_path)
    log = create(logs)
    log.truncate_fully_and_start_at(11)
    logs.wish_home("t", 0, other_directory(logs, log))
    await logs.move()
    assert (logs.get("t", 0).log_start_offset, logs.get("t", 0).log_end_offset) == (11, 11)
    logs.close()


async def test_a_log_whose_records_are_all_deleted_during_a_move_moves_too(tmp_path):
    logs = opened(tmp_path)
    log = filled(logs, count=100)
    other = other_directory(logs, log)
    logs.wish_home("t", 0, other)
    await logs._mover.copy(logs.moves[TopicPartition("t", 0)])
    log.advance_high_watermark(200)
    log.advance_log_start_offset(200)
    await logs.move()
    moved = logs.get("t", 0)
    assert (logs.home_of(moved), moved.log_start_offset, moved.log_end_offset) == (other.path, 200, 200)
    fill(moved, 1, leader_epoch=5)
    logs.close()
    again = opened(tmp_path)
    assert (again.get("t", 0).log_start_offset, again.get("t", 0).log_end_offset) == (200, 202)
    again.close()


async def test_a_damaged_log_stays_where_it_is_and_stops_no_other_move(tmp_path):
    logs = opened(tmp_path)
    damaged, sound = filled(logs), filled(logs, 1)
    homes = {log: other_directory(logs, log).path for log in (damaged, sound)}
    path = Path(damaged.directory) / f"{0:020d}.log"
    content = path.read_bytes()
    path.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])
    for log in (damaged, sound):
        logs.wish_home("t", log.partition, next(one for one in logs.directories if one.path == homes[log]))
    sentences = await logs.move()
    assert any("t-0" in sentence and "is given up" in sentence for sentence in sentences)
    assert logs.home_of(logs.get("t", 1)) == homes[sound]
    assert logs.get("t", 0) is damaged
    assert not logs.moves
    assert not logs.offline
    logs.close()


async def test_a_cut_during_a_move_is_no_part_of_the_copy(tmp_path):
    logs = opened(tmp_path)
    log = filled(logs, count=60)
    logs.wish_home("t", 0, other_directory(logs, log))
    move = logs.moves[TopicPartition("t", 0)]
    await logs._mover.copy(move)
    log.truncate_to(40)
    log.append_as_leader(batch([b"new"], timestamp_ms=NOW_MS), leader_epoch=8, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    before = read_all(log)
    await logs.move()
    assert read_all(logs.get("t", 0)) == before
    logs.close()


async def test_wishing_a_log_where_it_is_ends_its_move(tmp_path):
    logs = opened(tmp_path)
    log = filled(logs)
    home = next(directory for directory in logs.directories if directory.path == logs.home_of(log))
    logs.wish_home("t", 0, other_directory(logs, log))
    await logs._mover.copy(logs.moves[TopicPartition("t", 0)])
    logs.wish_home("t", 0, home)
    assert logs.moves == {}
    assert await logs.move() == []
    assert logs.get("t", 0) is log
    await logs.remove_due()
    assert not [name for path in "ab" for name in os.listdir(tmp_path / path) if name.endswith("-future")]
    logs.close()


async def test_a_topic_whose_name_is_too_long_for_a_move_costs_no_directory(tmp_path):
    logs = opened(tmp_path)
    topic = "t" * 249
    log = logs.open_or_create(topic, 0, topic_id=ID, config=LogConfig())
    logs.wish_home(topic, 0, other_directory(logs, log))
    (sentence,) = await logs.move()
    assert "is given up" in sentence
    assert (logs.offline, logs.moves) == ({}, {})
    assert logs.get(topic, 0) is log
    logs.close()


def test_a_wish_for_a_partition_that_is_not_here_yet_is_kept_in_mind(tmp_path):
    logs = opened(tmp_path)
    assert logs.wish_home("t", 5, logs.directories[1]) is False
    assert logs.home_of(create(logs, 5)) == logs.directories[1].path
    logs.close()


class Stopped(BaseException):
    pass


LOG_START = 3
"""Inside the second of the batches of two records."""


async def begun_inside_a_batch(logs, log):
    log.advance_high_watermark(log.log_end_offset)
    log.advance_log_start_offset(LOG_START)
    await logs.checkpoint_log_start_offsets()


async def test_a_move_interrupted_after_any_step_loses_nothing(tmp_path):
    origin = tmp_path / "origin"
    logs = opened(origin)
    expected = read_all(filled(logs))[1:]
    logs.close()
    chance = random.Random(5)
    for step in range(300):
        root = tmp_path / str(step)
        shutil.copytree(origin, root)
        disk = FaultyDisk(str(root))
        logs = opened(root, disk)
        log = logs.get("t", 0)
        await begun_inside_a_batch(logs, log)
        log.thinned_to = 20
        log.save_thinned()
        left = [step]

        def stop_at(operation, path, left=left):
            if operation in ("rename", "unlink", "write", "fsync_directory", "make_directory", "fdatasync"):
                if left[0] == 0:
                    raise Stopped
                left[0] -= 1

        logs.wish_home("t", 0, other_directory(logs, log))
        disk.before_operation = stop_at
        is_done = False
        try:
            await logs.move()
            is_done = True
        except Stopped:
            pass
        disk.before_operation = None
        logs.abandon()
        if chance.random() < 0.5:
            again = opened(root)
            assert again.get("t", 0).log_start_offset == LOG_START
            assert again.get("t", 0).thinned_to == 20
            assert read_all(again.get("t", 0)) == expected
            assert not [name for home in "ab" for name in os.listdir(root / home) if name.endswith("-future")]
            again.close()
        disk.clear()
        if is_done:
            break
    assert 10 < step < 299


async def test_a_start_that_finishes_a_move_may_be_interrupted_after_any_step(tmp_path):
    origin = tmp_path / "origin"
    logs = opened(origin)
    expected = read_all(filled(logs))[1:]
    logs.close()
    disk = FaultyDisk(str(origin))
    logs = opened(origin, disk)
    log = logs.get("t", 0)
    await begun_inside_a_batch(logs, log)

    def stop_before_the_copy_has_its_name(operation, path):
        if operation == "rename" and path.endswith("-future"):
            raise Stopped

    logs.wish_home("t", 0, other_directory(logs, log))
    disk.before_operation = stop_before_the_copy_has_its_name
    with contextlib.suppress(Stopped):
        await logs.move()
    logs.abandon()
    for step in range(100):
        root = tmp_path / str(step)
        shutil.copytree(origin, root)
        disk = FaultyDisk(str(root))
        left = [step]

        def stop_at(operation, path, left=left):
            if operation in ("rename", "unlink", "fsync_directory"):
                if left[0] == 0:
                    raise Stopped
                left[0] -= 1

        disk.before_operation = stop_at
        logs = LogStore([f"{root}/a", f"{root}/b"], disk, now_ms=lambda: NOW_MS)
        is_done = False
        with contextlib.suppress(Stopped):
            logs.open(node_id=1, cluster_id="c")
            logs.load(lambda topic: LogConfig(segment_bytes=2000))
            is_done = True
        disk.before_operation = None
        logs.abandon()
        again = opened(root)
        assert again.get("t", 0).log_start_offset == LOG_START
        assert read_all(again.get("t", 0)) == expected
        again.close()
        if is_done:
            break
    assert 2 < step < 99
