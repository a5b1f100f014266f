"""Of all daemons of a link that is not shared, one carries it at a time, with late writes, kills
and pauses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.translate.core.link_lease import LinkLease, Notice, Step, decode_notice, encode_notice

SESSION_MS = 6_000


def notice(process: str, number: int, step: Step, after: str = "") -> Notice:
    return Notice(process, number, step, f"host-{process}:9", f"machine/{process}", after)


def lease(process: str, *notices: Notice, at_ms: float = 0.0) -> LinkLease:
    found = LinkLease(process, session_timeout_ms=SESSION_MS)
    for one in notices:
        found.read(one, now_ms=at_ms)
    return found


def may_take(found: LinkLease, now_ms: float, *, gone: str = "") -> bool:
    return found.may_take(now_ms=now_ms, is_gone=lambda place: place == f"machine/{gone}")


TAKEN = notice("a", 1, Step.TAKE)


def test_a_link_that_no_daemon_carries_is_taken_at_once() -> None:
    assert may_take(lease("b"), 0.0)
    assert may_take(lease("b", TAKEN, notice("a", 2, Step.RELEASE)), 0.0)
    assert may_take(lease("b", TAKEN), 0.0, gone="a")


def test_a_daemon_that_renews_keeps_the_link_and_one_that_is_silent_loses_it_after_a_session() -> None:
    waiting = lease("b", TAKEN)
    assert not may_take(waiting, SESSION_MS - 1)
    waiting.read(notice("a", 2, Step.RENEW), now_ms=SESSION_MS - 1)
    assert not may_take(waiting, 2 * SESSION_MS - 2)
    assert may_take(waiting, 2 * SESSION_MS - 1)


def test_of_two_daemons_that_take_the_link_together_the_first_one_in_the_topic_has_it() -> None:
    log = (TAKEN, notice("b", 1, Step.TAKE, TAKEN.id), notice("c", 1, Step.TAKE, TAKEN.id))
    for process in ("a", "b", "c", "d"):
        found = lease(process, *log)
        assert found.holder == log[1]
        assert found.is_ours is (process == "b")


def test_a_renewal_that_arrives_after_the_link_was_taken_gives_nothing_back() -> None:
    log = (TAKEN, notice("b", 1, Step.TAKE, TAKEN.id), notice("a", 2, Step.RENEW))
    assert not lease("a", *log).is_ours
    assert lease("b", *log).is_ours


@pytest.mark.parametrize("value", [None, b"null", b"{", b'{"token":"of an early release"}', b'{"step":"seize"}'])
def test_other_records_under_the_key_are_no_notices(value: bytes | None) -> None:
    assert decode_notice(value) is None


def test_a_notice_is_read_as_it_was_written() -> None:
    assert decode_notice(encode_notice(TAKEN)) == TAKEN


@dataclass
class Daemon:
    """A daemon as `link_holder.py` runs it, a step at a time: between any two steps it may be
    stopped, killed or overtaken.
    """

    name: str
    log: list[Notice]
    lease: LinkLease = field(init=False)
    read_to: int = 0
    number: int = 0
    asked_at_ms: float = 0.0
    held_until_ms: float = -1.0
    writing: Notice | None = None
    has_written: bool = False

    def __post_init__(self) -> None:
        self.lease = LinkLease(self.name, session_timeout_ms=SESSION_MS)

    def carries(self, now_ms: float) -> bool:
        return now_ms < self.held_until_ms

    def read(self, now_ms: float) -> None:
        for one in self.log[self.read_to :]:
            self.lease.read(one, now_ms=now_ms)
        self.read_to = len(self.log)
        if not self.lease.is_ours:
            self.held_until_ms = -1.0

    def step(self, now_ms: float, gone: set[str]) -> None:
        if self.has_written:
            self.has_written = False
            self.read(now_ms)
            if self.lease.is_ours:
                self.held_until_ms = self.asked_at_ms + SESSION_MS
        elif self.writing is not None:
            self.log.append(self.writing)
            self.writing, self.has_written = None, True
        else:
            self.asked_at_ms = now_ms
            self.read(now_ms)
            is_held = self.lease.is_ours and self.carries(now_ms)
            is_free = self.lease.may_take(now_ms=now_ms, is_gone=lambda place: place.rpartition("/")[2] in gone)
            if is_held or is_free:
                self.number += 1
                step = Step.RENEW if is_held else Step.TAKE
                self.writing = notice(self.name, self.number, step, "" if is_held else self.lease.last_id)


actions = st.tuples(st.integers(0, 2), st.sampled_from(["step", "step", "step", "step", "kill"]), st.integers(0, 4_000))


@given(st.lists(actions, max_size=80))
def test_never_do_two_daemons_carry_the_link(schedule: list[tuple[int, str, int]]) -> None:
    log: list[Notice] = []
    gone: set[str] = set()
    born = 3
    daemons = [Daemon(str(number), log) for number in range(3)]
    now_ms = 0.0
    for index, action, elapsed_ms in schedule:
        now_ms += elapsed_ms
        if action == "step":
            daemons[index].step(now_ms, gone)
        else:
            gone.add(daemons[index].name)
            daemons[index] = Daemon(str(born), log)
            born += 1
        assert sum(one.carries(now_ms) for one in daemons) <= 1
    # In the end some daemon carries the link: no schedule leaves the daemons waiting for each
    # other.
    for _ in range(40):
        now_ms += 500
        for one in daemons:
            one.step(now_ms, gone)
    assert sum(one.carries(now_ms) for one in daemons) == 1
