"""A fetcher that meets a defect goes on, and says so."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import load_broker_settings
from broker.replica_fetcher import ReplicaFetcher
from runtime.clock import SystemClock
from tests.support.eventually import eventually

SETTINGS = {
    "node.id": "1",
    "listeners": "CLIENT://:0",
    "log.dirs": "none",
    "zookeeper.connect": "none:1",
    "replica.fetch.backoff.ms": "1",
}


async def test_a_defect_is_shown_and_following_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []
    plan = ReplicaFetcher._changes

    def changes(fetcher: ReplicaFetcher) -> Any:
        rounds.append(fetcher.is_broken)
        if len(rounds) < 4:
            raise RuntimeError("a bug")
        return plan(fetcher)

    monkeypatch.setattr(ReplicaFetcher, "_changes", changes)
    replicas: Any = None  # nothing is followed, so nobody asks
    fetcher = ReplicaFetcher(
        2,
        replicas,
        load_broker_settings(SETTINGS),
        SystemClock(),
        find_address=lambda _: None,
        broker_epoch=lambda: 1,
        on_lost=lambda _: None,
    )
    try:
        await eventually(lambda: len(rounds) == 4 and not fetcher.is_broken)
        assert rounds == [False, True, True, True]
    finally:
        await fetcher.stop()
