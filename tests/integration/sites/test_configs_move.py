"""F10: configs of topics and groups, and numbers of partitions, that an operator changes right
before the sites change places are at the promoted site, and cannot change while the source is
fenced.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.embedded.site_access import (
    command,
    is_protected,
    set_group_configs,
    site_a_fenced,
    with_long_rounds,
)
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import site_client
from wire.client.client_errors import BrokerError
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_config_requests import group_configs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

GROUP = "billing"
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
PATIENT = ("--unavailability-max-ms", "120000", "--drain-timeout-ms", "120000")


async def alter(client: KafkaClient, to_set: Mapping[str, str], *to_remove: str) -> None:
    outcome = await client.alter_topic_configs(TOPIC, to_set=to_set, to_remove=to_remove)
    assert not outcome.error_code, outcome


async def topic_configs(sites: EmbeddedSites, site: str) -> Mapping[str, str | None]:
    """Empty until the site has the topic."""
    async with site_client(sites.bootstrap(site)) as client:
        return (await client.topic_configs([TOPIC])).get(TOPIC, {})


async def configs_of_groups(sites: EmbeddedSites, site: str) -> Mapping[str, Mapping[str, str]]:
    async with site_client(sites.bootstrap(site)) as client:
        return await group_configs(client)


async def test_f10_configs_and_partitions_follow_a_move_that_comes_right_after_their_change(
    start_sites: SitesStarter,
) -> None:
    sites = start_sites()
    await create_topic(sites)
    produce(sites, 10)
    async with site_client(sites.bootstrap("a")) as client:
        await alter(client, {"retention.ms": "1000000", "max.message.bytes": "500000"})
    await set_group_configs(sites, "a", GROUP, {SESSION: "50000"})
    with_long_rounds(sites)

    async def has_first_round() -> bool:
        return (await topic_configs(sites, "b")).get("retention.ms") == "1000000" and GROUP in (
            await configs_of_groups(sites, "b")
        )

    await eventually(has_first_round)
    await equal_ends(sites)
    eventually_sync(lambda: is_protected(sites))

    async with site_client(sites.bootstrap("a")) as client:
        assert not (await client.grow_topic(TOPIC, 4)).error_code
        await alter(client, {"retention.ms": "2000000"}, "max.message.bytes")
    await set_group_configs(sites, "a", GROUP, {HEARTBEAT: "7000"}, SESSION)
    account = command(sites, "switchover", LINK, "--to", "b", *PATIENT)["account"]
    assert "topic configs and group configs before the fence is kept" in account["access"]["sentence"]
    moved = await topic_configs(sites, "b")
    assert moved["retention.ms"] == "2000000"
    assert "max.message.bytes" not in moved
    assert (await configs_of_groups(sites, "b"))[GROUP] == {HEARTBEAT: "7000"}
    async with site_client(sites.bootstrap("b")) as client:
        assert len((await client.metadata([TOPIC])).topics[TOPIC].partitions) == 4

    eventually_sync(lambda: is_protected(sites))
    command(sites, "switchover", LINK, "--to", "a", *PATIENT)
    async with site_a_fenced(sites), site_client(sites.bootstrap("a")) as client:
        with pytest.raises(BrokerError, match="link 'a-b' is fenced for a failover to site 'b'"):
            await set_group_configs(sites, "a", GROUP, {SESSION: "60000"})
        refused = await client.alter_topic_configs(TOPIC, to_set={"retention.ms": "1"})
        assert "link 'a-b' is fenced for a failover" in str(refused.error_message)
