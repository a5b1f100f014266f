"""A copy with three replicas is truncated for a mirror: followers that are down or paused at that
moment, and a leader that is killed right after it, end with the same bytes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from mirror.link.ports import EndToKeep, Leader, TruncatedCopy, Unreachable
from mirror.topics.quarantine import KafkaQuarantine
from runtime.zookeeper.client import ZooKeeper
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually, eventually_sync
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import CALM, NODES, SETTLE_WITHIN_MS, ReplicatedSite
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.mirror_append_codec import MirrorAppend, PartitionToMirror, TopicToMirror
from wire.znodes.layout import link_path
from wire.znodes.link_znodes import encode_link

pytestmark = pytest.mark.integration

LINK, TOPIC = "a-b", "orders"
SHARED, OWN = 20, 10
LINK_EPOCH: Final = 2
PEER_EPOCH: Final = 50
"""The leader epoch of what comes from the other site."""


class PassiveSite:
    """Site a of three brokers, which was failed away from. Its one partition has `SHARED` records
    that site b has too, and then `OWN` records alone.
    """

    def __init__(self, site: ReplicatedSite, topic_id: uuid.UUID) -> None:
        self.site = site
        self.topic_id = topic_id

    @property
    def leader(self) -> int:
        """Its node id; -1 for none."""
        return self.site.leaders(TOPIC)[0]

    async def truncate(self, leader: int, offset: int = SHARED) -> TruncatedCopy:
        """The request that the link's mirror sends to the leader, tried until it has learned of the
        link.
        """
        found: list[TruncatedCopy] = []

        async def is_answered() -> bool:
            end = EndToKeep(topic_id=self.topic_id, leader=Leader(leader, 0), first_offset=offset)
            key = TopicPartition(TOPIC, 0)
            try:
                async with KafkaClient(self.site.nodes[leader].bootstrap, site_local=True) as client:
                    outcomes = await KafkaQuarantine(client).keep_and_truncate(
                        {key: end}, link=LINK, link_epoch=LINK_EPOCH, reason="histories differ"
                    )
            except (Unreachable, KafkaClientError):
                return False
            found[:] = [outcomes[key]]
            return not found[0].refusal

        await eventually(is_answered, SETTLE_WITHIN_MS)
        return found[0]

    def mirror(self) -> bytes:
        """Append records of site b at the end of the truncated copy. Returns their bytes."""
        records = batch([b"from b"] * 5, base_offset=SHARED, leader_epoch=PEER_EPOCH)
        sent = PartitionToMirror(0, SHARED, SHARED + 5, 0, 123, records)

        def is_appended() -> bool:
            with RawClient(self.site.nodes[self.leader].port) as client:
                request = MirrorAppend(LINK, LINK_EPOCH, [TopicToMirror(TOPIC, self.topic_id, [sent])])
                (answer,) = client.mirror_append(request).topics[0].partitions
            assert answer.error_code in (ErrorCode.none, ErrorCode.request_timed_out), answer
            return bool(answer.error_code is ErrorCode.none)

        eventually_sync(is_appended, SETTLE_WITHIN_MS)
        return records

    def check(self, mirrored: bytes) -> None:
        """All replicas are in sync with the same bytes: the shared history and the mirrored
        records, and none of the records that only this site had.
        """
        self.site.wait_in_sync(TOPIC)
        self.site.wait_equal(TOPIC, 1)
        for content in self.site.contents(TOPIC, 0).values():
            assert content.endswith(mirrored)
            assert b"shared" in content
            assert b"alone" not in content


@pytest.fixture
async def passive(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> AsyncIterator[PassiveSite]:
    site = await asyncio.to_thread(ReplicatedSite, processes, tmp_path, zookeeper_connect, CALM)
    await asyncio.to_thread(site.create, TOPIC, 1)
    with RawClient(site.nodes[site.leaders(TOPIC)[0]].port) as client:
        for value, count in ((b"shared", SHARED), (b"alone", OWN)):
            assert client.produce(TOPIC, batch([value] * count)).error_code == ErrorCode.none
    async with KafkaClient(site.bootstrap, site_local=True) as client:
        topic_id = (await client.metadata([TOPIC])).topics[TOPIC].topic_id
    link = LinkRecord(
        name=LINK,
        source_site="a",
        target_site="b",
        epoch=LINK_EPOCH,
        active_site="b",
        phase=LinkPhase.MIRRORING,
        topic_whitelist=[TOPIC],
        mode="exact",
    )
    zookeeper = ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    await zookeeper.ensure_path(link_path(LINK).rpartition("/")[0])
    await zookeeper.create(link_path(LINK), encode_link(link))
    passive = PassiveSite(site, topic_id)
    nothing = await passive.truncate(passive.leader, SHARED + OWN)  # the leader has learned of the link
    assert nothing == TruncatedCopy(log_end_offset=SHARED + OWN)
    yield passive
    await zookeeper.stop()


@pytest.mark.long
async def test_a_follower_that_is_down_during_the_truncation_follows_when_it_returns(passive: PassiveSite) -> None:
    site, leader = passive.site, passive.leader
    down = next(node for node in NODES if node not in (leader, site.controller()))
    site.nodes[down].process.kill()
    assert (await passive.truncate(leader)).log_end_offset == SHARED
    mirrored = await asyncio.to_thread(passive.mirror)
    assert b"alone" in site.contents(TOPIC, 0)[down]
    site.nodes[down].restart()
    passive.check(mirrored)


async def test_a_leader_that_dies_after_the_truncation_leaves_no_follower_with_the_removed_end(
    passive: PassiveSite,
) -> None:
    """Paused followers still have the removed records when one of them is elected: the records
    return, and are kept in quarantine and truncated there too.
    """
    site, leader = passive.site, passive.leader
    followers = [node for node in NODES if node != leader]
    for node in followers:
        site.nodes[node].process.pause()
    assert (await passive.truncate(leader)).log_end_offset == SHARED
    site.nodes[leader].process.kill()
    for node in followers:
        site.nodes[node].process.resume()
    eventually_sync(lambda: passive.leader in followers, SETTLE_WITHIN_MS)
    again = await passive.truncate(passive.leader)
    assert again.log_end_offset == SHARED
    site.nodes[leader].restart()
    mirrored = await asyncio.to_thread(passive.mirror)
    passive.check(mirrored)
