"""Features of the cluster (KIP-584): their levels are fixed by the release of the brokers, so an
update may only request the current level.

Clients choose protocols by these levels: transaction.version 2 is KIP-890, group.version 1 is
KIP-848.
"""

from __future__ import annotations

import enum
from typing import Final

FEATURES: Final = {"group.version": 1, "transaction.version": 2}
"""Every feature with its level, which is also the highest one that is supported; the lowest is
0.
"""


class UpgradeType(enum.IntEnum):
    """The allowed changes of a feature level, as UpdateFeatures names them from version 1 on."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_problem(feature: str, level: int, upgrade_type: int) -> str:
    """The reason why the level cannot be set; empty where the level is in force already."""
    current = FEATURES.get(feature)
    if current is None:
        return f"feature {feature!r} is unknown; the features here are {', '.join(sorted(FEATURES))}"
    if upgrade_type not in tuple(UpgradeType):
        accepted = ", ".join(f"{one.value} ({one.name.lower()})" for one in UpgradeType)
        return f"upgrade type {upgrade_type} of feature {feature} is unknown; accepted: {accepted}"
    if level > current or level < 0:
        return f"level {level} of feature {feature} is not supported; supported are 0 to {current}"
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        return (
            f"level {level} of feature {feature} is below its level {current}, but the upgrade type is not a downgrade"
        )
    if level < current:
        return f"feature {feature} stays at level {current}: this release of Antipode fixes it"
    return ""
