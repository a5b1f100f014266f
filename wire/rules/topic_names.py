"""Defines for every program which topics are internal: topics in which brokers keep their own
state.

Internal topics are Kafka's three, by name. Metadata marks them, clients may neither write to them
nor delete their records, no link carries them and no reconciliation compares them. A user's topic
may begin with two underscores and is a topic like any other; the link's blacklist excludes other
topics (`wire/rules/links.py`).
"""

from __future__ import annotations

from typing import Final

from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC

SHARE_GROUPS_TOPIC: Final = "__share_group_state"
"""State of Kafka's share groups. No coordinator of ours writes to it; brokers of Kafka keep the
name for themselves, so we do too.
"""

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUPS_TOPIC})

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""The log of Kafka's controllers. No client may create a topic with this name; as in Kafka, it is
not marked as internal.
"""


def is_internal_topic(topic: str) -> bool:
    """True for a topic in which brokers keep state."""
    return topic in INTERNAL_TOPICS
