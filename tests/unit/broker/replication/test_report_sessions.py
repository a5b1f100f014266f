"""Sessions of a mirror's reports: a report counts only for partitions that are as reported."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from broker.log.source_seen import SourceSeen
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.replication.core.partition_state import ReplicaRole
from broker.replication.report_sessions import (
    REPORTS_A_PASS,
    SESSIONS_MAX,
    UNUSED_MS_MAX,
    NewMember,
    ReportSession,
    ReportSessions,
)
from tests.support.clock import ManualClock

LINK, EPOCH, END = "a-b", 3, 7


def image(role: LinkRole = LinkRole.PASSIVE) -> ClusterImage:
    """An image in which the link carries every topic, and this site has the role."""
    link = SimpleNamespace(name=LINK, epoch=EPOCH)
    found: Any = SimpleNamespace(links={LINK: link}, link_of=lambda _: link, role_in=lambda _: role)
    return found  # type: ignore[no-any-return]


def hosted(topic: str = "orders", index: int = 0) -> Any:
    """A partition that is led here and has everything of the source."""
    return SimpleNamespace(
        topic=topic,
        key=(topic, index),
        log=SimpleNamespace(log_end_offset=END, source=SourceSeen(END, 1, 1)),
        state=SimpleNamespace(led_since_epoch=5, role=ReplicaRole.LEADER),
    )


class Broker:
    """The partitions of a broker, and its sessions."""

    def __init__(self, *partitions: Any) -> None:
        self.clock = ManualClock()
        self.hosted = {one.key: one for one in partitions}
        ids = count(1)
        self.sessions = ReportSessions(self, new_id=lambda: next(ids))  # type: ignore[arg-type]
        self.image = image()

    def begin(self) -> ReportSession:
        return self.sessions.begin(self.image, link=LINK, link_epoch=EPOCH)

    def report(self, session: ReportSession, seen_at_ms: int, *added: Any, removed: tuple[int, ...] = ()) -> list[int]:
        members = [NewMember(one, END, END) for one in added]
        return self.sessions.report(session, self.image, seen_at_ms=seen_at_ms, removed=removed, added=members)


def seen(*partitions: Any) -> list[int]:
    return [one.log.source.seen_at_ms for one in partitions]


def test_a_report_moves_the_time_of_all_partitions_of_the_session() -> None:
    first, second, other = hosted(index=0), hosted(index=1), hosted(index=2)
    broker = Broker(first, second, other)
    session = broker.begin()
    assert broker.report(session, 10, first, second) == []
    assert broker.report(session, 20) == []
    assert seen(first, second, other) == [20, 20, 1]


def _set(path: str, value: object) -> Callable[[Broker, Any], None]:
    def change(_: Broker, partition: Any) -> None:
        *parents, last = path.split(".")
        for name in parents:
            partition = getattr(partition, name)
        setattr(partition, last, value)

    return change


CHANGES = {
    "the log lost its end": _set("log.log_end_offset", END - 1),
    "the log grew": _set("log.log_end_offset", END + 1),
    "it was led by another broker meanwhile": _set("state.led_since_epoch", 6),
    "another broker leads it": _set("state.role", ReplicaRole.FOLLOWER),
    "the log has ceased to be a copy": lambda _, partition: partition.log.source.forget(),
    "the topic was deleted": lambda broker, partition: broker.hosted.pop(partition.key),
    "the topic was created anew": lambda broker, partition: broker.hosted.update({partition.key: hosted()}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_partition_that_has_changed_leaves_the_session(change: Callable[[Broker, Any], None]) -> None:
    changed, kept = hosted(index=0), hosted(index=1)
    broker = Broker(changed, kept)
    session = broker.begin()
    broker.report(session, 10, changed, kept)
    change(broker, changed)
    ended = [broker.report(session, at_ms) for at_ms in range(20, 20 + REPORTS_A_PASS)]
    assert [one for one in ended if one] == [[0]]
    assert kept.log.source.seen_at_ms == 19 + REPORTS_A_PASS
    assert changed.log.source.seen_at_ms < 19 + REPORTS_A_PASS


def test_a_partition_that_has_left_keeps_the_time_of_the_report_before() -> None:
    partition = hosted()
    broker = Broker(partition)
    session = broker.begin()
    broker.report(session, 10, partition)
    broker.report(session, 20, removed=(0,))
    broker.report(session, 30)
    assert seen(partition) == [10]


def test_a_report_about_the_partition_alone_ends_its_place_in_the_session() -> None:
    partition = hosted()
    broker = Broker(partition)
    session = broker.begin()
    broker.report(session, 10, partition)
    partition.log.source.seen_at_ms = 15
    assert [broker.report(session, 20) for _ in range(REPORTS_A_PASS)].count([0]) == 1
    assert seen(partition) == [15]


def test_partitions_that_may_not_be_mirrored_any_more_leave_the_session() -> None:
    partition = hosted()
    broker = Broker(partition)
    session = broker.begin()
    broker.report(session, 10, partition)
    broker.image = image(LinkRole.UNCONFIRMED)
    assert broker.report(session, 20) == [0]
    assert seen(partition) == [10]


def test_partitions_that_may_not_be_mirrored_do_not_enter() -> None:
    broker = Broker(hosted())
    broker.image = image(LinkRole.ACTIVE)
    partition = hosted()
    assert broker.report(broker.begin(), 10, partition) == [0]
    assert seen(partition) == [1]


def test_numbers_count_partitions_that_are_not_here() -> None:
    here = hosted(index=1)
    broker = Broker(here)
    session = broker.begin()
    assert broker.report(session, 10, None, here) == [0]
    assert broker.report(session, 20, removed=(1,)) == []
    assert seen(here) == [10]


def test_a_partition_may_leave_with_the_report_by_which_it_enters() -> None:
    partition = hosted()
    broker = Broker(partition)
    session = broker.begin()
    broker.report(session, 10, partition, removed=(0,))
    broker.report(session, 20)
    assert seen(partition) == [1]


def test_a_session_is_found_for_its_own_link_and_epoch_alone() -> None:
    broker = Broker()
    session = broker.begin()
    find = broker.sessions.find
    assert find(session.session_id, link=LINK, link_epoch=EPOCH) is session
    assert find(session.session_id + 1, link=LINK, link_epoch=EPOCH) is None
    assert find(session.session_id, link=LINK, link_epoch=EPOCH + 1) is None


def test_unused_sessions_end_and_the_oldest_gives_way() -> None:
    broker = Broker()
    unused = broker.begin()
    broker.clock.advance(UNUSED_MS_MAX)
    sessions = [broker.begin() for _ in range(SESSIONS_MAX)]
    assert len(broker.sessions) == SESSIONS_MAX
    assert broker.sessions.find(unused.session_id, link=LINK, link_epoch=EPOCH) is None
    broker.sessions.find(sessions[0].session_id, link=LINK, link_epoch=EPOCH)
    broker.begin()
    assert broker.sessions.find(sessions[0].session_id, link=LINK, link_epoch=EPOCH) is sessions[0]
    assert broker.sessions.find(sessions[1].session_id, link=LINK, link_epoch=EPOCH) is None
