"""Daemons that share a translate link and write in transactions: one is killed, one wakes up as a
zombie, and readers see nothing of it.
"""

from __future__ import annotations

import random

import pytest

from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror
from tests.support.pairs.translate_links import shares_of, until_a_random_moment
from tests.support.pairs.translate_transactions import MakeLink, TransactionalLink
from tests.support.processes.processes import RunningProcess

pytestmark = [pytest.mark.integration, pytest.mark.java]

PARTITIONS = 4
SHARING = {
    "antipode.sharing.enabled": "true",
    # Long enough that a daemon that is killed or stopped has a transaction open.
    "antipode.target.transactions.commit.interval.ms": "300",
}
FAULTS = 12


def through_zookeeper(connect: str) -> dict[str, str]:
    """Settings of daemons that share through a ZooKeeper."""
    given = {"antipode.sharing.zookeeper.connect": connect, "antipode.sharing.session.timeout.ms": "3000"}
    return SHARING | given


async def wait_shared(link: TransactionalLink, mirrors: list[RunningProcess], *sizes: int) -> None:
    """Wait until the daemons have so many partitions each."""
    await eventually(lambda: shares_of(mirrors, link.topic, sizes))


@pytest.mark.long
@pytest.mark.parametrize(
    ("through", "is_antipode_the_target"),
    [
        pytest.param("a group", False, id="a group of apache kafka", marks=pytest.mark.long),
        pytest.param("zookeeper", False, id="zookeeper, apache kafka"),
        pytest.param("a group", True, id="a group of antipode", marks=pytest.mark.long),
        pytest.param("zookeeper", True, id="zookeeper, antipode", marks=pytest.mark.long),
    ],
)
async def test_daemons_that_die_or_wake_up_as_zombies_leave_each_record_seen_once_and_in_order(
    transactional_link: MakeLink, zookeeper_connect: str, through: str, is_antipode_the_target: bool
) -> None:
    settings = through_zookeeper(zookeeper_connect) if through == "zookeeper" else SHARING
    topic = f"shared-{'group' if through == 'a group' else 'zookeeper'}-{is_antipode_the_target}"
    link = await transactional_link(topic, is_antipode=is_antipode_the_target, partitions=PARTITIONS, settings=settings)
    one, two = mirrors = [link.start_mirror(name) for name in ("one", "two")]
    await wait_shared(link, mirrors, 2, 2)
    async with link.loaded():
        await link.each_partition_went_on()
        one.kill()
        await link.each_partition_went_on()
        await link.demand_prefixes()
        one.start()
        await wait_shared(link, mirrors, 2, 2)
        await link.each_partition_went_on()
        two.pause()
        await wait_shared(link, [one], PARTITIONS)
        await link.each_partition_went_on()
        two.resume()
        await wait_shared(link, mirrors, 2, 2)
        await link.each_partition_went_on()
        await link.demand_prefixes()
    await link.wait_equal()
    await link.wait_agreement()

    async def is_only_claimed_by_the_living() -> bool:
        claims = (await link.noted()).claims.values()
        assert len([claim for claim in claims if claim.slots]) == len(mirrors), "what the dead had claimed is gone"
        return True

    await eventually(is_only_claimed_by_the_living)
    reported = [(await describe_mirror(mirror)).transactions for mirror in mirrors]
    assert all(one.committed > 0 for one in reported), reported
    assert len({one.transactional_id for one in reported}) == len(mirrors)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_antipode_the_target", [False, True], ids=["apache kafka", "antipode"])
async def test_daemons_killed_and_stopped_at_random_moments_leave_prefixes_each_time(
    transactional_link: MakeLink, zookeeper_connect: str, is_antipode_the_target: bool
) -> None:
    """Some stop for less than a session, some for longer; each round moves slots from or to a
    daemon in the middle of a transaction.
    """
    chance = random.Random(FAULTS)
    topic, settings = f"shared-at-random-{is_antipode_the_target}", through_zookeeper(zookeeper_connect)
    link = await transactional_link(topic, is_antipode=is_antipode_the_target, partitions=PARTITIONS, settings=settings)
    mirrors = [link.start_mirror(name) for name in ("one", "two", "three")]
    async with link.loaded():
        for _ in range(FAULTS):
            await link.each_partition_went_on()
            victim = chance.choice(mirrors)
            if chance.random() < 0.5:
                victim.kill()
                await until_a_random_moment(chance, within_s=6)
                victim.start()
            else:
                victim.pause()
                await until_a_random_moment(chance, within_s=6)
                victim.resume()
            await until_a_random_moment(chance, within_s=4)
            await link.demand_prefixes()
        await link.each_partition_went_on()
    await link.wait_equal()
    await link.wait_agreement()


@pytest.mark.long
async def test_a_mirror_that_does_not_share_and_daemons_that_do_are_not_at_it_together(
    transactional_link: MakeLink, zookeeper_connect: str
) -> None:
    link = await transactional_link("turned-shared", partitions=PARTITIONS)
    alone = link.start_mirror("alone")
    async with link.loaded():
        await link.each_partition_went_on()
        mirrors = [link.start_mirror(name, through_zookeeper(zookeeper_connect)) for name in ("one", "two")]
        await link.wait_faulted(alone, "another mirror writes")
        await wait_shared(link, mirrors, 2, 2)
        await link.each_partition_went_on()
    await link.wait_equal()
    await link.wait_agreement()
