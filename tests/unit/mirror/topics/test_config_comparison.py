"""When the mirror compares the configs of all topics, and which digest it reports of them."""

from __future__ import annotations

from structlog.testing import capture_logs

from mirror.link.core.link_roles import LinkRole
from mirror.link.core.topic_plan import AlterConfigs
from mirror.topics.config_comparison import ConfigComparison
from tests.support.clock import ManualClock
from tests.support.memory.memory_sites import MemorySite
from wire.rules.access_digests import TOPIC_CONFIGS, topic_configs_digest

INTERVAL_MS = 5_000
MIRRORING, DRAINING = LinkRole.MIRRORING, LinkRole.DRAINING


class Sites:
    """Two sites with one topic, and the comparison between them."""

    def __init__(self) -> None:
        self.source, self.target, self.clock = MemorySite("a", 1), MemorySite("b", 2), ManualClock()
        for site in (self.source, self.target):
            site.add("orders", 1)
        self.source.topic_configs["orders"] = {"retention.ms": "1000"}
        self.comparison = ConfigComparison(self.source, self.target, clock=self.clock, interval_ms=INTERVAL_MS)

    async def is_whole(self, role: LinkRole) -> bool:
        """One round, whose changes the target makes."""
        read = await self.comparison.read(["orders"], ["orders"], role)
        self.comparison.note_carried(read)
        return read.is_whole

    @property
    def digest(self) -> str:
        """The reported digest."""
        return self.comparison.carried.digests[TOPIC_CONFIGS]


async def test_all_configs_are_compared_each_interval_and_under_the_fence_from_the_second_round_on() -> None:
    sites = Sites()
    assert await sites.is_whole(MIRRORING)
    assert not await sites.is_whole(MIRRORING)
    sites.clock.advance(INTERVAL_MS)
    assert await sites.is_whole(MIRRORING)
    rounds = [await sites.is_whole(role) for role in (DRAINING, DRAINING, DRAINING, MIRRORING, DRAINING)]
    assert rounds == [False, True, True, False, False]


async def test_the_digest_is_that_of_the_source_as_it_was_carried() -> None:
    sites = Sites()
    assert sites.digest == ""
    await sites.is_whole(MIRRORING)
    sites.clock.advance(40)
    assert sites.digest == topic_configs_digest(sites.source.topic_configs)
    assert sites.comparison.carried.round_ms_ago == 40
    sites.comparison.note_actions([AlterConfigs(name="orders", set={"retention.ms": "2000"}, remove=())])
    assert sites.digest == "", "the target may have a part of the changes"
    await sites.is_whole(MIRRORING)
    assert sites.digest == "", "a round that reads no configs shows nothing"
    sites.clock.advance(INTERVAL_MS)
    await sites.is_whole(MIRRORING)
    assert sites.digest == topic_configs_digest(sites.source.topic_configs)
    sites.comparison.forget()
    assert sites.comparison.carried == ({TOPIC_CONFIGS: ""}, None)


async def test_topics_whose_configs_a_site_hides_are_logged_once() -> None:
    sites = Sites()
    sites.source.hidden_configs.add("orders")
    with capture_logs() as logged:
        for _ in range(2):
            await sites.is_whole(MIRRORING)
            sites.clock.advance(INTERVAL_MS)
    (line,) = logged
    assert (line["source"], line["target"]) == (["orders"], [])
    sites.source.hidden_configs.clear()
    await sites.is_whole(MIRRORING)
    assert sites.digest == topic_configs_digest(sites.source.topic_configs)
