"""A daemon that shares its link reads the settings of the other daemons, and reports
differences.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry

from mirror.admin.service import describe
from mirror.assembly import Mirror
from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.core.slots import slot_of
from mirror.settings.config import MirrorConfig, load_config
from mirror.settings.configured_link import link_view_of
from mirror.sharing.agreed_settings import agreed_settings, self_description
from mirror.sharing.core.peers import DaemonShare
from mirror.sharing.ownership import Ownership
from runtime.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import ALL_SLOTS

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
LINK = {
    "link.name": "a-b",
    "link.mode": "translate",
    "source.bootstrap.servers": "h:1",
    "target.bootstrap.servers": "h:2",
}


def config(**settings: str) -> MirrorConfig:
    return load_config({**LINK, **{name.replace("_", "."): value for name, value in settings.items()}})


def share(name: str, slots: frozenset[int], problem: str = "", **settings: str) -> DaemonShare:
    described = config(**settings)
    daemon = self_description(described, link_view_of(described).record, name=name)
    return DaemonShare(daemon._replace(problem=problem), slots)


@asynccontextmanager
async def shared(world: MemoryWorld, registry: CollectorRegistry) -> AsyncIterator[tuple[Mirror, Ownership]]:
    """The daemon that has the second partition's slot of two, and carries `orders` alone."""
    world.ownership = Ownership(session_timeout_ms=600_000, clock=SystemClock())
    await world.ownership.take(frozenset({slot_of(SECOND)}), asked_at_ms=SystemClock().monotonic_ms())
    world.owns, world.slots = world.ownership.owns, world.ownership.slots
    world.ownership.own = share("m1", frozenset(), whitelist="orders").daemon
    async with mirroring(world, registry=registry) as mirror:
        await eventually(lambda: [key for key, _ in mirror.board.our_rows()] == [SECOND])
        yield mirror, world.ownership


async def test_partitions_in_the_share_of_a_daemon_with_other_filters_are_shown_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = CollectorRegistry()

    def figures() -> list[float | None]:
        names = ("disagreements", "untaken_partitions", "failing_daemons")
        return [registry.get_sample_value(f"antipode_mirror_{name}", {"link": "a-b"}) for name in names]

    with caplog.at_level(logging.WARNING):
        async with shared(world_with(partitions=2), registry) as (mirror, ownership):
            assert figures() == [0, 0, 0]
            ownership.others = (share("m2", ALL_SLOTS - {slot_of(SECOND)}, whitelist="payments"),)
            await eventually(lambda: describe(mirror).untaken_partitions)
            reply = describe(mirror)
            (untaken,) = reply.untaken_partitions
            assert (untaken.topic, untaken.partition, untaken.daemon, reply.untaken_count) == ("orders", 0, "m2", 1)
            (differing,) = reply.disagreements
            assert (differing.key, differing.value, differing.value_there) == ("whitelist", "orders", "payments")
            assert figures() == [1, 1, 0]
            assert differing.reason in caplog.text
            assert "key=whitelist value=orders daemon=m2 value_there=payments" in caplog.text
            assert "no daemon mirrors orders-0: it is assigned to daemon m2" in caplog.text
            ownership.others = (share("m2", ALL_SLOTS - {slot_of(SECOND)}, whitelist="orders"),)
            await eventually(lambda: figures() == [0, 0, 0])


async def test_another_daemon_that_fails_at_groups_is_shown_by_this_one() -> None:
    async with shared(world_with(partitions=2), CollectorRegistry()) as (mirror, ownership):
        ownership.others = (share("m2", frozenset(), "billing: refused", whitelist="orders"),)
        await eventually(lambda: dict(describe(mirror).failing_daemons) == {"m2": "billing: refused"})
        assert not describe(mirror).group_problems


async def test_other_daemons_see_this_daemons_failures_as_long_as_they_last() -> None:
    world = world_with(partitions=2)
    world.source.group_offsets = {"billing": {SECOND: GroupOffset(3)}}
    world.target.commit_errors["billing"] = ErrorCode.group_authorization_failed
    async with shared(world, CollectorRegistry()) as (_, ownership):
        reported = "billing: the target refuses offset commits: orders-1 group_authorization_failed"
        await eventually(lambda: ownership.own.problem == reported)
        world.target.commit_errors.clear()
        await eventually(lambda: not ownership.own.problem)


def test_settings_are_registered_as_a_file_has_them_and_in_one_order() -> None:
    one = agreed_settings(config(whitelist="b,a", isolation_level="read_uncommitted", topic_naming_policy="identity"))
    assert (one["whitelist"], one["isolation.level"], one["topic.naming.policy"]) == (
        "a,b",
        "read_uncommitted",
        "identity",
    )
    assert load_config({**LINK, **{key: value for key, value in one.items() if value}})
    assert agreed_settings(config(whitelist="a,b"))["whitelist"] == one["whitelist"]
    assert agreed_settings(config(num_streams="5")) == agreed_settings(config())


def test_daemons_of_an_exact_link_need_not_repeat_its_filters() -> None:
    exact = {"link.name": "a-b", "site.agents": "h:1"}
    filtered = load_config({**exact, "whitelist": "orders"})
    assert agreed_settings(filtered) == agreed_settings(load_config(exact))
    assert agreed_settings(load_config({**exact, "antipode.gap.policy": "skip-and-record"})) != agreed_settings(
        filtered
    )
