"""The settings that must be the same in all daemons of a shared link, as each registers them
(`mirror/sharing/core/peers.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from mirror.settings.config import MirrorConfig
from mirror.settings.values import LinkMode
from mirror.sharing.core.peers import Daemon, shortened
from wire.control.cluster_pb2 import LinkRecord

OF_ALL_LINKS: Final = ("link_mode", "gap_policy", "config_properties_exclude")

OF_TRANSLATE_LINKS: Final = (
    "whitelist",
    "blacklist",
    "is_carrying_heartbeats",
    "source_alias",
    "target_alias",
    "naming_policy",
    "naming_separator",
    "separates_internal_topics",
    "naming_table",
    "is_read_committed",
    "existing_target",
    "is_transactional",
    "is_syncing_groups",
    "group_whitelist",
    "group_blacklist",
    "is_syncing_configs",
    "is_syncing_acls",
    "acl_principal_blacklist",
    "is_emitting_heartbeats",
    "is_emitting_checkpoints",
    "is_emitting_offset_syncs",
    "offset_syncs_location",
)
"""Filters of an exact link are those of its record, which each daemon compares with its file."""


def self_description(config: MirrorConfig, record: LinkRecord, *, name: str) -> Daemon:
    """The facts about itself that a daemon with this configuration registers."""
    return Daemon(
        name=name,
        settings=agreed_settings(config),
        topic_whitelist=tuple(record.topic_whitelist),
        topic_blacklist=tuple(record.topic_blacklist),
    )


def agreed_settings(config: MirrorConfig) -> Mapping[str, str]:
    """The settings by key, as a file writes them."""
    fields = OF_ALL_LINKS if config.link_mode is LinkMode.EXACT else (*OF_ALL_LINKS, *OF_TRANSLATE_LINKS)
    return {
        MirrorConfig.model_fields[field].alias or field: shortened(_written(field, getattr(config, field)))
        for field in fields
    }


def _written(field: str, value: object) -> str:
    match value:
        case None:
            return ""
        case bool() if field == "is_read_committed":
            return "read_committed" if value else "read_uncommitted"
        case bool():
            return str(value).lower()
        case enum.Enum():
            return str(value.value)
        case tuple():
            return ",".join(sorted(map(str, value)))
        case dict():
            return ",".join(f"{key}={name}" for key, name in sorted(value.items()))
        case _:
            return str(value)
