"""What a controller keeps in ZooKeeper beside Kafka's layout (`layout.py`): brokers that were given
up, and its rules. Paths alone.
"""

from __future__ import annotations

from wire.znodes.layout import ANTIPODE

UNREGISTERED_BROKERS = f"{ANTIPODE}/unregistered_brokers"
"""One empty node for each broker that was given up, named by its node id; gone when the broker
registers again.
"""
SITE_RULES = f"{ANTIPODE}/site_rules"
"""By which site-wide settings the controller in office decides (`controller/site_rules.py`)."""


def unregistered_broker_path(node_id: int) -> str:
    """The mark that one broker was given up."""
    return f"{UNREGISTERED_BROKERS}/{node_id}"
