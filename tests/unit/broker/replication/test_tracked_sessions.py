"""The fetches of followers that each change wakes."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import TopicMetrics
from broker.replication.core.fetch_sessions import FetchPartitionState, FetchSession
from broker.replication.core.partition import Partition
from broker.replication.core.partition_effects import IsrProposed
from broker.replication.core.wake_ups import Change, DelayedOperation
from broker.replication.hosted_partition import HostedPartition
from broker.replication.purgatory import Purgatory
from broker.settings.core.topic_configs import LogConfig
from tests.support.clock import ManualClock
from tests.support.disks.logs_on_disk import open_log

KEY = ("t", 0)
FOLLOWER = 2


class Waiting:
    """A fetch that ends with the first change."""

    def __init__(self) -> None:
        self.is_answered = False

    def changed(self, key: Hashable, grown_bytes: int) -> bool:
        """Ends the wait at any change."""
        return True

    def complete(self) -> None:
        """Notes that the fetch is answered."""
        self.is_answered = True


@pytest.fixture
async def purgatory() -> Purgatory:
    return Purgatory(ManualClock())


@pytest.fixture
def hosted(tmp_path: Path) -> HostedPartition:
    log = open_log(tmp_path)
    state = Partition(node_id=1, log_end_offset=5)
    state.change(
        PartitionImage(index=0, leader=1, leader_epoch=1, partition_epoch=1, replicas=(1, 2), isr=(1, 2)), now_ms=0
    )
    state.record_fetch(FOLLOWER, 5, now_ms=10)
    return HostedPartition(
        topic="t", topic_id=bytes(16), index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )


def session_at(offset: int, **state: Any) -> tuple[FetchSession, FetchPartitionState]:
    session = FetchSession(session_id=1, has_topic_ids=False, used_at_ms=700, follower=FOLLOWER)
    wanted = FetchPartitionState(topic="t", partition=0, fetch_offset=offset, partition_max_bytes=100, **state)
    session.ask([wanted], ())
    session.settle(wanted.key)
    return session, wanted


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_growth_ends_the_wait_and_dates_the_follower_back_to_its_last_fetch(
    purgatory: Purgatory, hosted: HostedPartition
) -> None:
    session, wanted = session_at(5)
    purgatory.sessions.watch(session, wanted, hosted)
    waiting = Waiting()
    purgatory.wait(waiting, DelayedOperation.FOLLOWER_FETCH, keys=[session], timeout_ms=500)
    hosted.state.record_append(6)
    purgatory.changed(KEY, Change.LOG_GREW, 100, former_end=5)
    await turn()
    assert waiting.is_answered
    assert list(session.unsettled) == [wanted.key]
    assert hosted.state.followers[FOLLOWER].caught_up_at_ms == 700
    assert not hosted.state.shrink_isr(now_ms=1000, lag_ms_max=300)
    assert hosted.state.shrink_isr(now_ms=1001, lag_ms_max=300) == (IsrProposed((1,)),)


async def test_throttled_records_wake_no_request(purgatory: Purgatory, hosted: HostedPartition) -> None:
    session, wanted = session_at(5)
    wanted.is_throttled = True
    purgatory.sessions.watch(session, wanted, hosted)
    waiting = Waiting()
    purgatory.wait(waiting, DelayedOperation.FOLLOWER_FETCH, keys=[session], timeout_ms=500)
    purgatory.changed(KEY, Change.LOG_GREW, 100, former_end=5)
    await turn()
    assert not waiting.is_answered
    purgatory.changed(KEY, Change.LOG_START)
    await turn()
    assert waiting.is_answered


async def test_a_new_high_watermark_wakes_only_followers_that_are_read_from(
    purgatory: Purgatory, hosted: HostedPartition
) -> None:
    quiet, quiet_state = session_at(5)
    read, read_state = session_at(5, known_high_watermark=2)
    waiting = {session: Waiting() for session in (quiet, read)}
    for session, state in ((quiet, quiet_state), (read, read_state)):
        purgatory.sessions.watch(session, state, hosted)
        purgatory.wait(waiting[session], DelayedOperation.FOLLOWER_FETCH, keys=[session], timeout_ms=500)
    hosted.state.high_watermark = 5
    purgatory.changed(KEY, Change.HIGH_WATERMARK, 1)
    await turn()
    assert waiting[read].is_answered
    assert not waiting[quiet].is_answered
    assert quiet.unsettled
    purgatory.sessions.unwatch(read)
    purgatory.sessions.unwatch(quiet)
    read.unsettled.clear()
    purgatory.changed(KEY, Change.RETENTION)
    assert not read.unsettled


async def test_a_partition_that_left_the_session_is_forgotten(purgatory: Purgatory, hosted: HostedPartition) -> None:
    session, wanted = session_at(5)
    purgatory.sessions.watch(session, wanted, hosted)
    session.ask((), [wanted.key])
    purgatory.changed(KEY, Change.RETENTION)
    assert not session.unsettled


def mirrors_session() -> tuple[FetchSession, FetchPartitionState]:
    session = FetchSession(session_id=1, has_topic_ids=False, used_at_ms=700, is_mirrors=True)
    wanted = FetchPartitionState(topic="t", partition=0, fetch_offset=5, partition_max_bytes=100)
    session.ask([wanted], ())
    session.settle(wanted.key)
    return session, wanted


async def test_a_mirror_is_woken_when_more_may_be_mirrored_and_not_when_the_log_grows(
    purgatory: Purgatory, hosted: HostedPartition
) -> None:
    session, wanted = mirrors_session()
    purgatory.sessions.watch(session, wanted, hosted)
    waiting = Waiting()
    purgatory.wait(waiting, DelayedOperation.MIRROR_FETCH, keys=[session], timeout_ms=500)
    assert purgatory.is_awaited(DelayedOperation.MIRROR_FETCH, KEY)
    purgatory.changed(KEY, Change.LOG_GREW, 100, former_end=5)
    purgatory.changed(KEY, Change.HIGH_WATERMARK, 100)
    await turn()
    assert not waiting.is_answered
    assert not session.to_read()
    purgatory.changed(KEY, Change.MIRRORABLE_END, 100)
    await turn()
    assert waiting.is_answered
    assert session.to_read() == (wanted,)
    assert hosted.state.followers[FOLLOWER].caught_up_at_ms == 10


async def test_a_mirrors_next_fetch_examines_what_has_changed_while_it_did_not_wait(
    purgatory: Purgatory, hosted: HostedPartition
) -> None:
    session, wanted = mirrors_session()
    purgatory.sessions.watch(session, wanted, hosted)
    assert not purgatory.is_awaited(DelayedOperation.MIRROR_FETCH, KEY)
    for change in (Change.MIRRORABLE_END, Change.LOG_START, Change.RETENTION, Change.READ_PERMISSION):
        purgatory.changed(KEY, change, 1 if change is Change.MIRRORABLE_END else 0)
        assert session.to_read() == (wanted,), change
        session.settle(wanted.key)
