"""A group of a hundred members in a storm, by each protocol, at three brokers.

Promised: no lost commit, no double ownership, committed offsets that never go back, every record read (S1 to S6).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.rebalance_storm import PROTOCOLS, Storm
from wire.client import KafkaClient, NewTopic, call_client

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(900)]

MEMBERS, PARTITIONS, GUSTS = 100, 120, 6
BROKER_CONFIGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.session.timeout.ms=6000",
)


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[EmbeddedSites]:
    starter = SitesStarter(tmp_path)
    configs = [argument for config in BROKER_CONFIGS for argument in ("--broker-config", config)]
    try:
        yield starter("--sites", "a", "--brokers", "3", "--no-link", "--no-proxy", *configs)
    finally:
        starter.end_all()


def storm(sites: EmbeddedSites, protocol: str) -> Storm:
    bootstrap = sites.bootstrap("a")

    async def create(client: KafkaClient) -> None:
        wanted = NewTopic(name="t", partition_count=PARTITIONS, replication_factor=3)
        (outcome,) = await client.create_topics([wanted])
        assert not outcome.error_code, outcome

    def committed(group: str) -> dict[int, int]:
        async def ask(client: KafkaClient) -> dict[int, int]:
            return {index: kept.offset for (_, index), kept in (await client.committed(group)).items()}

        return call_client(bootstrap, ask)

    call_client(bootstrap, create)
    return Storm(
        bootstrap_servers=bootstrap,
        topic="t",
        partition_count=PARTITIONS,
        protocol=protocol,
        member_count=MEMBERS,
        gust_count=GUSTS,
        seed=7,
        committed=committed,
    )


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_a_hundred_members_come_and_go_and_nothing_is_lost(sites: EmbeddedSites, protocol: str) -> None:
    print(storm(sites, protocol).run())
