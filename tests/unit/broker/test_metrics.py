"""The broker's figures as a scrape shows them."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry

from broker.handlers.registry import load_handlers, request_label
from broker.log.core.batch_checks import BatchRejected
from broker.metrics import BrokerMetrics
from broker.network.answered_errors import errors_in
from broker.network.entities import builder
from controller.core.state import facts
from controller.core.state.site_values import Leadership
from controller.metrics import ControllerMetrics
from wire.protocol.ids import NO_NODE, TopicPartition
from wire.protocol.messages.private import PRIVATE_NAMES

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


def test_bytes_that_consumers_mirrors_and_followers_take_are_counted_apart() -> None:
    metrics = BrokerMetrics()
    for size, is_to_follower, is_to_mirror in ((1, False, False), (10, False, True), (100, True, False)):
        metrics.topic("t").count_sent(size, is_to_follower=is_to_follower, is_to_mirror=is_to_mirror)
    names = ("bytesout", "mirroredbytesout", "replicationbytesout")
    found = [sample(metrics, f"kafka_server_brokertopicmetrics_{name}_total", topic="t") for name in names]
    assert found == [1, 10, 100]


def test_errors_stand_under_kafkas_names_for_request_and_code() -> None:
    metrics = BrokerMetrics()
    codes = (ErrorCode.none, ErrorCode.not_leader_or_follower, 0, 6, ErrorCode.unknown_server_error)
    metrics.api("Fetch").count_errors(codes)
    name = "kafka_network_requestmetrics_errors_total"
    found = [
        sample(metrics, name, request="Fetch", error=error)
        for error in ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR", "NONE")
    ]
    assert found == [2, 1, None]


def test_every_code_in_an_answer_is_found_wherever_it_stands() -> None:
    build = builder(2, 7)
    partitions = tuple(
        build.part(
            "ListOffsetsPartitionResponse", partition_index=0, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
        )
        for code in (ErrorCode.none, ErrorCode.offset_not_available, ErrorCode.offset_not_available)
    )
    topics = tuple(build.part("ListOffsetsTopicResponse", name=name, partitions=partitions) for name in "ab")
    assert list(errors_in(build.response(topics=topics))) == [ErrorCode.offset_not_available] * 4
    assert list(errors_in(builder(12, 4).response(error_code=ErrorCode.unknown_member_id))) == [25]
    assert list(errors_in(builder(12, 4).response(error_code=ErrorCode.none))) == []


def test_a_batch_refused_for_its_size_counts_its_bytes() -> None:
    metrics = BrokerMetrics()
    metrics.topic("t").count_refused(BatchRejected(ErrorCode.message_too_large, "large"), 70)
    metrics.topic("t").count_refused(BatchRejected(ErrorCode.invalid_record, "bad"), 9)
    names = ("bytesrejected", "failedproducerequests")
    found = [sample(metrics, f"kafka_server_brokertopicmetrics_{name}_total", topic="t") for name in names]
    assert found == [70, 2]


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

    metrics.record_facts((changed(0, 1), changed(1, 1, is_unclean=True), changed(2, NO_NODE)), elapsed_ms=7)
    metrics.record_facts((changed(0, NO_NODE),), elapsed_ms=7)
    stats = "kafka_controller_controllerstats_"
    assert registry.get_sample_value(f"{stats}leaderelectionrateandtimems_count") == 1
    assert registry.get_sample_value(f"{stats}leaderelectionrateandtimems_sum") == 7
    assert registry.get_sample_value(f"{stats}electedleaders_total") == 2
    assert registry.get_sample_value(f"{stats}uncleanleaderelections_total") == 1
