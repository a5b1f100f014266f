"""Selects topics and partitions for `antipode topics`, and places replicas: the options of
kafka-topics.sh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wire.rules.topic_config_kinds import INT_MAX

MIN_INSYNC_REPLICAS = "min.insync.replicas"


class UnusableAssignment(ValueError):
    """The text of --replica-assignment; says what is accepted."""


class PartitionState(NamedTuple):
    """A partition as metadata has it. `leader` is -1 when there is none."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFilter:
    """The requested conditions; a partition is shown when it meets one of them."""

    is_under_replicated: bool = False
    is_unavailable: bool = False
    is_at_min_isr: bool = False
    is_under_min_isr: bool = False

    @property
    def is_empty(self) -> bool:
        """True if no condition is requested."""
        return not (self.is_under_replicated or self.is_unavailable or self.needs_configs)

    @property
    def needs_configs(self) -> bool:
        """True if min.insync.replicas of the topics matters."""
        return self.is_at_min_isr or self.is_under_min_isr

    def shows(self, partition: PartitionState, configs: Mapping[str, str]) -> bool:
        """True if the partition meets a requested condition; `configs` are those in force for its
        topic.
        """
        in_sync = len(partition.isr)
        minimum = int(configs.get(MIN_INSYNC_REPLICAS, "1"))
        return (
            (self.is_under_replicated and in_sync < len(partition.replicas))
            or (self.is_unavailable and partition.leader < 0)
            or (self.is_at_min_isr and in_sync == minimum)
            or (self.is_under_min_isr and (in_sync < minimum or partition.leader < 0))
        )


def parse_assignment(text: str) -> list[list[int]]:
    """Replicas by partition from Kafka's `1:2,2:1`: partitions are separated by commas, replicas by
    colons, the first is preferred.
    """
    try:
        found = [[int(node) for node in partition.split(":")] for partition in text.split(",")]
    except ValueError as error:
        raise UnusableAssignment("accepted: node ids as in 1:2,2:1") from error
    problem = _problem(found)
    if problem:
        raise UnusableAssignment(f"{problem}; accepted: as many different node ids for each partition, as in 1:2,2:1")
    return found


def _problem(found: Sequence[Sequence[int]]) -> str:
    for index, replicas in enumerate(found):
        if len(set(replicas)) != len(replicas):
            return f"partition {index} names a broker twice"
        if len(replicas) != len(found[0]):
            return f"partition {index} has {len(replicas)} replicas where partition 0 has {len(found[0])}"
        if min(replicas) < 0 or max(replicas) > INT_MAX:
            return f"partition {index} names a broker below 0 or above {INT_MAX}"
    return ""
