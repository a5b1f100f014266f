"""The paths that a controller adds to Kafka's layout (`layout.py`): brokers that will not return,
and the controller's rules.
"""

from __future__ import annotations

from wire.znodes.layout import ANTIPODE

UNREGISTERED_BROKERS = f"{ANTIPODE}/unregistered_brokers"
"""One empty node for each broker that an operator unregistered, named by its node id; removed when
the broker registers again.
"""
SITE_RULES = f"{ANTIPODE}/site_rules"
"""The site-wide settings by which the active controller decides
(`controller/election/site_rules.py`).
"""


def unregistered_broker_path(node_id: int) -> str:
    """The mark that one broker was given up."""
    return f"{UNREGISTERED_BROKERS}/{node_id}"
