"""Metadata waits for the successors of a broker that may just have died, and not for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.site.suspected_brokers import SUSPICION_MS_MAX, SuspectedBrokers
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo

OWN, OTHER = 1, 2


def listed(former: ClusterImage, *nodes: int) -> ClusterImage:
    brokers = [BrokerInfo(node_id=node, broker_epoch=node, grpc_address="nowhere") for node in nodes]
    return apply_batch(former, ControlBatch(is_full=True, brokers=brokers))


class Client:
    """The part of a client's connection that this test uses."""

    def __init__(self, opened_at_ms: float) -> None:
        self.opened_at_ms = opened_at_ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(listed(ClusterImage(site="a", node_id=OWN), OWN, OTHER))


@pytest.fixture
async def suspected_brokers(cluster: Cluster, clock: ManualClock) -> AsyncIterator[SuspectedBrokers]:
    made = SuspectedBrokers(cluster, clock, node_id=OWN)
    await made.on_image(ClusterImage(site="a", node_id=OWN), cluster.image)
    yield made
    await made.stop()


async def test_without_a_suspicion_no_client_waits_for_an_image(suspected_brokers: SuspectedBrokers) -> None:
    await asyncio.wait_for(suspected_brokers.settled(), 60)


async def test_an_answer_waits_for_the_image_without_the_doubted_broker(
    suspected_brokers: SuspectedBrokers, cluster: Cluster
) -> None:
    suspected_brokers.note_lost(OTHER)
    settled = asyncio.create_task(suspected_brokers.settled())
    cluster.replace(listed(cluster.image, OWN, OTHER))
    done, _ = await asyncio.wait({settled}, timeout=0.05)
    assert not done
    cluster.replace(listed(cluster.image, OWN))
    await asyncio.wait_for(settled, 60)


async def test_an_answer_waits_no_longer_when_the_doubted_broker_is_there_after_all(
    suspected_brokers: SuspectedBrokers,
) -> None:
    received = suspected_brokers._listener((OTHER, OTHER))
    received(True)
    settled = asyncio.create_task(suspected_brokers.settled())
    await eventually(lambda: suspected_brokers._cluster._waiting)
    received(False)
    await asyncio.sleep(0)
    assert not suspected_brokers._cluster._waiting or suspected_brokers._cluster._waiting[0][1].done()
    await settled


async def test_an_old_suspicion_delays_no_client(suspected_brokers: SuspectedBrokers, clock: ManualClock) -> None:
    suspected_brokers.note_lost(OTHER)
    clock.advance(SUSPICION_MS_MAX)
    settled = asyncio.create_task(suspected_brokers.settled())
    await asyncio.wait_for(settled, 60)


async def test_a_client_that_has_just_come_has_no_leader_to_lose(
    suspected_brokers: SuspectedBrokers, clock: ManualClock
) -> None:
    newcomer: Any = Client(clock.monotonic_ms())
    assert not suspected_brokers.may_concern(newcomer)
    clock.advance(10_000)
    assert suspected_brokers.may_concern(newcomer)


async def test_a_site_of_one_broker_suspects_no_broker(cluster: Cluster, clock: ManualClock) -> None:
    alone = SuspectedBrokers(cluster, clock, node_id=OWN)
    await alone.on_image(cluster.image, listed(cluster.image, OWN))
    clock.advance(10_000)
    client: Any = Client(0)
    assert not alone.may_concern(client)
    await alone.stop()
