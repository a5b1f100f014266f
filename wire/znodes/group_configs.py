"""Configs of single groups: where ZooKeeper keeps them, and their message. Their names and bounds
are the coordinator's business.

Callers: the controller (storage, image), the broker's image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wire.control.cluster_pb2 import GroupConfigs as GroupConfigsMessage
from wire.znodes.config_znodes import decode_entity_config, encode_topic_config, entity_node
from wire.znodes.layout import CONFIG

GROUP_CONFIGS: Final = f"{CONFIG}/groups"

GroupConfigs = Mapping[str, str]
"""Values by name, such as `consumer.session.timeout.ms`; only what was set for the group."""


def group_config_path(group: str) -> str:
    """The node of one group; characters that ZooKeeper does not take are escaped."""
    return f"{GROUP_CONFIGS}/{entity_node(group)}"


def encode_group_configs(configs: GroupConfigs) -> bytes:
    """The node's content, in the layout of all configs."""
    return encode_topic_config(configs)


def decode_group_configs(group: str, payload: bytes) -> dict[str, str]:
    """Configs by name; MalformedZnode."""
    return decode_entity_config(group_config_path(group), payload)


def group_configs_message(group: str, configs: GroupConfigs) -> GroupConfigsMessage:
    """The message for an image or a change; without configs the group has none left."""
    return GroupConfigsMessage(group=group, configs=dict(configs))
