"""Consumer groups' offsets over sites in memory: they live as long as at the source, and one
group's problem does not affect others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from unittest.mock import MagicMock

import pytest
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry

from mirror.admin.service import describe
from mirror.flow.core.flow_state import FlowState
from mirror.groups.core import group_decisions, group_offsets
from mirror.groups.group_sync import GroupSync
from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.core.slots import slot_of
from mirror.link.link_watch import stand
from mirror.link.ports import Leader, LogAnswer
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.carried_groups import FIRST, SECOND, are_carried
from tests.support.memory.memory_mirror import mirroring, states
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import ALL_SLOTS


async def test_offsets_that_the_target_lets_expire_are_written_again(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M3: the partition is quiet and its group lives on at the source."""
    monkeypatch.setattr(group_offsets, "WRITTEN_AGAIN_MS", 200)
    async with mirroring(world):
        await are_carried(world)
        del world.target.group_offsets["billing"]
        await are_carried(world)


async def test_a_daemon_without_a_share_of_its_link_does_not_say_that_everything_is_carried(world: MemoryWorld) -> None:
    """Such as a daemon that cannot reach the assigner of the shares: perhaps no daemon mirrors
    anything.
    """
    world.owns, world.slots = lambda _: False, frozenset()
    async with mirroring(world):
        rounds = world.target.group_rounds
        await eventually(lambda: world.target.group_rounds > rounds + 3)
        assert not world.target.group_offsets
        assert not world.target.words
        world.owns, world.slots = lambda _: True, ALL_SLOTS
        await are_carried(world)
        await eventually(lambda: world.target.synced_at_ms > 0)


async def test_a_daemon_speaks_of_its_own_part_alone_also_where_no_partition_lies_in_it(world: MemoryWorld) -> None:
    elsewhere = frozenset({slot_of(FIRST), slot_of(SECOND)})
    world.owns = lambda key: slot_of(key) not in elsewhere

    def are_told() -> bool:
        last = world.target.words[-1]
        return last.slots == ALL_SLOTS - elsewhere and last.synced_at_ms > 0

    async with mirroring(world):
        await eventually(lambda: world.target.words)
        await eventually(are_told)


@pytest.mark.parametrize("side", ["source", "target"])
async def test_the_target_gets_reports_of_failing_daemons(world: MemoryWorld, side: str) -> None:
    """Otherwise another daemon's report without problems would hide it."""
    getattr(world, side).group_problems["billing"] = "coordinator_not_available"
    async with mirroring(world):
        await eventually(lambda: world.target.words)
        await eventually(lambda: world.target.words[-1].problems)
        last = world.target.words[-1]
        assert (last.daemon, last.problems) == ("m1:9391", {"billing": "coordinator_not_available"})
        assert world.target.synced_at_ms == -1
        getattr(world, side).group_problems.clear()
        await eventually(lambda: world.target.synced_at_ms > 0)
        assert not world.target.words[-1].problems


async def test_the_target_gets_a_report_that_the_source_does_not_answer(world: MemoryWorld) -> None:
    async with mirroring(world):
        await eventually(lambda: world.target.synced_at_ms > 0)
        world.source.is_up = False
        await eventually(lambda: world.target.words[-1].problems == {"all groups": "site a is down"})
        assert world.target.words[-1].synced_at_ms == 0


