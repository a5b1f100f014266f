"""Asking until a link is complete: temporary failures are repeated, a failure at the end is
reported.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dr.links import completeness
from dr.links.completeness import complete_until, looks_at_sites
from dr.links.core.completeness import Completeness, TopicCompleteness
from dr.sites.core.evidence import Evidence
from runtime.clock import SystemClock
from runtime.process import OperationalFailure
from tests.unit.dr.core.link_model import ModelLink
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
        one = MirrorPartition(topic="orders", partition=0, lag_records=lag, complete_ms_ago=500 * (lag > 0))
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


async def test_looks_are_repeated_while_no_topic_is_known() -> None:
    """A mirror that has just started has not asked the source for its topics yet."""
    looks = 0

    async def look(completeness: Completeness) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            await Looks(0)(completeness)

    (found,) = await complete_until(look, until_ms=NOW_MS, topics=[".*"], timeout_ms=60_000, clock=SystemClock())
    assert (found.is_complete, looks) == (True, 3)


async def test_a_look_that_fails_when_time_is_up_is_the_answer() -> None:
    with pytest.raises(OperationalFailure, match="no agent answers"):
        await asked(Looks(None), timeout_ms=20)


async def test_only_the_requested_topics_are_described() -> None:
    assert await asked(Looks(0), timeout_ms=0, topics=("payments",)) == []


async def test_a_look_that_neither_site_answers_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a look names no topic, so it must not look like a link that carries none."""
    link = ModelLink()
    assert link.a.write("v0")
    link.mirror()
    link.a.is_up = link.b.is_up = False
    looks = 0

    async def evidence() -> Evidence:
        nonlocal looks
        looks += 1
        answer = link.evidence("b")
        link.a.is_up = link.b.is_up = True
        return answer

    async def described(*_: Any) -> list[Any]:
        return [SimpleNamespace(description=SimpleNamespace(record=link.a.record))]

    monkeypatch.setattr(completeness, "describe_link", described)
    monkeypatch.setattr(completeness, "LinkObserver", lambda *_, **__: SimpleNamespace(evidence=evidence))
    clients: dict[str, Any] = {"a": None, "b": None}
    look = await looks_at_sites("a-b", clients, SystemClock())
    (found,) = await complete_until(look, until_ms=NOW_MS, topics=(".*",), timeout_ms=60_000, clock=SystemClock())
    assert (found.is_complete, looks) == (True, 2)
