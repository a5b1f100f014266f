"""Topics and partitions of a site as the controller decided them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace


class PartitionImage(Struct, frozen=True, kw_only=True):
    """Leadership of one partition as the controller decided it."""

    index: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """Replicas whose brokers live but have lost the log directory."""


class TopicImage(Struct, frozen=True, kw_only=True):
    """One topic: id, config overrides and partitions by index (in order)."""

    name: str
    topic_id: bytes
    configs: Mapping[str, str]
    partitions: Mapping[int, PartitionImage]


def at_floor(topic: TopicImage, floor: int) -> TopicImage:
    """The topic with this leader epoch for partitions of a lower one, except those that never had a
    leader; the same object if there are none.
    """
    below = {
        index: replace(partition, leader_epoch=floor)
        for index, partition in topic.partitions.items()
        if 0 <= partition.leader_epoch < floor
    }
    return replace(topic, partitions={**topic.partitions, **below}) if below else topic


def shared(candidate: TopicImage, former: TopicImage | None) -> TopicImage:
    """The former image if it is equal, so that `is` shows whether a topic has changed."""
    return former if former is not None and former == candidate else candidate