async def test_offsets_that_another_daemon_has_carried_meanwhile_do_not_go_back(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M4: a partition returns to this daemon, which does not know the present end of its copy or
    the offsets of its groups.
    """
    async with mirroring(world) as mirror:
        await are_carried(world)
        world.owns, world.slots = lambda _: False, frozenset()
        await eventually(lambda: not mirror.board.our_rows())
        rounds = world.target.group_rounds
        await eventually(lambda: world.target.group_rounds > rounds + 2)
        world.source.produce("orders", 0, 5)
        world.target.logs[FIRST].batches = list(world.source.logs[FIRST].batches)
        for site in (world.source, world.target):
            site.group_offsets["billing"][FIRST] = GroupOffset(27)
        known_ends, is_told = world.target.log_ends, asyncio.Event()

        async def ends_when_told(leaders: Mapping[TopicPartition, Leader]) -> Mapping[TopicPartition, LogAnswer]:
            await is_told.wait()
            return await known_ends(leaders)

        monkeypatch.setattr(world.target, "log_ends", ends_when_told)
        world.target.commits.clear()
        world.owns, world.slots = lambda _: True, ALL_SLOTS
        await eventually(mirror.board.our_rows)
        rounds = world.target.group_rounds
        await eventually(lambda: world.target.group_rounds > rounds + 3)
        assert ("billing", FIRST, 15) not in world.target.commits
        is_told.set()
        world.source.group_offsets["billing"][FIRST] = GroupOffset(30)
        await are_carried(world)


async def test_offsets_that_went_with_a_copy_are_written_again_without_a_report(
    world: MemoryWorld,
) -> None:
    """Another daemon of the link has deleted the copy and made it anew, between two looks of this
    daemon.
    """
    async with mirroring(world):
        await are_carried(world)
        world.target.delete("orders")
        world.target.add("orders", 2)
        world.target.group_offsets.clear()
        await eventually(world.is_equal)
        await are_carried(world)


async def test_the_time_that_a_group_s_offsets_take_is_shown_by_mirror_maker_s_name(world: MemoryWorld) -> None:
    registry = CollectorRegistry()
    place = {"source": "a", "target": "b", "group": "billing", "topic": "orders", "partition": "0"}

    def latency_ms() -> float | None:
        return registry.get_sample_value(
            "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms_max", place
        )

    async with mirroring(world, registry=registry):
        assert latency_ms() is None
        await are_carried(world)
        await eventually(lambda: latency_ms() is not None)


async def test_offsets_that_the_source_forgot_are_forgotten_at_the_target_and_groups_with_them(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_decisions, "FORGOTTEN_AFTER_MS", 100)
    async with mirroring(world):
        await are_carried(world)
        del world.source.group_offsets["billing"][SECOND]
        await are_carried(world)
        del world.source.group_offsets["billing"]
        await eventually(lambda: not world.target.group_offsets["billing"])
        assert world.target.group_offsets["live"] == world.source.group_offsets["live"]


async def test_offsets_of_a_topic_that_is_gone_from_the_source_stay_with_its_copy(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mirroring(world) as mirror:
        await are_carried(world)
        monkeypatch.setattr(group_decisions, "FORGOTTEN_AFTER_MS", 0)
        world.source.delete("orders")
        await eventually(lambda: states(mirror) == {FlowState.RESET})
        world.source.group_offsets.clear()
        before = world.source.offset_requests
        await eventually(lambda: world.source.offset_requests > before + 3)
        assert world.target.group_offsets["billing"] == {FIRST: GroupOffset(6), SECOND: GroupOffset(9)}


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_problem_of_one_group_is_reported_and_delays_no_other_group(world: MemoryWorld, side: str) -> None:
    """MM-20."""
    registry = CollectorRegistry()

    def failing() -> float | None:
        return registry.get_sample_value("antipode_mirror_groups_failing", {"link": "a-b"})

    site = getattr(world, side)
    site.group_problems["billing"] = "coordinator_not_available: the standby broker is down"
    async with mirroring(world, registry=registry) as mirror:
        await eventually(lambda: world.target.group_offsets.get("live") == world.source.group_offsets["live"])
        assert "billing" not in world.target.group_offsets
        await eventually(lambda: dict(describe(mirror).group_problems) == site.group_problems)
        assert failing() == 1
        (since_ms,) = describe(mirror).groups_stale_since_ms.values()
        assert since_ms <= time.time() * 1000
        staleness = {"link": "a-b", "group": "billing"}
        assert (registry.get_sample_value("antipode_mirror_group_staleness_seconds", staleness) or -1) >= 0
        world.source.group_offsets["live"][FIRST] = GroupOffset(12)
        await eventually(lambda: world.target.group_offsets["live"][FIRST] == GroupOffset(12))
        site.group_problems.clear()
        await are_carried(world)
        await eventually(lambda: not describe(mirror).group_problems)
        assert failing() == 0
        assert registry.get_sample_value("antipode_mirror_group_staleness_seconds", staleness) is None


async def test_for_how_long_a_group_fails_is_known_after_a_clock_was_put_back(world: MemoryWorld) -> None:
    clock = ManualClock()
    world.source.group_problems["billing"] = "refused"
    board = MagicMock(rows=list, our_rows=list)
    ports: dict[str, Any] = {"source": world.source, "target": world.target, "link": lambda: stand(world.record, "b")}
    sync = GroupSync(board, **ports, clock=clock, interval_ms=50)
    await sync.round()
    clock.set_now_ms(clock.now_ms() - 3_600_000)
    clock.advance(5_000)
    assert (clock.now_ms() - sync.report.stale_since_ms["billing"], clock.now_ms() - sync.report.synced_at_ms) == (
        5_000,
        5_000,
    )
    await sync.round()
    clock.advance(1_000)
    assert (clock.now_ms() - sync.report.stale_since_ms["billing"], clock.now_ms() - sync.report.synced_at_ms) == (
        6_000,
        1_000,
    )


async def test_offsets_that_the_target_refuses_are_reported(world: MemoryWorld) -> None:
    world.target.commit_errors["billing"] = ErrorCode.group_authorization_failed
    async with mirroring(world) as mirror:
        await eventually(lambda: world.target.group_offsets.get("live") == world.source.group_offsets["live"])
        reported = {
            "billing": "the target refuses offset commits: orders-0 group_authorization_failed, orders-1 group_authorization_failed"
        }
        await eventually(lambda: dict(describe(mirror).group_problems) == reported)
        world.target.commit_errors.clear()
        await are_carried(world)
        await eventually(lambda: not describe(mirror).group_problems)


async def test_while_a_site_does_not_answer_no_group_counts_as_carried(world: MemoryWorld) -> None:
    async with mirroring(world) as mirror:
        await are_carried(world)
        world.source.is_up = False
        await eventually(lambda: dict(describe(mirror).group_problems) == {"all groups": "site a is down"})
        world.source.is_up = True
        await eventually(lambda: not describe(mirror).group_problems)


async def test_a_broker_that_does_not_list_its_groups_is_reported_and_known_groups_continue(world: MemoryWorld) -> None:
    async with mirroring(world) as mirror:
        await are_carried(world)
        reported = await world.source.groups()
        world.source.group_problems["broker 3"] = "connection refused"
        assert (await world.source.groups()).by_group == reported.by_group
        await eventually(lambda: "broker 3" in describe(mirror).group_problems)
        world.source.group_offsets["live"][FIRST] = GroupOffset(12)
        await eventually(lambda: world.target.group_offsets["live"][FIRST] == GroupOffset(12))


async def test_offsets_of_a_copy_that_was_made_anew_are_carried_anew(world: MemoryWorld) -> None:
    async with mirroring(world) as mirror:
        await are_carried(world)
        world.source.ids["orders"] = world.source.ids["orders"].__class__(int=9)
        await eventually(lambda: states(mirror) == {FlowState.RESET})
        await mirror.resets.reset(["orders"], is_dry_run=False)
        world.target.group_offsets.clear()  # a coordinator forgets the offsets of a deleted topic
        await are_carried(world)
