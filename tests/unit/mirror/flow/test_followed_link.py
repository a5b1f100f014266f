"""A mirror whose site becomes active ends its flows in slices."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import Start
from mirror.flow.core.flow_state import FlowState
from mirror.flow.followed_link import ROWS_A_SLICE, FollowedLink
from mirror.link.core.link_roles import GapPolicy
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView, stand
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.protocol.ids import TopicPartition

KEYS = [TopicPartition("orders", index) for index in range(ROWS_A_SLICE + 2)]
LAST, GONE = KEYS[-1], KEYS[-2]


def view(active: str, *, epoch: int) -> LinkView:
    """The link as the mirror at site b reads it."""
    record = LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        active_site=active,
        epoch=epoch,
        phase=LinkPhase.MIRRORING,
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
        board.add(key, UUID(int=1))
        board.submit(key, Start())
    return board


@pytest.fixture
def following(board: FlowBoard) -> FollowedLink:
    async def read() -> LinkView:
        raise AssertionError("nothing is read")

    link = KnownLink(view("a", epoch=1))
    return FollowedLink(board, link, read=read, interval_ms=1, on_turned=lambda: None, on_moved=lambda _: None)


async def test_a_topic_that_is_gone_before_its_turn_is_left_out(board: FlowBoard, following: FollowedLink) -> None:
    following._apply(view("b", epoch=2))
    assert following.is_resting
    board.retire(GONE, "deleted at both sites")
    before = board.row(GONE).facts
    turning = asyncio.create_task(following.turn_slowly())
    await eventually(lambda: board.row(LAST).facts.state is FlowState.PROMOTED)
    assert board.row(GONE).facts is before
    turning.cancel()
    with suppress(asyncio.CancelledError):
        await turning


async def test_flows_that_are_left_end_before_they_mirror_again(board: FlowBoard, following: FollowedLink) -> None:
    seen: list[FlowState] = []
    board._on_transition = lambda key, _before, after, _reason: seen.append(after) if key == LAST else None
    following._apply(view("b", epoch=2))
    assert not seen
    following._apply(view("a", epoch=3))
    assert seen[0] is FlowState.PROMOTED
    assert board.row(LAST).facts.state is not FlowState.PROMOTED
