"""Waiting for a purgatory to be empty, as a broker does before it hands its leaderships over."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from broker.purgatory import Purgatory
from tests.support.clock import ManualClock


class _Waiter:
    def changed(self, key: Hashable, grown_bytes: int) -> bool:
        return True

    def complete(self) -> None:
        pass


@pytest.mark.parametrize("way_out", ["notified", "forgotten", "stopped"])
async def test_emptied_returns_when_the_last_one_is_gone_whatever_way(way_out: str) -> None:
    purgatory = Purgatory(ManualClock())
    entry = purgatory.wait(_Waiter(), keys=["p"], timeout_ms=1e6)
    emptied = [asyncio.ensure_future(purgatory.emptied()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(waiting.done() for waiting in emptied)
    if way_out == "notified":
        purgatory.notify("p")
    elif way_out == "forgotten":
        purgatory.forget(entry)
    else:
        purgatory.stop()
    await asyncio.gather(*emptied)
    await purgatory.emptied()
    purgatory.stop()
