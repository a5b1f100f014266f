"""Commits and reads of offsets: Antipode and Apache Kafka are asked for every combination and must
answer alike.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.histories.commit_table import answers
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.apache_kafka import ApacheKafka

pytestmark = pytest.mark.integration


def test_commits_are_answered_as_by_apache_kafka(
    start_broker: Callable[..., LoneBroker], apache_kafka: ApacheKafka
) -> None:
    ours = answers(start_broker(group_initial_rebalance_delay_ms="0").port)
    theirs = answers(int(apache_kafka.bootstrap_servers.rpartition(":")[2]))
    differences = {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}
    # an epoch without a member id makes Apache Kafka fail; here the member is not known
    null_members = {name for name in differences if ", null member |" in name}
    assert {differences.pop(name) for name in null_members} <= {("unknown_server_error", "unknown_member_id")}
    assert not differences
    assert len(theirs) > 1000
