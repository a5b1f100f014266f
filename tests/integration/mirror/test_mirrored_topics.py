"""The topics of a link: a mirror carries those of the filters, and new topics, partitions and
configs while it runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import wait_for_state
from tests.support.pairs.mirror_sites import start_pair
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient

pytestmark = pytest.mark.integration

RETENTION_MS = "4000000000000"
"""A lifetime: the batches are dated 1970."""
INTERNAL = {"__consumer_offsets", "__transaction_state"}


async def test_only_topics_of_the_link_are_mirrored(processes: Processes, tmp_path: Path) -> None:
    """MM-04, MM-11: the blacklist wins, unmatched is out."""
    pair = await start_pair(
        processes, tmp_path, whitelist=["orders.*", "control"], blacklist=["orders-secret", "control"]
    )
    for topic in ("orders", "orders-secret", "control", "other"):
        await pair.create(topic)
        await pair.produce(topic, 0, 2)
    pair.start_mirror()
    await pair.caught_up("orders")
    async with KafkaClient(pair.target.bootstrap, site_local=True) as client:
        assert set((await client.metadata()).topics) - INTERNAL == {"orders"}


async def test_new_topics_partitions_and_configs_follow_while_it_runs(processes: Processes, tmp_path: Path) -> None:
    """M6: one refresh interval, ids included; a local change at the target is undone."""
    pair = await start_pair(processes, tmp_path)
    mirror = pair.start_mirror()
    await pair.create("late", 2, {"retention.ms": RETENTION_MS})
    await pair.produce("late", 1, 3)
    await pair.caught_up("late", 2)
    async with (
        KafkaClient(pair.source.bootstrap) as source,
        KafkaClient(pair.target.bootstrap, site_local=True) as target,
    ):
        ids = [(await client.metadata(["late"])).topics["late"].topic_id for client in (source, target)]
        assert ids[0] == ids[1]
        assert (await target.topic_configs(["late"]))["late"] == {"retention.ms": RETENTION_MS}
        await pair.grow("late", 3)
        await pair.produce("late", 2, 3)
        await pair.caught_up("late", 3)
        await pair.alter(pair.target, "late", {"retention.ms": "1", "segment.bytes": "1048576"})
        await pair.alter(pair.source, "late", {"cleanup.policy": "compact,delete"})

        async def configs_agree() -> bool:
            wanted = {"retention.ms": RETENTION_MS, "cleanup.policy": "compact,delete"}
            return (await target.topic_configs(["late"]))["late"] == wanted

        await eventually(configs_agree)
    await wait_for_state(mirror, "MIRRORING")
