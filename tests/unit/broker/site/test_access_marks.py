"""The marks of a broker's access rules, and the wait for others."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.site.access_marks import AccessMarks
from runtime.clock import SystemClock
from tests.support.clock import ManualClock

FOREVER_MS = 3_600_000
USERS = {"alice": {"SCRAM-SHA-256": "stored"}}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(ClusterImage(site="a", node_id=1))


async def test_a_change_of_rules_ends_the_wait_and_a_change_of_topics_does_not(cluster: Cluster) -> None:
    marks = AccessMarks(cluster, SystemClock(), 1)
    await asyncio.wait_for(marks.differ("", timeout_ms=FOREVER_MS), 10)
    known = marks.mark
    waiting = asyncio.create_task(marks.differ(known, timeout_ms=FOREVER_MS))
    await asyncio.sleep(0)
    topic = TopicImage(name="t", topic_id=b"t", configs={}, partitions={})
    cluster.replace(replace(cluster.image, topics={"t": topic}))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert marks.mark == known
    cluster.replace(replace(cluster.image, scram_users=USERS))
    await asyncio.wait_for(waiting, 10)
    assert marks.mark != known


async def test_a_broker_that_stops_ends_the_waits(cluster: Cluster) -> None:
    marks = AccessMarks(cluster, SystemClock(), 1)
    waiting = asyncio.create_task(marks.differ(marks.mark, timeout_ms=FOREVER_MS))
    await asyncio.sleep(0)
    marks.stop()
    await asyncio.wait_for(waiting, 10)


def test_another_broker_and_another_process_have_other_marks(cluster: Cluster) -> None:
    clock = ManualClock()
    first, other = AccessMarks(cluster, clock, 1), AccessMarks(cluster, clock, 2)
    clock.advance(1)
    later = AccessMarks(cluster, clock, 1)
    assert len({first.mark, other.mark, later.mark}) == 3
