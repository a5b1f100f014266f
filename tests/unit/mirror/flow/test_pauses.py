"""Pauses: held by pattern against topics that come later, links that drain, and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from mirror.admin.service import describe
from mirror.flow.core.flow_state import FlowState
from mirror.flow.pauses import NotKept, Pauses
from runtime.configuration import ConfigurationError
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.control.cluster_pb2 import LinkPhase
from wire.protocol.ids import TopicPartition
from wire.rules.links import InvalidPattern

FIRST = TopicPartition("orders", 0)


def state(mirror: object, key: TopicPartition = FIRST) -> FlowState:
    found: FlowState = mirror.board.row(key).facts.state  # type: ignore[attr-defined]
    return found


def mirrored(world: MemoryWorld, key: TopicPartition = FIRST) -> bool:
    return key in world.target.logs and world.target.logs[key].data == world.source.logs[key].data


async def test_a_paused_topic_stands_still_and_goes_on_where_it_was() -> None:
    world = world_with(partitions=2)
    async with mirroring(world) as mirror:
        await eventually(lambda: mirrored(world))
        assert mirror.pauses.pause(["orders"]) == 2
        assert state(mirror) is FlowState.PAUSED
        world.source.produce("orders", 0, 5)
        world.source.add("others", 1, number=2)
        world.source.produce("others", 0, 5)
        await eventually(lambda: mirrored(world, TopicPartition("others", 0)))
        assert not mirrored(world)
        reply = describe(mirror)
        assert list(reply.paused_topics) == ["orders"]
        assert {one.reason for one in reply.partitions if one.topic == "orders"} == {"paused by an operator"}
        assert mirror.pauses.resume(["orders"]) == 0
        await eventually(lambda: mirrored(world))


async def test_a_topic_that_appears_under_a_pause_is_paused_too() -> None:
    world = world_with(partitions=1)
    async with mirroring(world) as mirror:
        await eventually(lambda: mirrored(world))
        mirror.pauses.pause(["la.*"])
        world.source.add("later", 1, number=2)
        later = TopicPartition("later", 0)
        await eventually(lambda: later in mirror.board and state(mirror, later) is FlowState.PAUSED)
        mirror.pauses.resume([])
        world.source.produce("later", 0, 1)
        await eventually(lambda: mirrored(world, later))


async def test_a_link_that_drains_is_not_held_up() -> None:
    world = world_with(partitions=1)
    async with mirroring(world) as mirror:
        await eventually(lambda: mirrored(world))
        mirror.pauses.pause([])
        world.source.produce("orders", 0, 5)
        world.record.phase = LinkPhase.FENCED
        await eventually(lambda: mirrored(world))
        assert state(mirror) is FlowState.PROMOTING


async def test_pauses_outlast_the_daemon_when_a_file_is_named(tmp_path: Path) -> None:
    world, file = world_with(partitions=1), tmp_path / "pauses.json"
    settings = {"antipode.pause.file": str(file)}
    async with mirroring(world, **settings) as mirror:
        mirror.pauses.pause(["orders"])
    async with mirroring(world, **settings) as mirror:
        await eventually(lambda: FIRST in mirror.board and state(mirror) is FlowState.PAUSED)
        mirror.pauses.resume([])
        await eventually(lambda: mirrored(world))
    async with mirroring(world, **settings) as mirror:
        assert mirror.pauses.patterns == ()


async def test_a_pattern_that_is_none_changes_nothing() -> None:
    async with mirroring(world_with()) as mirror:
        with pytest.raises(InvalidPattern):
            mirror.pauses.pause(["orders", "("])
        assert mirror.pauses.patterns == ()


async def test_a_file_that_holds_no_pauses_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pauses.json"
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"antipode\.pause\.file"):
        Pauses(None, file)  # type: ignore[arg-type]


async def test_a_pause_that_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "pauses"
    directory.mkdir()
    async with mirroring(world_with(), **{"antipode.pause.file": str(directory / "file.json")}) as mirror:
        directory.rmdir()
        with pytest.raises(NotKept, match=r"antipode\.pause\.file .*No such file"):
            mirror.pauses.pause(["orders"])
        assert mirror.pauses.patterns == ()


@pytest.mark.parametrize("is_paused_before", [False, True])
async def test_batches_of_a_partition_that_another_daemon_has_taken_are_dropped(
    is_paused_before: bool,
) -> None:
    """Else the batches take room in the queue, and the flow sends them again and again for as long
    as the other daemon lives.
    """
    world = world_with(partitions=1)
    world.before_append = lambda: ErrorCode.request_timed_out
    async with mirroring(world) as mirror:
        await eventually(lambda: mirror.queue.used_bytes > 0)
        if is_paused_before:
            mirror.pauses.pause([])
        world.owns = lambda _: False
        await eventually(lambda: mirror.queue.used_bytes == 0)
        assert state(mirror) is FlowState.PAUSED
        assert mirror.board.row(FIRST).facts.reason == "another daemon of the link mirrors it"
        mirror.pauses.resume([])
        world.before_append = lambda: None
        world.owns = lambda _: True
        await eventually(lambda: mirrored(world))


@pytest.mark.parametrize("is_anothers", [False, True])
async def test_a_paused_partition_that_cannot_be_mirrored_stays_paused(is_anothers: bool) -> None:
    """Of a topic with fewer partitions than its copy. The rounds over topics and the pause must not
    change its state in turns.
    """
    world = world_with(partitions=1)
    world.target.add("orders", 2)
    async with mirroring(world) as mirror:
        await eventually(lambda: FIRST in mirror.board and state(mirror) is FlowState.FAULTED)
        if is_anothers:
            world.owns = lambda _: False
        else:
            mirror.pauses.pause(["orders"])
        await eventually(lambda: state(mirror) is FlowState.PAUSED)
        generation = mirror.board.row(FIRST).facts.generation
        world.source.add("others", 1, number=2)  # Two rounds follow before it is mirrored.
        await eventually(lambda: "others" in world.target.ids)
        await eventually(lambda: TopicPartition("others", 0) in mirror.board)
        assert state(mirror) is FlowState.PAUSED
        assert mirror.board.row(FIRST).facts.generation == generation
        world.owns = lambda _: True
        mirror.pauses.resume([])
        await eventually(lambda: state(mirror) is FlowState.FAULTED)


async def test_a_partition_that_comes_back_to_a_daemon_that_pauses_it_is_not_shown_as_anothers() -> None:
    world = world_with(partitions=1)
    world.owns = lambda _: False
    async with mirroring(world) as mirror:
        reason = lambda: mirror.board.row(FIRST).facts.reason if FIRST in mirror.board else ""  # noqa: E731
        await eventually(lambda: reason() == "another daemon of the link mirrors it")
        mirror.pauses.pause(["orders"])
        world.owns = lambda _: True
        await eventually(lambda: reason() == "paused by an operator")
        assert state(mirror) is FlowState.PAUSED
