"""Topics at this broker and at a real Apache Kafka, made and awaited in the same way, for tests
that compare the answers of both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.two_brokers import Side, differences
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch

Cases = Mapping[str, tuple[int, int, Mapping[str, Any]]]


def same_answers(sides: list[Side], cases: Cases) -> None:
    """Fails with ours and Apache Kafka's answer wherever they are not the same."""
    found = differences(sides, cases)
    shown = [f"{name}\n  ours  {ours}\n  Kafka {theirs}" for name, (ours, theirs) in found.items()]
    assert not shown, "\n".join(shown)


def id_of(name: str) -> Callable[[Side], uuid.UUID]:
    return lambda side: side.ids[name]


def metadata(*topics: dict[str, Any], asks: bool = False, may_create: bool = False) -> dict[str, Any]:
    return {
        "topics": topics,
        "allow_auto_topic_creation": may_create,
        "include_topic_authorized_operations": asks,
        "include_cluster_authorized_operations": asks,
    }


def both_make(sides: list[Side], *names: str, configs: Mapping[str, str] | None = None) -> None:
    """Create the topics at both, and wait until their brokers have them."""
    for side in sides:
        make(side, *names, configs=configs)


def make(side: Side, *names: str, configs: Mapping[str, str] | None = None) -> None:
    """Create the topics and wait until the broker has them: a node of Apache Kafka answers the
    creation before its own metadata has it.
    """
    side.make_topics(*names, configs=configs)
    eventually_sync(lambda: has_leaders(side, *names))


def has_leaders(side: Side, *names: str) -> bool:
    """Whether the broker leads all the topics, and not former ones of the same names: Apache
    Kafka's metadata has a topic before its log is there.
    """
    with RawClient(side.port) as client:
        for topic in client.metadata(*names).topics:
            if not topic.partitions or topic.topic_id != side.ids.get(topic.name, topic.topic_id):
                return False
        wanted = [TopicToFetch(name, None, [PartitionToFetch(0, 0, 1)]) for name in names]
        read = client.fetch(FetchRequest(wanted, max_wait_ms=0)).topics
    return all(partition.error_code == ErrorCode.none for topic in read for partition in topic.partitions)
