"""A planned move is no rebalance: members of groups of both protocols keep their ids, their
partitions and their positions, and read no record twice although they commit nothing meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from confluent_kafka import TopicPartition

from tests.support.clients.group_members import GroupMember
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.embedded.site_access import is_protected
from tests.support.eventually import eventually, eventually_sync

pytestmark = pytest.mark.integration

PARTITIONS = 4
RECORDS = 400
PROTOCOLS = ("classic", "consumer")


def owned_by(members: list[GroupMember]) -> list[list[int]]:
    """The partitions of each member; every member is polled."""
    return [member.partitions() for member in members]


async def moved(sites: EmbeddedSites, members: list[GroupMember], *, to: str) -> None:
    """A switchover; the members are polled meanwhile."""
    eventually_sync(lambda: is_protected(sites))
    moving = asyncio.create_task(asyncio.to_thread(sites.command, "switchover", "a-b", "--to", to, "--output", "json"))
    while not moving.done():
        await asyncio.to_thread(lambda: [member.poll() for member in members])
    done = await moving
    assert done.returncode == 0, done.stdout + done.stderr


async def read_all(groups: dict[str, list[GroupMember]], count: int) -> None:
    """Wait until each group has read so many records."""

    def has_all() -> bool:
        return all(sum([member.poll() for member in members]) >= count for members in groups.values())

    await eventually(has_all)


async def test_members_keep_their_places_and_positions_over_planned_moves(start_sites: SitesStarter) -> None:
    sites = start_sites()
    await create_topic(sites, PARTITIONS)
    await equal_ends(sites)
    both = f"{sites.bootstrap('a')},{sites.bootstrap('b')}"
    groups = {
        protocol: [GroupMember(both, TOPIC, f"board-{protocol}", protocol=protocol) for _ in range(2)]
        for protocol in PROTOCOLS
    }
    members = [member for of_group in groups.values() for member in of_group]
    try:
        await eventually(lambda: {len(owned) for owned in owned_by(members)} == {2})
        produce(sites, RECORDS, partitions=PARTITIONS)
        await read_all(groups, RECORDS)
        before = [(member.consumer.memberid(), member.partitions()) for member in members]
        for number, to in enumerate("ba", 1):
            await moved(sites, members, to=to)
            produce(sites, RECORDS, site=to, partitions=PARTITIONS)
            await read_all(groups, (number + 1) * RECORDS)
        assert [(member.consumer.memberid(), member.partitions()) for member in members] == before
        for protocol, of_group in groups.items():
            times = Counter(value for member in of_group for value in member.values)
            assert set(times.values()) == {3}, protocol
            for member in of_group:
                member.consumer.commit(asynchronous=False)
            member = of_group[0]
            wanted = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
            found = member.consumer.committed(wanted, timeout=10)
            assert [place.offset for place in found] == [3 * RECORDS // PARTITIONS] * PARTITIONS, protocol
    finally:
        for member in members:
            member.close()
    sites.stop()
