"""The site that leads a topic, as clients of the passive site see it: topics of no link at either
site, topics that are new at the active site, and writes against the roles.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.embedded.passive_site import PassiveSite, refusal
from tests.support.eventually import eventually_sync
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch

pytestmark = pytest.mark.integration

METADATA = 3


def test_topics_that_no_link_carries_are_the_passive_site_s_own(passive: PassiveSite) -> None:
    passive.create("home-lights")
    passive.grow("home-lights", 2)
    passive.alter("home-lights", "retention.ms", "5000")
    assert passive.described("home-lights", "retention.ms") == "5000"
    assert (passive.partitions("a", "home-lights"), passive.partitions("b", "home-lights")) == (0, 2)
    with RawClient(passive.port("b")) as client:
        assert client.produce("home-lights", batch()).error_code == ErrorCode.none
    passive.delete("home-lights")
    assert passive.partitions("b", "home-lights") == 0


def test_topics_that_no_link_carries_and_only_the_active_site_has_are_led_there(passive: PassiveSite) -> None:
    passive.create_at("a", "home-office")
    with RawClient(passive.port("b")) as client:
        found = passive.asking_a(lambda: client.metadata("home-office").topics[0])
        assert (found.error_code, found.partitions[0].leader_id) == (ErrorCode.none, 1)
        assert client.produce("home-office", batch()).error_code in (
            ErrorCode.not_leader_or_follower,
            ErrorCode.unknown_topic_or_partition,  # until a's view is here
        )
    eventually_sync(lambda: "home-office" in passive.admin.list_topics(timeout=30).topics)
    assert refusal(lambda: passive.create("home-office"))[0] == "TOPIC_ALREADY_EXISTS"
    passive.grow("home-office", 3)
    assert (passive.partitions("a", "home-office"), passive.partitions("b", "home-office")) == (3, 0)
    passive.delete("home-office")
    assert passive.partitions("a", "home-office") == 0


def test_a_topic_just_made_at_the_active_site_is_known_at_the_passive_one_at_once(passive: PassiveSite) -> None:
    with RawClient(passive.port("b")) as client:
        names = (f"just-made-{number}" for number in count())

        def just_made() -> Any:
            name = next(names)
            passive.create_at("a", name)
            return client.metadata(name).topics[0]

        for _ in range(3):
            found = passive.asking_a(just_made)
            assert (found.error_code, found.partitions[0].leader_id) == (ErrorCode.none, 1)


def test_a_topic_just_made_at_the_active_site_is_known_by_its_id_at_the_passive_one_at_once(
    passive: PassiveSite,
) -> None:
    with RawClient(passive.port("b")) as at_b, RawClient(passive.port("a")) as at_a:
        names = (f"just-made-with-id-{number}" for number in count())

        def just_made() -> tuple[str, Any]:
            name = next(names)
            passive.create_at("a", name)
            topic_id = at_a.metadata(name).topics[0].topic_id
            asked = {"topics": [{"name": "", "topic_id": topic_id}], "include_topic_authorized_operations": False}
            return name, at_b.call(METADATA, 12, {**asked, "allow_auto_topic_creation": False}).topics[0]

        for _ in range(3):
            name, found = passive.asking_a(just_made)
            leader = found.partitions[0].leader_id
            assert (found.error_code, found.name, leader) == (ErrorCode.none, name, 1)


def test_records_sent_straight_to_the_passive_site_are_refused_and_so_are_readers(
    passive: PassiveSite, topic: str
) -> None:
    wanted = TopicToFetch(topic, None, [PartitionToFetch(0, 0, 1_000_000)])
    with RawClient(passive.port("b")) as client:
        assert client.produce(topic, batch()).error_code == ErrorCode.not_leader_or_follower
        (partition,) = client.fetch(FetchRequest([wanted], max_wait_ms=0)).topics[0].partitions
        assert partition.error_code == ErrorCode.not_leader_or_follower
        tool = FetchRequest([wanted], max_wait_ms=0, replica_id=-2)
        (partition,) = client.fetch(tool).topics[0].partitions
        assert (partition.error_code, partition.high_watermark) == (ErrorCode.none, 0)
    with RawClient(passive.port("a")) as client:
        assert client.produce(topic, batch()).error_code == ErrorCode.none
