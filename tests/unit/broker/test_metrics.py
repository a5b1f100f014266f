"""The broker's figures as a scrape shows them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from broker.dispatch import load_handlers, request_label
from broker.metrics import BrokerMetrics
from controller.core import facts
from controller.core.cluster import Leadership, TopicPartition
from controller.metrics import ControllerMetrics
from wire.private import PRIVATE_NAMES
from wire.znodes import NO_LEADER

MESSAGES_IN = "kafka_server_brokertopicmetrics_messagesin_total"


def sample(metrics: BrokerMetrics, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry.get_sample_value(name, labels)


def test_the_brokers_traffic_never_falls_although_topics_are_deleted() -> None:
    metrics = BrokerMetrics()
    metrics.topic("kept").messages_in = 3
    metrics.topic("gone").messages_in = 4
    assert sample(metrics, MESSAGES_IN) == 7
    metrics.forget_topic("gone")
    assert sample(metrics, MESSAGES_IN, topic="gone") is None
    assert sample(metrics, MESSAGES_IN) == 7
    metrics.topic("gone").messages_in = 1
    assert (sample(metrics, MESSAGES_IN), sample(metrics, MESSAGES_IN, topic="gone")) == (8, 1)


def test_what_consumers_mirrors_and_followers_take_is_counted_apart() -> None:
    metrics = BrokerMetrics()
    for size, is_to_follower, is_to_mirror in ((1, False, False), (10, False, True), (100, True, False)):
        metrics.topic("t").count_sent(size, is_to_follower=is_to_follower, is_to_mirror=is_to_mirror)
    names = ("bytesout", "mirroredbytesout", "replicationbytesout")
    found = [sample(metrics, f"kafka_server_brokertopicmetrics_{name}_total", topic="t") for name in names]
    assert found == [1, 10, 100]


def test_failed_handlers_stand_under_the_error_that_clients_get() -> None:
    metrics = BrokerMetrics()
    metrics.api("Metadata").record_error(is_answered=False)
    name = "kafka_network_requestmetrics_errors_total"
    assert sample(metrics, name, request="Metadata", error="UNKNOWN_SERVER_ERROR") == 1


def test_requests_have_the_names_of_kafkas_metrics() -> None:
    labels = {request_label(key) for key in load_handlers() if key not in PRIVATE_NAMES}
    assert {"Produce", "ListOffsets", "InitProducerId", "OffsetForLeaderEpoch", "EndTxn", "WriteTxnMarkers"} <= labels
    assert all(label.isalpha() and label[0].isupper() for label in labels)


def test_an_election_counts_once_with_its_time_and_each_leader_beside_it() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)

    def changed(index: int, leader: int, *, is_unclean: bool = False) -> facts.LeadershipChanged:
        leadership = Leadership(leader=leader, leader_epoch=1, isr=(1,), controller_epoch=1, partition_epoch=1)
        return facts.LeadershipChanged(
            partition=TopicPartition("t", index), leadership=leadership, is_unclean=is_unclean
        )

    metrics.record_facts((changed(0, 1), changed(1, 1, is_unclean=True), changed(2, NO_LEADER)), elapsed_ms=7)
    metrics.record_facts((changed(0, NO_LEADER),), elapsed_ms=7)
    stats = "kafka_controller_controllerstats_"
    assert registry.get_sample_value(f"{stats}leaderelectionrateandtimems_count") == 1
    assert registry.get_sample_value(f"{stats}leaderelectionrateandtimems_sum") == 7
    assert registry.get_sample_value(f"{stats}electedleaders_total") == 2
    assert registry.get_sample_value(f"{stats}uncleanleaderelections_total") == 1
