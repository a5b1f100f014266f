"""A site's ZooKeeper: where each fact is stored. How it is written is in the module of each
subtree.

Paths and JSON are those of Kafka's classic layout, so that an operator who knows one can read the
other; Antipode adds a `grpc_address` to two registrations and a tree of its own for links.
The modules of this room are pure functions between bytes and frozen records. They do not talk to
ZooKeeper: the controller, brokers and site agents do, each through its own client.

Decoders ignore fields that they do not know, so that a newer writer can add some, and raise
`MalformedZnode` with the path and the field when one that they need is absent or of another kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}")
NODE_ID_MAX: Final = 2**31 - 1

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
DEFAULT_BROKER = "<default>"
"""Kafka's name for all brokers among the entities of configs."""
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
ANTIPODE = "/antipode"
LINKS = "/antipode/links"


PERSISTENT_PATHS = (
    BROKERS,
    BROKER_IDS,
    TOPICS,
    CONFIG,
    TOPIC_CONFIGS,
    USER_CONFIGS,
    CLIENT_CONFIGS,
    IP_CONFIGS,
    CONFIG_CHANGES,
    ADMIN,
    DELETE_TOPICS,
    CLUSTER,
    ANTIPODE,
    LINKS,
)
"""Parents that must exist before anything else is written, in order of creation."""


def broker_path(node_id: int) -> str:
    """Registration of one broker."""
    return f"{BROKER_IDS}/{node_id}"


def broker_ids(names: Iterable[str]) -> list[int]:
    """The ids among the names below `BROKER_IDS`. A name that is not a number of 31 bits is
    another tool's and left out: no message has room for it.
    """
    return [int(name) for name in names if _NUMBER.fullmatch(name) and int(name) <= NODE_ID_MAX]


def topic_path(topic: str) -> str:
    """Assignment of one topic."""
    return f"{TOPICS}/{topic}"


def topic_of_path(path: str) -> str | None:
    """The topic to which a znode below `TOPICS` belongs; None for other znodes."""
    return path[len(TOPICS) + 1 :].partition("/")[0] if path.startswith(f"{TOPICS}/") else None


def partitions_path(topic: str) -> str:
    """Parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """Parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    """Leader, epochs and in-sync replicas of one partition."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    """Config overrides of one topic."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(node_id: str) -> str:
    """Config overrides of one broker; of all of them for an empty id."""
    return f"{BROKER_CONFIGS}/{node_id or DEFAULT_BROKER}"


def delete_topic_path(topic: str) -> str:
    """Mark that a topic is to be deleted."""
    return f"{DELETE_TOPICS}/{topic}"


def config_change_path(sequence: int | None = None) -> str:
    """A notice of a config change; without a number the prefix for a sequential create."""
    suffix = "" if sequence is None else f"{sequence:010d}"
    return f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}{suffix}"


def link_path(link: str) -> str:
    """Record of one link."""
    return f"{LINKS}/{link}"
