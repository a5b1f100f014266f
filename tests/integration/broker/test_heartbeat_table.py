"""Heartbeats, leaves and joins of a KIP-848 member in any order: Antipode and Apache Kafka are asked
for every sequence and must answer alike.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.heartbeat_table import answers
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_heartbeats_are_answered_as_by_apache_kafka(
    start_broker: Callable[..., LoneBroker], apache_kafka: ApacheKafka
) -> None:
    ours = answers(start_broker(offsets_topic_num_partitions="4").port)
    theirs = answers(int(apache_kafka.bootstrap_servers.rpartition(":")[2]))
    differences = {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}
    assert not differences
    assert len(theirs) > 1000
