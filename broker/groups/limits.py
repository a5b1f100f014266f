"""The bounds of the group machine, from a broker's settings."""

from __future__ import annotations

from broker.groups.core.group_turn import GroupLimits
from broker.settings.config import BrokerSettings


def group_limits(settings: BrokerSettings) -> GroupLimits:
    """The machine's bounds from the broker's settings."""
    return GroupLimits(
        session_timeout_ms_min=settings.group_session_timeout_ms_min,
        session_timeout_ms_max=settings.group_session_timeout_ms_max,
        size_max=settings.group_size_max,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        offset_metadata_bytes_max=settings.offset_metadata_bytes_max,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_session_timeout_ms_min=settings.consumer_session_timeout_ms_min,
        consumer_session_timeout_ms_max=settings.consumer_session_timeout_ms_max,
        consumer_heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        consumer_heartbeat_interval_ms_min=settings.consumer_heartbeat_interval_ms_min,
        consumer_heartbeat_interval_ms_max=settings.consumer_heartbeat_interval_ms_max,
        consumer_assignors=settings.consumer_assignors,
        consumer_size_max=settings.consumer_group_size_max,
        may_upgrade=settings.consumer_migration_policy in ("bidirectional", "upgrade"),
        may_downgrade=settings.consumer_migration_policy in ("bidirectional", "downgrade"),
    )
