"""A decision in progress about a KIP-848 group: a copy of the group, and the records so far."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from broker.groups.core.consumer_protocol.consumer_group_states import (
    ConsumerFact,
    ConsumerGroup,
    TopicShapes,
)
from broker.groups.core.consumer_protocol.server_assignors import ASSIGNORS
from wire.batches.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
)


class ConsumerTurn(Struct):
    """One decision in the making."""

    group: ConsumerGroup
    topics: TopicShapes
    size_max: int
    assignors: Sequence[str] = tuple(ASSIGNORS)
    facts: list[ConsumerFact] = field(default_factory=list)
    reason: str = ""

    def put(self, kind: int, value: ConsumerGroupValue | None, member_id: str = "") -> None:
        """Add a record, and apply it to the copy."""
        key = ConsumerGroupKey(kind, self.group.group_id, member_id)
        self.facts.append(ConsumerFact(key, value))
        self.group.put(key, value)
