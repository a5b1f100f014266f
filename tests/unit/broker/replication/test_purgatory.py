"""The purgatory: the requests that each change wakes, timeouts, and the end of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from broker.replication.core.wake_ups import Change, DelayedOperation
from broker.replication.purgatory import Purgatory
from runtime.clock import SystemClock
from tests.support.clock import ManualClock


class _Waiter:
    def changed(self, key: Hashable, grown_bytes: int) -> bool:
        return True

    def complete(self) -> None:
        pass


@pytest.mark.parametrize("way_out", ["notified", "forgotten", "stopped"])
async def test_emptied_returns_when_the_last_one_is_gone_whatever_way(way_out: str) -> None:
    purgatory = Purgatory(ManualClock())
    entry = purgatory.wait(_Waiter(), DelayedOperation.PRODUCE, keys=["p"], timeout_ms=1e6)
    emptied = [asyncio.ensure_future(purgatory.emptied(DelayedOperation.PRODUCE)) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(waiting.done() for waiting in emptied)
    if way_out == "notified":
        purgatory.changed("p", Change.LEADERSHIP)
    elif way_out == "forgotten":
        purgatory.forget(entry)
    else:
        purgatory.stop(DelayedOperation.PRODUCE)
    await asyncio.gather(*emptied)
    await purgatory.emptied(DelayedOperation.PRODUCE)
    purgatory.close()


async def test_a_short_wait_ends_in_time_though_a_long_one_began_before() -> None:
    purgatory = Purgatory(SystemClock())
    is_over = asyncio.Event()

    class Short(_Waiter):
        def complete(self) -> None:
            is_over.set()

    purgatory.wait(_Waiter(), DelayedOperation.PRODUCE, keys=["long"], timeout_ms=3_600_000)
    purgatory.wait(Short(), DelayedOperation.PRODUCE, keys=["short"], timeout_ms=20)
    await asyncio.wait_for(is_over.wait(), 30)
    assert purgatory.count(DelayedOperation.PRODUCE) == 1
    purgatory.close()


async def test_a_request_that_ends_early_does_not_keep_others_from_ending() -> None:
    purgatory = Purgatory(SystemClock())
    endings: list[str] = []
    are_over = asyncio.Event()

    class Named(_Waiter):
        def __init__(self, name: str) -> None:
            self.name = name

        def complete(self) -> None:
            endings.append(self.name)
            if len(endings) == 3:
                are_over.set()

    for name, timeout_ms in (("b", 40), ("notified", 10), ("c", 80)):
        purgatory.wait(Named(name), DelayedOperation.PRODUCE, keys=[name], timeout_ms=timeout_ms)
    purgatory.changed("notified", Change.LEADERSHIP)
    await asyncio.wait_for(are_over.wait(), 30)
    assert endings == ["notified", "b", "c"]


class _Hears:
    def __init__(self) -> None:
        self.received: list[int] = []

    def changed(self, key: Hashable, grown_bytes: int) -> bool:
        self.received.append(grown_bytes)
        return False

    def complete(self) -> None:
        pass


@pytest.mark.parametrize("reported", [(10, 0), (0, 10), (0, 10, 10)])
async def test_growth_covers_no_other_change_of_the_same_turn_up(reported: tuple[int, ...]) -> None:
    purgatory, waiter = Purgatory(ManualClock()), _Hears()
    purgatory.wait(waiter, DelayedOperation.PRODUCE, keys=["p"], timeout_ms=1e6)
    for grown_bytes in reported:
        purgatory.changed("p", Change.HIGH_WATERMARK, grown_bytes)
    await asyncio.sleep(0)
    assert waiter.received == [0]
    purgatory.changed("p", Change.HIGH_WATERMARK, 10)
    purgatory.changed("p", Change.HIGH_WATERMARK, 20)
    await asyncio.sleep(0)
    assert waiter.received == [0, 30]
    purgatory.close()


class _Answered(_Waiter):
    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    def complete(self) -> None:
        self.is_over.set()


async def test_no_request_waits_after_the_end() -> None:
    purgatory, answered = Purgatory(SystemClock()), [_Answered(), _Answered()]
    purgatory.wait(answered[0], DelayedOperation.PRODUCE, keys=["p"], timeout_ms=1e6)
    purgatory.close()
    purgatory.wait(answered[1], DelayedOperation.PRODUCE, keys=["p"], timeout_ms=1e6)
    for waiting in answered:
        await asyncio.wait_for(waiting.is_over.wait(), 10)


WOKEN = {
    Change.LOG_GREW: {DelayedOperation.FOLLOWER_FETCH},
    Change.HIGH_WATERMARK: {DelayedOperation.CONSUMER_FETCH, DelayedOperation.PRODUCE},
    Change.MIRRORABLE_END: {DelayedOperation.MIRROR_FETCH},
    Change.LOG_START: {DelayedOperation.CONSUMER_FETCH, DelayedOperation.FOLLOWER_FETCH},
    Change.RETENTION: set(),
    Change.FOLLOWER_FETCHED: {DelayedOperation.DELETE_RECORDS},
    Change.REPLICAS: {DelayedOperation.DELETE_RECORDS},
    Change.LIVE_BROKERS: {DelayedOperation.DELETE_RECORDS},
    Change.READ_PERMISSION: {DelayedOperation.CONSUMER_FETCH},
    Change.LEADERSHIP: {*DelayedOperation},
    Change.LOG_REPLACED: {*DelayedOperation},
}


@pytest.mark.parametrize("change", list(Change), ids=lambda change: change.name)
async def test_a_change_wakes_the_requests_that_it_may_end_and_no_others(change: Change) -> None:
    purgatory, waiters = Purgatory(ManualClock()), {operation: _Hears() for operation in DelayedOperation}
    for operation, waiter in waiters.items():
        purgatory.wait(waiter, operation, keys=["p"], timeout_ms=1e6)
    purgatory.changed("p", change)
    purgatory.changed("q", Change.LEADERSHIP)
    await asyncio.sleep(0)
    assert {operation for operation, waiter in waiters.items() if waiter.received} == WOKEN[change]
    purgatory.close()
