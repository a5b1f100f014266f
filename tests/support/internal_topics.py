"""Settings of a site's internal topics for as many brokers as a test starts: a broker's defaults
want three.
"""

from __future__ import annotations


def internal_topic_copies(brokers: int) -> dict[str, str]:
    """Properties that have a copy of each internal topic on every broker."""
    return {
        "offsets.topic.replication.factor": str(brokers),
        "transaction.state.log.replication.factor": str(brokers),
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }
