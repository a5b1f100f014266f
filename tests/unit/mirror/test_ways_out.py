"""No state without a way out: a request for which a flow waits may fail in any way, and the flow
continues once the cause is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from mirror.flow.core.flow_state import FlowState
from mirror.link.ports import FetchAnswer, FetchParts, Leader
from runtime import supervision
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_ports import MemoryFetch
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)


def failing_once(call: Callable[..., Any]) -> Callable[..., Any]:
    """The port's call, whose first run raises an error that no port should raise."""
    failures = iter([RuntimeError("bug in a port")])

    async def broken(asked: Any) -> Any:
        for failure in failures:
            raise failure
        return await call(asked)

    return broken


@pytest.mark.parametrize(
    ("side", "question"), [("target", "log_ends"), ("source", "log_ends"), ("source", "epoch_ends")]
)
async def test_a_question_about_positions_that_breaks_off_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, side: str, question: str
) -> None:
    world = world_with()
    async with mirroring(world):
        await eventually(world.is_equal)
    site = getattr(world, side)
    monkeypatch.setattr(site, question, failing_once(getattr(site, question)))
    world.source.produce("orders", 0)
    async with mirroring(world) as mirror:
        await eventually(lambda: world.is_equal() and states(mirror) == {FlowState.MIRRORING})


async def test_batches_that_a_lost_source_has_left_behind_follow_the_targets_leader() -> None:
    """The fetched batches may be the last copy, and the leader at the target is killed as well
    before it has them.
    """
    world = world_with(batches=3)
    world.before_append = lambda: ErrorCode.not_leader_or_follower
    async with mirroring(world) as mirror:
        await eventually(lambda: mirror.queue.used_bytes > 0 and FlowState.MIRRORING not in states(mirror))
        everything = sum(len(log.data) for log in world.source.logs.values())
        await eventually(lambda: mirror.queue.used_bytes == everything)
        world.source.is_up = False
        await eventually(lambda: states(mirror) == {FlowState.SOURCE_UNAVAILABLE})
        world.target.leader = Leader(2002, 1)
        world.before_append = lambda: None
        await eventually(world.is_equal)
        assert states(mirror) == {FlowState.SOURCE_UNAVAILABLE} or FlowState.PREPARING in states(mirror)


async def test_an_answer_of_a_broker_that_leads_no_more_says_nothing_about_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another leader after an unclean election has another history; the former leader's answer must
    not count for it.
    """
    world = world_with(partitions=1, batches=3)
    log = world.source.logs[FIRST]
    async with mirroring(world):
        await eventually(world.is_equal)
    ask = world.source.log_ends

    async def deposed_while_answering(leaders: Any) -> Any:
        answers = await ask(leaders)
        if world.source.leader.epoch == 0:
            log.batches.pop()
            world.source.leader = Leader(1002, 1)
            world.source.produce("orders", 0, 2, epoch=1)
            await eventually(lambda: mirror.board.row(FIRST).source == world.source.leader)
        return answers

    monkeypatch.setattr(world.source, "log_ends", deposed_while_answering)
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
        assert "histories diverge" in mirror.board.row(FIRST).facts.reason
    assert not world.is_prefix()  # as it was, and nothing was put behind it
    assert world.target.logs[FIRST].end == 9


class Unreadable:
    """Records that cannot be read."""

    def __bool__(self) -> bool:
        raise RuntimeError("bug in a fetcher")


async def test_batches_of_a_dead_fetcher_are_fetched_again_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader moves before the failed fetcher is replaced, and no further records arrive."""
    monkeypatch.setattr(supervision, "RESTART_INITIAL_MS", 400)
    world = world_with(partitions=2, batches=0)
    fetch = MemoryFetch.fetch
    spoiled: list[TopicPartition] = []

    async def spoiling_once(
        port: MemoryFetch, node_id: int, parts: FetchParts, **options: Any
    ) -> Sequence[FetchAnswer]:
        answers = await fetch(port, node_id, parts, **options)
        if spoiled or len(answers) < 2:
            return answers
        spoiled.append(answers[1].key)
        return [answers[0], replace(answers[1], records=Unreadable())]

    monkeypatch.setattr(MemoryFetch, "fetch", spoiling_once)
    async with mirroring(world, **{"num.streams": "1"}) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})
        (fetcher,) = mirror.fetchers
        await eventually(lambda: len(fetcher._sent_parts) == 2)
        for partition in range(2):
            world.source.produce("orders", partition)
        await eventually(lambda: spoiled)
        world.source.leader = Leader(1002, 1)
        await eventually(lambda: mirror.board.row(FIRST).source == world.source.leader)
        await eventually(world.is_equal)
        assert mirror.restarts["fetcher"] == 1
