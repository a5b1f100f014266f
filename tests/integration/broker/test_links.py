"""Link roles at a broker process: writers that are admitted, batches that a mirror may append, and
the effects of a promotion.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from runtime.grpc_server import open_channel
from tests.integration.broker.test_requests import create, want
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.client.requests.fetch_requests import FetchRequest
from wire.control import broker_pb2, cluster_pb2
from wire.control.broker_pb2_grpc import BrokerControlStub
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.messages.mirror_append_codec import MirrorAppend, PartitionToMirror, TopicToMirror
from wire.protocol.messages.private import SITE_METADATA

pytestmark = pytest.mark.integration

LINK, TOPIC = "a-b", "orders"
PEER = 2001


class LinkedSite:
    """A broker of site b; the test sends the messages of its controller and site agent."""

    def __init__(self, broker: LoneBroker, stub: Any, client: RawClient) -> None:
        self.broker = broker
        self.stub = stub
        self.client = client
        self.topic_id = create(client, TOPIC)

    async def set_link(self, *, epoch: int, active: str, floor: int = 0, leader_epoch: int = 0, **fields: Any) -> None:
        link = LinkRecord(
            name=LINK,
            source_site="a",
            target_site="b",
            epoch=epoch,
            active_site=active,
            phase=fields.pop("phase", LinkPhase.MIRRORING),
            leader_epoch_floor=floor,
            topic_whitelist=["orders.*"],
            is_routed=fields.pop("routed", True),
        )
        state = cluster_pb2.PartitionState(partition=0, leader=1, leader_epoch=leader_epoch, replicas=[1], isr=[1])
        await self.stub.Apply(
            broker_pb2.ControlBatch(
                controller_id=1,
                controller_epoch=1,
                brokers=[self._own()],
                links=[link],
                topics=[self._topic(state)],
            )
        )

    def _topic(self, state: cluster_pb2.PartitionState) -> cluster_pb2.TopicInfo:
        kept = {"retention.ms": "-1"}  # the tests' records are old
        return cluster_pb2.TopicInfo(name=TOPIC, topic_id=self.topic_id, partitions=[state], configs=kept)

    def _own(self) -> cluster_pb2.BrokerInfo:
        endpoint = cluster_pb2.Endpoint(listener="CLIENT", host="127.0.0.1", port=self.broker.port)
        return cluster_pb2.BrokerInfo(node_id=1, endpoints=[endpoint])

    async def confirm(self, epoch: int) -> bool:
        reply = await self.stub.ConfirmLink(broker_pb2.ConfirmLinkRequest(link=LINK, epoch=epoch))
        return bool(reply.is_confirmed)

    def mirror(
        self,
        expected: int,
        records: bytes | None,
        *,
        epoch: int = 1,
        source_start: int = 0,
        topic_id: bytes | None = None,
    ) -> Any:
        partition = PartitionToMirror(0, expected, 1000, source_start, 123, records)
        topic = TopicToMirror(TOPIC, uuid.UUID(bytes=topic_id or self.topic_id), [partition])
        return self.client.mirror_append(MirrorAppend(LINK, epoch, [topic])).topics[0].partitions[0]

    def fetched(self, offset: int = 0) -> bytes:
        request = FetchRequest([want(TOPIC, offset)], max_wait_ms=0, replica_id=-2)
        (partition,) = self.client.fetch(request).topics[0].partitions
        assert partition.error_code == 0
        return bytes(partition.records)

    async def describe(self) -> Any:
        reply = await self.stub.DescribePartitions(broker_pb2.DescribePartitionsRequest(link=LINK))
        return reply.partitions[0]


@pytest.fixture
async def site(start_broker: Callable[..., LoneBroker]) -> AsyncIterator[LinkedSite]:
    broker = start_broker(antipode_site_name="b")
    channel = open_channel(f"127.0.0.1:{broker.facts['grpc']}")
    with RawClient(broker.port) as client:
        yield LinkedSite(broker, BrokerControlStub(channel), client)
    await channel.close()


def source_log(*counts: int, epoch: int = 0) -> Iterator[bytes]:
    offset = 0
    for count in counts:
        yield batch([b"source"] * count, base_offset=offset, leader_epoch=epoch)
        offset += count


async def test_mirrored_batches_are_stored_byte_for_byte(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    first, second, third = source_log(3, 4, 5, epoch=7)
    assert site.mirror(0, first + second).log_end_offset == 7
    assert site.mirror(7, third).log_end_offset == 12
    assert site.fetched() == first + second + third
    described = await site.describe()
    assert (described.source_high_watermark, described.source_seen_at_ms, described.last_log_epoch) == (1000, 123, 7)
    assert not described.is_writable


async def test_a_brief_description_waits_until_a_record_is_in_force(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="b")
    fence = cluster_pb2.LinkRecord(name=LINK, epoch=1, phase=LinkPhase.FENCED)
    request = broker_pb2.DescribePartitionsRequest(link=LINK, is_brief=True, awaited=fence, wait_ms=60_000)
    waiting = asyncio.ensure_future(site.stub.DescribePartitions(request))
    assert (await site.describe()).link_epoch == 1  # the broker answers others meanwhile
    assert not waiting.done()
    await site.set_link(epoch=1, active="b", phase=LinkPhase.FENCED)
    reply = await waiting
    assert dict(reply.link_epochs) == {LINK: 1}
    assert not reply.partitions


async def test_records_sent_again_are_acknowledged_and_not_stored_twice(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    first, second, third = source_log(3, 4, 5)
    site.mirror(0, first + second)
    for expected, records in ((0, first), (3, second), (0, first + second), (3, second + third)):
        assert site.mirror(expected, records).error_code is ErrorCode.none
    assert site.fetched() == first + second + third


async def test_a_gap_is_refused_with_where_the_log_ends(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    first, _second, third = source_log(3, 4, 5)
    site.mirror(0, first)
    refused = site.mirror(7, third)
    assert (refused.error_code, refused.log_end_offset, refused.divergence_epoch) == (
        ErrorCode.offset_out_of_range,
        3,
        -1,
    )
    cut = site.mirror(1, batch([b"x"] * 4, base_offset=1))
    assert (cut.error_code, cut.log_end_offset, cut.divergence_epoch) == (ErrorCode.offset_out_of_range, 3, -1)


async def test_another_history_is_refused_with_what_the_log_knows(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    first, second = source_log(3, 4, epoch=5)
    site.mirror(0, first + second)
    other = site.mirror(3, batch([b"other"] * 4, base_offset=3, leader_epoch=5))
    assert (other.error_code, other.divergence_epoch, other.divergence_end_offset) == (
        ErrorCode.offset_out_of_range,
        5,
        7,
    )
    again = site.mirror(7, batch([b"other"] * 4, base_offset=3, leader_epoch=5))
    assert (again.error_code, again.divergence_epoch) == (ErrorCode.offset_out_of_range, 5)
    assert again.error_message == "the log has another batch at offset 3, under leader epoch 5"
    longer = site.mirror(7, batch([b"other"] * 5, base_offset=3, leader_epoch=5))
    assert (longer.error_code, longer.divergence_epoch) == (ErrorCode.offset_out_of_range, 5)
    older = site.mirror(7, batch([b"old"], base_offset=7, leader_epoch=4))
    assert older.error_code is ErrorCode.offset_out_of_range
    assert older.divergence_epoch >= 0
    assert site.fetched() == first + second


async def test_a_damaged_batch_is_refused_and_nothing_is_stored(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    first, second = source_log(3, 4)
    damaged = second[:-1] + bytes([second[-1] ^ 1])
    assert site.mirror(0, first + damaged).error_code is ErrorCode.corrupt_message
    assert site.fetched() == b""


async def test_the_sources_log_start_is_followed(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    first, second, third = source_log(3, 4, 5)
    site.mirror(0, first + second)
    site.mirror(7, None, source_start=3)
    assert (await site.describe()).log_start_offset == 3
    assert site.mirror(0, first + second).error_code is ErrorCode.none
    assert site.mirror(7, third, source_start=3).log_end_offset == 12


async def test_a_log_that_the_source_left_behind_restarts_where_the_source_begins(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    (first,) = source_log(3)
    site.mirror(0, first)
    late = batch([b"late"] * 2, base_offset=100)
    assert site.mirror(100, late, source_start=100).log_end_offset == 102
    described = await site.describe()
    assert (described.log_start_offset, described.log_end_offset) == (100, 102)


async def test_a_log_that_lost_its_end_restarts_nowhere_while_the_source_has_what_it_lacks(site: LinkedSite) -> None:
    """M1: the target's log loses its last batches while the source expires the earlier ones; the
    mirror does not know it yet, and continues with the next batch.
    """
    await site.set_link(epoch=1, active="a")
    first, _second, _third, fourth = source_log(3, 4, 5, 6)
    site.mirror(0, first)
    refused = site.mirror(12, fourth, source_start=7)
    assert (refused.error_code, refused.log_end_offset) == (ErrorCode.offset_out_of_range, 3)
    nothing = site.mirror(12, None, source_start=7)
    assert (nothing.error_code, nothing.log_end_offset) == (ErrorCode.offset_out_of_range, 3)
    assert site.fetched() == first


async def test_only_the_links_mirror_at_the_same_epoch_may_append(site: LinkedSite) -> None:
    (first,) = source_log(3)
    assert site.mirror(0, first).error_code is ErrorCode.unknown_leader_epoch
    await site.set_link(epoch=4, active="a")
    assert site.mirror(0, first, epoch=3).error_code is ErrorCode.fenced_leader_epoch
    assert site.mirror(0, first, epoch=5).error_code is ErrorCode.unknown_leader_epoch
    assert site.mirror(0, first, epoch=4, topic_id=b"x" * 16).error_code is ErrorCode.inconsistent_topic_id
    assert site.mirror(0, first, epoch=4).error_code is ErrorCode.none


async def test_clients_of_a_passive_site_are_sent_to_the_active_one(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    endpoint = cluster_pb2.Endpoint(listener="CLIENT", host="peer.example", port=9)
    state = cluster_pb2.PartitionState(partition=0, leader=PEER, leader_epoch=3, replicas=[PEER], isr=[PEER])
    await site.stub.UpdatePeerView(
        cluster_pb2.SiteView(
            site="a",
            version=1,
            brokers=[cluster_pb2.BrokerInfo(node_id=PEER, endpoints=[endpoint])],
            topics=[cluster_pb2.TopicInfo(name=TOPIC, topic_id=site.topic_id, partitions=[state])],
        )
    )
    metadata = site.client.metadata(TOPIC)
    assert {(broker.node_id, broker.host) for broker in metadata.brokers} == {(1, "127.0.0.1"), (PEER, "peer.example")}
    (partition,) = metadata.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == (PEER, 3)
    own = site.client.metadata(TOPIC, api_key=SITE_METADATA)
    assert own.topics[0].partitions[0].leader_id == 1
    refused = site.client.produce(TOPIC, batch([b"v"]), version=10)
    assert refused.error_code == ErrorCode.not_leader_or_follower
    assert refused.current_leader.leader_id == PEER
    (read,) = site.client.fetch(FetchRequest([want(TOPIC)], max_wait_ms=0)).topics[0].partitions
    assert read.error_code == ErrorCode.not_leader_or_follower


async def test_a_passive_site_does_not_create_what_the_link_will_bring(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    response = site.client.call(
        19,
        7,
        {
            "topics": [
                {"name": "orders-2", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            ]
        },
    )
    assert response.topics[0].error_code is ErrorCode.policy_violation
    assert "active site is a" in response.topics[0].error_message
    metadata = site.client.metadata("orders-2", may_create=True)
    assert metadata.topics[0].error_code is ErrorCode.unknown_topic_or_partition


async def test_a_promotion_takes_effect_when_confirmed_and_above_the_floor(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    site.mirror(0, b"".join(source_log(3, 4, epoch=5)))
    await site.set_link(epoch=2, active="b", floor=1 << 20, leader_epoch=0)
    assert await site.confirm(2)
    assert site.client.produce(TOPIC, batch([b"v"])).error_code == ErrorCode.not_leader_or_follower
    await site.set_link(epoch=2, active="b", floor=1 << 20, leader_epoch=1 << 20)
    assert site.client.produce(TOPIC, batch([b"v"])).base_offset == 7
    assert site.mirror(8, None, epoch=1).error_code is ErrorCode.fenced_leader_epoch
    assert site.mirror(8, None, epoch=2).error_code is ErrorCode.not_leader_or_follower
    epochs = site.client.call(
        23, 4, {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 5}]}]}
    )
    assert epochs.topics[0].partitions[0].end_offset == 7


async def test_an_unconfirmed_promotion_accepts_no_writes(site: LinkedSite) -> None:
    await site.set_link(epoch=3, active="b")
    assert site.client.produce(TOPIC, batch([b"v"])).error_code == ErrorCode.not_leader_or_follower
    assert not await site.confirm(2)
    assert await site.confirm(3)
    assert site.client.produce(TOPIC, batch([b"v"])).error_code == 0


async def test_fencing_stops_writes_and_keeps_reads(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="b")
    await site.confirm(1)
    site.client.produce(TOPIC, batch([b"v"]))
    await site.set_link(epoch=2, active="b", phase=LinkPhase.FENCED)
    assert site.client.produce(TOPIC, batch([b"v"])).error_code == ErrorCode.not_leader_or_follower
    (read,) = site.client.fetch(FetchRequest([want(TOPIC)], max_wait_ms=0)).topics[0].partitions
    assert (read.error_code, read.high_watermark) == (0, 1)


async def test_a_write_under_a_fence_waits_until_the_active_role_is_decided(site: LinkedSite) -> None:
    """The broker appends the write if its site stays active, and refuses it if the other site
    becomes active.
    """
    await site.set_link(epoch=1, active="b")
    await site.confirm(1)
    site.client.produce(TOPIC, batch([b"v"]))
    for epoch, active, code in ((2, "b", ErrorCode.none), (4, "a", ErrorCode.not_leader_or_follower)):
        await site.set_link(epoch=epoch, active="b", phase=LinkPhase.FENCED)
        writing = asyncio.create_task(asyncio.to_thread(site.client.produce, TOPIC, batch([b"v"])))
        await asyncio.wait([writing], timeout=0.1)
        assert not writing.done()
        await site.set_link(epoch=epoch + 1, active=active)
        if active == "b":
            assert await site.confirm(epoch + 1)
        assert (await writing).error_code == code


async def test_an_idempotent_producer_that_was_ahead_goes_on_after_a_promotion(site: LinkedSite) -> None:
    await site.set_link(epoch=1, active="a")
    site.mirror(0, batch([b"m"] * 5, producer_id=77, producer_epoch=0, sequence=0))
    await site.set_link(epoch=2, active="b", floor=1 << 20, leader_epoch=1 << 20)
    await site.confirm(2)
    ahead = batch([b"after the loss"], producer_id=77, producer_epoch=0, sequence=9)
    assert site.client.produce(TOPIC, ahead).base_offset == 5
    gap = batch([b"a real gap"], producer_id=77, producer_epoch=0, sequence=50)
    assert site.client.produce(TOPIC, gap).error_code == ErrorCode.out_of_order_sequence_number
