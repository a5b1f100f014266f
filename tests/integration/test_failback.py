"""The way back after an unplanned failover: the records that only the lost site has go into
quarantine, the site follows as standby again, and a planned move makes it active.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from typer.testing import CliRunner

from mirror.link.ports import EndToKeep, Leader
from mirror.topics.quarantine import KafkaQuarantine
from tests.integration.test_failing_over_again import (
    PATIENT_MS,
    Parted,
    have_both,
    is_mirroring,
    move,
    parted,
    produce,
)
from tests.support.embedded.commands import app
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.full_sites import LINK, LinkedSites
from tests.support.pairs.site_comparison import check_prefix
from wire.client.raw_client import KafkaClient
from wire.protocol import ids

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

GROUP = "board"
TOTAL = 85
"""60 records of both sites and 25 that were written at b."""


async def command(*arguments: str, code: int = 0) -> Any:
    """The output of a command, decoded from JSON."""
    ended = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--output=json"])
    assert ended.exit_code == code, ended.output
    return json.loads(ended.stdout)


async def entries(sites: LinkedSites) -> dict[tuple[str, int], tuple[int, int]]:
    """Offsets from and to that a's quarantine has of each partition; one entry of each."""
    found = await command("quarantine", "list", f"--bootstrap-server={sites.a.bootstrap}")
    places = [(one["topic"], one["partition"]) for one in found]
    assert len(set(places)) == len(places), found
    return {place: (one["first_offset"], one["end_offset"]) for place, one in zip(places, found, strict=True)}


async def check_standby(sites: LinkedSites, there: Parted) -> None:
    """Site a has b's bytes, and exactly the records that only it had are in its quarantine."""
    await eventually(lambda: have_both(sites, TOTAL), PATIENT_MS)
    await eventually(lambda: is_mirroring(sites.mirrors["a"]), PATIENT_MS)
    assert sum(end for end, _ in (await check_prefix(sites.b.bootstrap, sites.a.bootstrap)).values()) == TOTAL
    assert await entries(sites) == {key: (there.kept[key], there.abandoned[key]) for key in there.differing}


def committed(bootstrap: str) -> int | None:
    """None while the coordinator changes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 2})
    try:
        return int(consumer.committed([TopicPartition("flights", 0)], timeout=30)[0].offset)
    except KafkaException:
        return None
    finally:
        consumer.close()


def commit(bootstrap: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})

    def is_done() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition("flights", 0, offset)], asynchronous=False)
        except KafkaException:  # the first group of all: its coordinator is being made
            return False
        return True

    eventually_sync(is_done, PATIENT_MS)
    consumer.close()


async def test_a_returning_site_is_reinstated_by_a_command_and_made_active_again(sites: LinkedSites) -> None:
    ends: dict[str, int] = {}

    def read_to_the_end_at_a() -> None:
        consumer = Consumer({"bootstrap.servers": sites.a.bootstrap, "group.id": GROUP})
        ends["a"] = consumer.get_watermark_offsets(TopicPartition("flights", 0), timeout=30)[1]
        consumer.close()
        commit(sites.a.bootstrap, ends["a"])

    there = await parted(sites, at_a=read_to_the_end_at_a)
    commit(sites.b.bootstrap, 3)
    asked = ["links", "reinstate", LINK, f"--mirror={sites.mirrors['a']}"]

    async def is_planned() -> bool:
        found = await command(*asked, "--dry-run")
        planned = {(one["topic"], one["partition"]): one for one in found if one["outcome"] == "planned"}
        return {key: (one["from_offset"], one["end_offset"]) for key, one in planned.items()} == {
            key: (there.kept[key], there.abandoned[key]) for key in there.differing
        }

    assert there.differing
    await eventually(is_planned, PATIENT_MS)
    assert not await entries(sites)
    done = await command(*asked, "--yes")
    assert {(one["topic"], one["partition"]) for one in done if one["outcome"] == "reinstated"} == set(there.differing)
    await check_standby(sites, there)
    assert ends["a"] > 3
    await move(sites, "a")
    await produce(sites.b.bootstrap, 10, first=900)
    assert sum((await sites.ends("a")).values()) == TOTAL + 10
    await eventually(lambda: asyncio.to_thread(committed, sites.a.bootstrap), PATIENT_MS)
    assert await asyncio.to_thread(committed, sites.a.bootstrap) == 3, "the group goes on where it was at b"


async def test_an_automatic_link_reinstates_a_site_that_is_killed_between_the_steps(sites: LinkedSites) -> None:
    there = await parted(sites)
    async with KafkaClient(f"127.0.0.1:{sites.a.link_port}", site_local=True) as client:
        topic = (await client.metadata(["flights"])).topics["flights"]
        to_keep = {
            ids.TopicPartition(*place): EndToKeep(
                topic_id=topic.topic_id,
                leader=Leader(topic.partitions[place[1]].leader_id, topic.partitions[place[1]].leader_epoch),
                first_offset=there.kept[place],
            )
            for place in there.differing
        }
        quarantine = KafkaQuarantine(client)

        async def is_kept() -> bool:
            """True if the broker keeps the records. It refuses them while its image has the link at
            an older epoch than the controller.
            """
            refusals = await quarantine.keep(
                to_keep, link=LINK, link_epoch=there.report.epoch, reason="killed after this"
            )
            return set(refusals.values()) == {""}

        await eventually(is_kept, PATIENT_MS)
    sites.a.process.kill()
    await asyncio.to_thread(sites.a.restart)
    agents = [f"--site={name}={addresses[0]}" for name, addresses in sites.agents.items()]
    altered = await command("links", "alter", LINK, "--reinstate=automatic", *agents)
    assert altered["reinstate_policy"] == "automatic"
    await eventually(lambda: "copy truncated to the history" in sites.a.process.log_text(), PATIENT_MS)
    sites.a.process.kill()
    await asyncio.to_thread(sites.a.restart)
    await check_standby(sites, there)
    await move(sites, "a")
