"""A leader's report of its partitions: whether the standby may lack visible records, and when the
report changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.metrics import TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.core.standby_hold import StandbyHold
from broker.replication.hosted_partition import HostedPartition
from broker.replication.replica_figures import describe, describe_in_columns, logs_version
from broker.settings.core.topic_configs import LogConfig
from dr.sites.core.evidence import positions_of
from dr.sites.core.log_columns import PartitionOrders, logs_of
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import open_log
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import TopicPartition


def reported(directory: Path, *, hold: StandbyHold | None, site: str = "a", **policy: str) -> bool:
    """Whether a partition of site `site` is reported as degraded; site a is active."""
    record = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", **policy)
    record.topic_whitelist.append(".*")
    log = open_log(directory / "t-0")
    state = Partition(node_id=1, log_end_offset=0)
    image = PartitionImage(index=0, leader=1, leader_epoch=1, partition_epoch=1, replicas=(1,), isr=(1,))
    state.change(image, now_ms=0)
    state.hold = hold
    hosted = HostedPartition(
        topic="t", topic_id=bytes(16), index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )
    partitions: Any = [hosted]
    (found,) = describe(partitions, ClusterImage(site=site, node_id=1, links={"a-b": record}))
    log.close()
    return found.is_degraded


SUSPENDED = {"sync_policy": "degrade", "sync_policy_to_restore": "block"}
STANDBY = StandbyHold(may_degrade=True, timeout_ms=100.0, progressed_at_ms=0.0)


def test_a_leader_that_has_no_permit_yet_does_not_vouch_for_the_standby_of_a_suspended_policy(tmp_path: Path) -> None:
    assert reported(tmp_path, hold=None, **SUSPENDED)


@pytest.mark.parametrize(
    ("hold", "site", "policy"),
    [(None, "b", SUSPENDED), (None, "a", {"sync_policy": "block"}), (None, "a", {}), (STANDBY, "a", SUSPENDED)],
)
def test_other_leaders_report_what_they_have_shown(
    tmp_path: Path, hold: StandbyHold | None, site: str, policy: dict[str, str]
) -> None:
    assert not reported(tmp_path, hold=hold, site=site, **policy)


def test_the_version_of_the_logs_changes_with_each_log_and_with_the_roles(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    state = Partition(node_id=1, log_end_offset=0)
    hosted = HostedPartition(
        topic="t", topic_id=bytes(16), index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )
    partitions: Any = [hosted]
    image = ClusterImage(site="a", node_id=1)
    found: list[int] = []

    def note() -> None:
        version = logs_version(partitions, image, broker_epoch=7)
        assert version == logs_version(partitions, image, broker_epoch=7)
        found.append(version)

    note()
    led = PartitionImage(index=0, leader=1, leader_epoch=1, partition_epoch=1, replicas=(1,), isr=(1,))
    state.change(led, now_ms=0)
    note()
    log.append_as_leader(batch(), leader_epoch=1, now_ms=0)
    note()
    state.record_append(1)
    note()
    log.thinned_to = 1
    note()
    hosted.write_error = ErrorCode.none
    note()
    image = replace(image, topics={"t": TopicImage(name="t", topic_id=bytes(16), configs={}, partitions={0: led})})
    note()
    image = replace(image, topics={"t": replace(image.topics["t"], topic_id=bytes(15) + b"1")})
    note()
    found.append(logs_version(partitions, image, broker_epoch=8))
    found.append(logs_version(partitions, image, broker_epoch=7, link="a-b"))
    partitions.clear()
    note()
    log.close()
    assert len(set(found)) == len(found)


def test_the_version_of_the_logs_does_not_change_with_an_image_that_leaves_them_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    hosted = HostedPartition(
        topic="t",
        topic_id=bytes(16),
        index=0,
        log=log,
        state=Partition(node_id=1, log_end_offset=0),
        config=LogConfig(),
        metrics=TopicMetrics(),
    )
    partitions: Any = [hosted]
    image = ClusterImage(site="a", node_id=1)
    other = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="b", phase=LinkPhase.FENCED)
    later = replace(image, version=image.version + 1, links={"a-b": other})
    versions = {logs_version(partitions, one, broker_epoch=7) for one in (image, later)}
    log.close()
    assert len(versions) == 1


def test_columns_describe_the_same_partitions(tmp_path: Path) -> None:
    """Of three topics, one is not carried by the link and one is not led here."""
    record = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", topic_whitelist=["t.*"])
    image = ClusterImage(site="a", node_id=1, links={"a-b": record})
    partitions: Any = []
    for number, (topic, leader) in enumerate([("t", 1), ("t", 1), ("t2", 1), ("u", 1), ("t3", 2)]):
        log, state = open_log(tmp_path / f"{topic}-{number}"), Partition(node_id=1, log_end_offset=0)
        replicas = (1, 2)
        state.change(
            PartitionImage(
                index=number, leader=leader, leader_epoch=5, partition_epoch=1, replicas=replicas, isr=replicas
            ),
            now_ms=0,
        )
        hosted = HostedPartition(
            topic=topic,
            topic_id=bytes(16),
            index=number,
            log=log,
            state=state,
            config=LogConfig(),
            metrics=TopicMetrics(),
        )
        if number != 1:
            log.append_as_leader(batch(), leader_epoch=number, now_ms=7)
            log.append_as_leader(batch(), leader_epoch=5, now_ms=7)
            log.source.high_watermark, log.source.seen_at_ms, log.source.log_epoch = 9, 8, 5
            log.thinned_to = number
        hosted.write_error = ErrorCode.none if number == 2 else hosted.write_error
        partitions.append(hosted)
    for link, topics in (("a-b", ()), ("", ()), ("a-b", {"t2"})):
        alone = positions_of(describe(partitions, image, link=link, topics=topics))
        found = logs_of([describe_in_columns(partitions, image, link=link, topics=topics)], PartitionOrders())
        assert dict(found) == alone
        assert (TopicPartition("u", 3) in found) is not bool(link)
        assert found[TopicPartition("t2", 2)].thinned_to == 2
        assert TopicPartition("t3", 4) not in found
    for hosted in partitions:
        hosted.log.close()
