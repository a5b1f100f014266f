"""A mirror ends its flows in slices when its site becomes active, and begins them in slices when
its site becomes passive.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import Start
from mirror.flow.core.flow_state import FlowState
from mirror.flow.followed_link import ROWS_A_SLICE, FollowedLink
from mirror.flow.rows import Leader
from mirror.link.core.link_roles import GapPolicy
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView, stand
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.protocol.ids import TopicPartition

KEYS = [TopicPartition("orders", index) for index in range(ROWS_A_SLICE + 2)]
LAST, GONE = KEYS[-1], KEYS[-2]
LEADER = Leader(1, 0)


def view(active: str, *, epoch: int, phase: LinkPhase.ValueType = LinkPhase.MIRRORING, sync: bool = False) -> LinkView:
    """The link as the mirror at site b reads it."""
    record = LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        active_site=active,
        epoch=epoch,
        phase=phase,
        sync_policy="block" if sync else "",
        sites={site: LinkSite(bootstrap_servers=f"{site}:9093") for site in "ab"},
    )
    return stand(record, "b")


@pytest.fixture
def board() -> FlowBoard:
    """More partitions than a slice has."""
    effects: Any = Mock()
    board = FlowBoard(
        clock=ManualClock(),
        effects=effects,
        gap_policy=GapPolicy.HALT,
        stale_after_ms=1_000,
        chance=random.Random(1),
        way_out_of=lambda _: "",
    )
    for key in KEYS:
        board.add(key, UUID(int=1)).target = LEADER
        board.submit(key, Start())
    return board


@pytest.fixture
def following(board: FlowBoard) -> FollowedLink:
    async def read() -> LinkView:
        raise AssertionError("nothing is read")

    link = KnownLink(view("a", epoch=1))
    return FollowedLink(board, link, read=read, interval_ms=1, on_turned=lambda: None, on_moved=lambda _: None)


@asynccontextmanager
async def turned_slowly(following: FollowedLink) -> AsyncIterator[None]:
    turning = asyncio.create_task(following.turn_slowly())
    yield
    turning.cancel()
    with suppress(asyncio.CancelledError):
        await turning


async def test_a_topic_that_is_gone_before_its_turn_is_left_out(board: FlowBoard, following: FollowedLink) -> None:
    following._apply(view("b", epoch=2))
    assert following.is_resting
    board.retire(GONE, "deleted at both sites")
    before = board.row(GONE).facts
    async with turned_slowly(following):
        await eventually(lambda: board.row(LAST).facts.state is FlowState.PROMOTED)
    assert board.row(GONE).facts is before


async def test_flows_that_are_left_end_before_they_mirror_again(board: FlowBoard, following: FollowedLink) -> None:
    seen: list[FlowState] = []
    board._on_transition = lambda key, _before, after, _reason: seen.append(after) if key == LAST else None
    following._apply(view("b", epoch=2))
    assert not seen
    following._apply(view("a", epoch=3))
    assert seen == [FlowState.PROMOTED]
    async with turned_slowly(following):
        await eventually(lambda: len(seen) > 1)


async def test_flows_begin_in_slices_after_their_site_was_active(board: FlowBoard, following: FollowedLink) -> None:
    following._apply(view("b", epoch=2))
    async with turned_slowly(following):
        await eventually(lambda: len(board.promoted_rows()) == len(KEYS))
        following._apply(view("a", epoch=3))
        # a later look at the same link does not begin the others at once
        following._apply(view("a", epoch=3))
        assert not following.is_resting
        assert len(board.promoted_rows()) == len(KEYS)
        await eventually(lambda: not board.promoted_rows())


async def test_flows_of_a_sync_link_begin_at_once(board: FlowBoard, following: FollowedLink) -> None:
    following._apply(view("b", epoch=2))
    async with turned_slowly(following):
        await eventually(lambda: len(board.promoted_rows()) == len(KEYS))
    following._apply(view("a", epoch=3, sync=True))
    assert not board.promoted_rows()


async def test_a_fence_reaches_flows_that_have_not_yet_begun(board: FlowBoard, following: FollowedLink) -> None:
    following._apply(view("b", epoch=2))
    async with turned_slowly(following):
        await eventually(lambda: len(board.promoted_rows()) == len(KEYS))
    following._apply(view("a", epoch=3))
    assert board.row(LAST).facts.state is FlowState.PROMOTED
    following._apply(view("a", epoch=3, phase=LinkPhase.FENCED))
    assert board.row(LAST).facts.state is not FlowState.PROMOTED
