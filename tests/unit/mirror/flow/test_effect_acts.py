"""Retries of flows that failed."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_effects import RetryLater
from mirror.flow.core.flow_events import Command, RetryDue
from mirror.flow.effect_acts import RETRIES_A_SECOND_MAX, RETRY_MAX_MS, EffectActs
from mirror.flow.rows import Row
from mirror.link.core.link_roles import GapPolicy
from tests.support.eventually import eventually
from wire.protocol.ids import TopicPartition

RETRY = RetryLater(generation=1, attempt=16, is_slow=False)


def row_of(name: str) -> Row:
    flow = Flow(name, gap_policy=GapPolicy.HALT, started_at_ms=0, way_out="", target_compares=True)
    return Row(flow, UUID(int=1))


class Delays:
    """The event loop for `call_later` alone: it keeps the delays, in s."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []

    def call_later(self, delay_s: float, *_: object) -> object:
        self.delays_s.append(delay_s)
        return object()


def test_of_many_flows_each_waits_longer_so_that_the_retries_of_a_second_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Delays()
    monkeypatch.setattr("mirror.flow.effect_acts.asyncio", SimpleNamespace(get_running_loop=lambda: loop))
    no_effects: Any = None
    acts = EffectActs(no_effects, random.Random(1), lambda *_: None)
    for index in range(5 * RETRIES_A_SECOND_MAX):
        acts.carry_out(TopicPartition("orders", index), row_of("orders"), RETRY)
    assert loop.delays_s[0] <= RETRY_MAX_MS / 1000
    assert sum(delay_s < 1 for delay_s in loop.delays_s) <= 2 * RETRIES_A_SECOND_MAX
    assert 2.5 <= loop.delays_s[-1] <= 5


async def test_flows_that_have_tried_again_do_not_count_as_waiting() -> None:
    submitted: list[tuple[TopicPartition, Command]] = []
    no_effects: Any = None
    acts = EffectActs(no_effects, random.Random(1), lambda key, command: submitted.append((key, command)))
    first = RetryLater(generation=1, attempt=0, is_slow=False)
    keys = [TopicPartition("orders", index) for index in range(40)]
    rows = {key: row_of(str(key)) for key in keys}
    for key, row in rows.items():
        acts.carry_out(key, row, first)
        acts.carry_out(key, row, first)  # once for each row: the second takes the first one's place
    assert acts._waiting == len(keys)
    await eventually(lambda: len(submitted) == len(keys))
    assert {key for key, _ in submitted} == set(keys)
    assert all(command == RetryDue(generation=1) for _, command in submitted)
    assert acts._waiting == 0
