"""Plans of compaction that are carried out in other processes, several at the same time."""

import asyncio
import os

import pytest

from broker.log.cleaning.cleaner_process import CleanerProcess, CleanerProcesses
from broker.log.cleaning.log_cleaning import LogCleaning, in_a_thread
from broker.log.cleaning.log_compaction import plan_compaction, swap_in
from broker.log.errors import StorageError
from runtime.disk import RealDisk
from tests.support.disks.compacted_logs import compacted, keys_and_values, put, settle
from tests.support.disks.logs_on_disk import NOW_MS, open_log
from wire.batches.record_batch import InvalidBatch


async def test_a_process_of_its_own_does_the_same_work_and_is_started_again_after_its_death(tmp_path):
    cleaner = CleanerProcess()
    try:
        for name in ("one", "two"):
            log = open_log(tmp_path / name, config=compacted())
            for number in range(40):
                put(log, b"k%d" % (number % 3), b"%d" % number)
            settle(log)
            plan = plan_compaction(log, NOW_MS)
            assert await swap_in(log, plan, await cleaner.clean(plan), log._descriptors, NOW_MS)
            assert len(keys_and_values(log)) < 20
            cleaner._process.kill()
            await cleaner._process.wait()
    finally:
        await cleaner.stop()


async def test_the_cleaner_process_reports_unreadable_files_as_this_process_does(tmp_path):
    log = open_log(tmp_path, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number, codec=1)
    settle(log)
    plan = plan_compaction(log, NOW_MS)
    path = tmp_path / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[61:70] = b"\xff" * 9
    path.write_bytes(content)
    cleaner = CleanerProcess()
    try:
        with pytest.raises(InvalidBatch):
            await cleaner.clean(plan)
        os.unlink(path)
        with pytest.raises(StorageError, match="opening"):
            await cleaner.clean(plan)
    finally:
        await cleaner.stop()


async def test_as_many_logs_are_cleaned_at_the_same_time_as_there_are_threads(tmp_path):
    logs = []
    for name in ("one", "two", "three"):
        log = open_log(tmp_path / name, config=compacted())
        for number in range(40):
            put(log, b"k%d" % (number % 3), b"%d" % number)
        settle(log)
        logs.append(log)
    running, most = 0, 0
    may_end = asyncio.Event()

    async def clean_in_turn(plan):
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            may_end.set()
        await may_end.wait()
        try:
            return await in_a_thread(RealDisk())(plan)
        finally:
            running -= 1

    cleaning = LogCleaning(logs[0]._descriptors, clean_in_turn, now_ms=lambda: NOW_MS)
    cleaning.threads = 2
    assert len(await cleaning.run(logs, may_clean=lambda _: True)) == 3
    assert most == 2


async def test_two_plans_are_carried_out_in_two_processes_and_the_next_in_one_of_them(tmp_path):
    cleaners = CleanerProcesses()
    try:
        plans = []
        for name in ("one", "two"):
            log = open_log(tmp_path / name, config=compacted())
            for number in range(40):
                put(log, b"k%d" % (number % 3), b"%d" % number)
            settle(log)
            plans.append(plan_compaction(log, NOW_MS))
        await asyncio.gather(*(cleaners.clean(plan) for plan in plans))
        assert len(cleaners._idle) == 2
        await cleaners.clean(plans[0])
        assert len(cleaners._idle) == 2
    finally:
        await cleaners.stop()
