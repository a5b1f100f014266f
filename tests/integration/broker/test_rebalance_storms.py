"""A group of twenty members in a storm, by each protocol; that of a hundred at three brokers is in
`tests/chaos`.

Promised: no lost commit, no double ownership, committed offsets that never go back, every record
read (S1 to S6).
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clients.rebalance_storm import PROTOCOLS, Storm
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.client.raw_client import KafkaClient, NewTopic, call_client

pytestmark = pytest.mark.integration

MEMBERS, PARTITIONS, GUSTS = 20, 24, 4
SETTINGS = {
    "group_consumer_min_heartbeat_interval_ms": "200",
    "group_consumer_min_session_timeout_ms": "3000",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_consumer_session_timeout_ms": "6000",
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "3",
}


@pytest.fixture
def broker(start_broker: Callable[..., LoneBroker]) -> LoneBroker:
    return start_broker(**SETTINGS)


def errors_answered(broker: LoneBroker) -> set[str]:
    """The errors that the broker's metrics count."""
    with urlopen(f"http://127.0.0.1:{broker.facts['metrics']}/metrics", timeout=30) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    (found,) = [family for family in families if family.name == "kafka_network_requestmetrics_errors"]
    return {sample.labels["error"] for sample in found.samples}


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_a_group_in_a_storm_loses_no_commit_and_no_record(broker: LoneBroker, protocol: str) -> None:
    async def create(client: KafkaClient) -> None:
        wanted = NewTopic(name="t", partition_count=PARTITIONS, replication_factor=1)
        (outcome,) = await client.create_topics([wanted])
        assert not outcome.error_code, outcome

    def committed(group: str) -> dict[int, int]:
        async def ask(client: KafkaClient) -> dict[int, int]:
            return {index: kept.offset for (_, index), kept in (await client.committed(group)).items()}

        return call_client(broker.bootstrap, ask)

    call_client(broker.bootstrap, create)
    storm = Storm(
        bootstrap_servers=broker.bootstrap,
        topic="t",
        partition_count=PARTITIONS,
        protocol=protocol,
        member_count=MEMBERS,
        gust_count=GUSTS,
        seed=5,
        committed=committed,
    )
    print(storm.run())
    assert "OFFSET_OUT_OF_RANGE" not in errors_answered(broker)
