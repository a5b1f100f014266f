"""Planned changes lose no acknowledged record: orderly stops, leaders that go back to preferred
replicas, other replicas for a partition, another number of fetchers.

Unavailability is measured and printed (`-s` shows it), never asserted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kio.schema.errors import ErrorCode

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.sites.replicated_site import NODES, ReplicatedSite
from tests.support.sites.replicated_topic import TOPIC, finish_unharmed, print_silences, produce_one
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import Unreachable
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import EpochQuery
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

pytestmark = pytest.mark.integration

PARTITIONS = 3


def alter_broker(site: ReplicatedSite, node: int, entry: ConfigEntry) -> None:
    """Change a broker's config; tried again when ZooKeeper was not to be had for a moment, as the
    answer asks for.
    """

    def is_altered() -> bool:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=[entry])
        try:
            site.admin.incremental_alter_configs([resource])[resource].result(120)
        except KafkaException as refusal:
            if refusal.args[0].code() != KafkaError.COORDINATOR_NOT_AVAILABLE:
                raise
            return False
        return True

    eventually_sync(is_altered)


async def test_the_number_of_fetchers_changes_under_load(site: ReplicatedSite) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        for count in ("4", "2", "1"):
            entry = ConfigEntry("num.replica.fetchers", count, incremental_operation=AlterConfigOpType.SET)
            for node in NODES:
                alter_broker(site, node, entry)
            load.wait_acknowledged(300)
        await finish_unharmed(site, load, PARTITIONS)


async def test_an_orderly_stop_moves_leaders_first(calm_site: ReplicatedSite) -> None:
    site = calm_site
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(500)
        leaving = site.nodes[site.leaders(TOPIC)[0]]
        since = time.monotonic()
        leaving.process.stop()
        assert "controlled shutdown moved all leaderships" in leaving.process.log_text()
        load.wait_acknowledged(500)
        print_silences("orderly stop of a leader", load, since)
        leaving.restart()
        await finish_unharmed(site, load, PARTITIONS)


async def test_a_leader_that_stops_in_order_names_its_successor_and_keeps_what_it_acknowledged(
    calm_site: ReplicatedSite,
) -> None:
    site = calm_site
    site.create(TOPIC, 1)
    leader = site.leaders(TOPIC)[0]
    batch = encode_batch([Record(key=None, value=b"on the move", timestamp_ms=0)])
    request = ProduceRequest(None, -1, 30_000, [TopicRecords(TOPIC, None, [PartitionRecords(0, batch)])])
    offsets: list[int] = []
    named: set[int] = set()
    async with KafkaClient(site.bootstrap) as client:
        await client.produce_to(leader, request)
        stopping = asyncio.create_task(asyncio.to_thread(site.nodes[leader].process.stop))
        with contextlib.suppress(Unreachable):  # in the end it is gone
            while response := await client.produce_to(leader, request):
                (produced,) = response.topics[0].partitions
                if produced.error_code == ErrorCode.none:
                    assert not named
                    offsets.append(produced.base_offset)
                else:
                    assert produced.error_code == ErrorCode.not_leader_or_follower
                    named.add(produced.current_leader.leader_id)
        await stopping
        client.forget_leaders([TOPIC])
        successor = await client.leader(TOPIC, 0)
        ends = await client.epoch_ends(successor, {(TOPIC, 0): EpochQuery(0)})
    assert successor != leader
    assert named <= {successor}
    assert offsets == list(range(1, len(offsets) + 1))
    # a record that a slow follower lacked at the change of leaders is refused, and may be in the
    # successor's log all the same
    is_in_doubt = "replication took too long" in site.nodes[leader].process.log_text()
    assert ends[TOPIC, 0].end_offset - len(offsets) - 1 in ((0, 1) if is_in_doubt else (0,))


def test_leaders_go_back_to_preferred_replicas_on_request(calm_site: ReplicatedSite) -> None:
    site = calm_site
    site.create(TOPIC, PARTITIONS)
    preferred = site.leaders(TOPIC)
    victim = site.nodes[preferred[0]]
    victim.process.stop()
    eventually_sync(lambda: victim.node_id not in site.leaders(TOPIC).values())
    victim.restart()
    site.wait_in_sync(TOPIC)
    site.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(120)
    eventually_sync(lambda: site.leaders(TOPIC) == preferred)


def reassign(site: ReplicatedSite, replicas: tuple[int, ...] | None, *, asked: int = NODES[0]) -> Any:
    with RawClient(site.nodes[asked].port) as client:
        partition = {"partition_index": 0, "replicas": replicas}
        response = client.call(45, 0, {"topics": [{"name": TOPIC, "partitions": [partition]}]})
    assert response.responses, response.error_code
    return response.responses[0].partitions[0].error_code.name


def replicas(site: ReplicatedSite) -> list[int]:
    (found,) = site.replicas(TOPIC)
    return found


async def test_a_partition_moves_to_other_brokers_under_load(site: ReplicatedSite) -> None:
    site.create(TOPIC, 1)
    leader = site.leaders(TOPIC)[0]
    target = tuple(node for node in NODES if node != leader)
    with AcknowledgedLoad(site.bootstrap, TOPIC, 1) as load:
        load.wait_acknowledged(300)
        assert reassign(site, None) == "no_reassignment_in_progress"
        assert reassign(site, (leader, leader)) == "invalid_replica_assignment"
        assert reassign(site, target) == "none"
        eventually_sync(lambda: replicas(site) == list(target))
        directory = site.directory_of(leader, TOPIC, 0)
        eventually_sync(lambda: not directory.exists())
        # the controller has named the removal: the log is not kept
        assert not list(directory.parent.glob(f"{TOPIC}-0.*-stray"))
        load.wait_acknowledged(300)
        assert reassign(site, (leader, *target)) == "none"
        eventually_sync(lambda: replicas(site) == [leader, *target])
        load.finish()
    site.wait_in_sync(TOPIC)
    await load.check_log(site.bootstrap)
    site.wait_equal(TOPIC, 1)


async def test_a_reassignment_to_a_dead_broker_can_be_cancelled(site: ReplicatedSite) -> None:
    site.create(TOPIC, 1)
    before = replicas(site)
    controller = site.controller()
    away = next(node for node in reversed(before) if node != controller)
    kept = [node for node in before if node != away]
    assert reassign(site, tuple(kept)) == "none"
    eventually_sync(lambda: replicas(site) == kept)
    paused = site.nodes[away].process
    paused.pause()
    eventually_sync(lambda: reassign(site, (away, kept[0]), asked=kept[0]) == "none")
    eventually_sync(lambda: set(replicas(site)) == set(before))
    eventually_sync(lambda: reassign(site, None, asked=kept[0]) == "none")
    eventually_sync(lambda: replicas(site) == kept)
    paused.resume()
    assert produce_one(site) == ""
