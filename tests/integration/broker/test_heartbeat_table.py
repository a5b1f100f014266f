"""Heartbeats, leaves and joins of a KIP-848 member in any order: the test sends every sequence to
Antipode and to Apache Kafka and compares the responses.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.histories.heartbeat_table import answers
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.apache_kafka import ApacheKafka, start_apache_kafka
from tests.support.processes.processes import Processes

pytestmark = pytest.mark.integration

AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
"""Apache Kafka assigns with the heartbeat that needs it, as Antipode always does."""


def test_heartbeats_are_answered_as_by_apache_kafka(
    start_broker: Callable[..., LoneBroker],
    apache_kafka: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
) -> None:
    ours = answers(start_broker(offsets_topic_num_partitions="4").port)
    kafka = start_apache_kafka(processes, tmp_path / "kafka", AT_ONCE)
    theirs = answers(int(kafka.bootstrap_servers.rpartition(":")[2]))
    compared = {name: _comparable(theirs[name], ours[name]) for name in theirs}
    assert {name: pair for name, pair in compared.items() if pair[0] != pair[1]} == {}
    assert len(theirs) > 1000


def _comparable(theirs: list[str], ours: list[str]) -> tuple[list[str], list[str]]:
    """Both brokers' responses without the two differences that are meant.

    A client takes `group_id_not_found` for fatal and `unknown_member_id` for a reason to join
    again. The other site of a link has a group's offsets and none of its members, so after a
    failover the client has to join again.

    A static member may join again under its own member id while its session lasts. Apache Kafka
    refuses that, which is fatal to a client that was fenced and therefore joins again. The groups
    differ from there on.
    """
    theirs = [text.replace("group_id_not_found", "unknown_member_id") for text in theirs]
    for place, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        if their == "unreleased_instance_id" and our.startswith("epoch"):
            return theirs[:place], ours[:place]
    return theirs, ours
