"""Asking until a link is complete: temporary failures are repeated, a failure at the end is
reported.
"""

from __future__ import annotations

import pytest

from dr.links.completeness import complete_until
from dr.links.core.completeness import Completeness, TopicCompleteness
from runtime.clock import SystemClock
from runtime.process import OperationalFailure
from wire.control.mirror_pb2 import DescribeMirrorReply, MirrorPartition

NOW_MS = 1_000


class Looks:
    """Answers looks in turn with these lags in records, or fails where a lag is None; repeats the
    last answer.
    """

    def __init__(self, *lags: int | None) -> None:
        self._lags = list(lags)
        self.count = 0

    async def __call__(self, completeness: Completeness) -> None:
        self.count += 1
        lag = self._lags.pop(0) if len(self._lags) > 1 else self._lags[0]
        if lag is None:
            raise OperationalFailure("no agent answers")
        one = MirrorPartition(topic="orders", partition=0, lag_records=lag, lag_ms=500 * (lag > 0), mirrored_records=1)
        completeness.take_mirror(DescribeMirrorReply(partitions=[one]), asked_at_ms=NOW_MS)


async def asked(looks: Looks, *, timeout_ms: float, topics: tuple[str, ...] = (".*",)) -> list[TopicCompleteness]:
    return await complete_until(looks, until_ms=NOW_MS, topics=topics, timeout_ms=timeout_ms, clock=SystemClock())


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dr.links.completeness.POLL_S", 0)


async def test_one_look_is_enough_when_no_caller_waits() -> None:
    looks = Looks(5, 0)
    (found,) = await asked(looks, timeout_ms=0)
    assert (found.is_complete, found.complete_until_ms, looks.count) == (False, NOW_MS - 500, 1)


async def test_looks_are_repeated_until_all_is_there_whatever_fails_meanwhile() -> None:
    looks = Looks(None, 5, None, 0)
    (found,) = await asked(looks, timeout_ms=60_000)
    assert (found.is_complete, looks.count) == (True, 4)


async def test_a_look_that_fails_when_time_is_up_is_the_answer() -> None:
    with pytest.raises(OperationalFailure, match="no agent answers"):
        await asked(Looks(None), timeout_ms=20)


async def test_only_the_requested_topics_are_described() -> None:
    assert await asked(Looks(0), timeout_ms=0, topics=("payments",)) == []
