"""Figures of a broker that have labels: by operation, by partition and by state of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from broker.groups.core.group_states import GroupState
from broker.replication.core.wake_ups import DelayedOperation
from broker.telemetry.gauge_sources import GaugeSources


def purgatory_sizes(parts: GaugeSources) -> Iterator[Metric]:
    """Waiting requests by operation."""
    family = GaugeMetricFamily(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait: fetches for records, produces for replicas, deletions of records for followers",
        labels=["delayedOperation"],
    )
    count = parts.replicas.purgatory.count
    fetches = sum(
        map(count, (DelayedOperation.CONSUMER_FETCH, DelayedOperation.FOLLOWER_FETCH, DelayedOperation.MIRROR_FETCH))
    )
    for operation, size in (
        ("Fetch", fetches),
        ("Produce", count(DelayedOperation.PRODUCE)),
        ("DeleteRecords", count(DelayedOperation.DELETE_RECORDS)),
    ):
        family.add_metric([operation], size)
    yield family


_PARTITION_FLAGS: Final = (
    ("underreplicated", "1 while the partition, led here, lacks replicas in sync"),
    ("underminisr", "1 while the partition, led here, refuses acks=all"),
    ("atminisr", "1 while the partition, led here, would refuse acks=all without one more of its replicas"),
)


def partition_states(parts: GaugeSources) -> Iterator[Metric]:
    """Flags of each partition that is led here."""
    families = [
        GaugeMetricFamily(f"kafka_cluster_partition_{name}", text, labels=["topic", "partition"])
        for name, text in _PARTITION_FLAGS
    ]
    for hosted in parts.replicas:
        if hosted.state.is_leader:
            spare = hosted.state.spare_in_sync
            flags = (len(hosted.state.isr) < len(hosted.state.replicas), spare < 0, spare == 0)
            for family, flag in zip(families, flags, strict=True):
                family.add_metric([hosted.topic, str(hosted.index)], flag)
    yield from families


def group_states(parts: GaugeSources) -> Iterator[Metric]:
    """Groups of the classic protocol by state."""
    counts = parts.groups.count_by_state()
    for state in GroupState:
        yield GaugeMetricFamily(
            f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.value.lower()}",
            f"Groups of the classic protocol coordinated here that are {state.value}",
            value=counts[state],
        )


FAMILIES: Final[tuple[Callable[[GaugeSources], Iterator[Metric]], ...]] = (
    purgatory_sizes,
    partition_states,
    group_states,
)
"""Figures that have labels."""
