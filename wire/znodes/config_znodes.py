"""Configs of topics, brokers and quota entities, below `/config`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from wire.rules.client_quotas import CLIENT_ID, IP, QUOTA_KEYS, USER, QuotaEntity
from wire.znodes.documents import Fields, MalformedZnode, encode_document
from wire.znodes.layout import CLIENT_CONFIGS, IP_CONFIGS, USER_CONFIGS, topic_config_path

DEFAULT_ENTITY = "<default>"
"""Kafka's name for all that have no entity of their own; a name that reads like it is escaped."""
_PLAIN_IN_NODES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_ESCAPED = re.compile("(?:%[0-9A-Fa-f]{2})+")


def user_clients_path(user_node: str) -> str:
    """Parent of the quotas of a user's single clients."""
    return f"{USER_CONFIGS}/{user_node}/clients"


def client_quota_path(entity: QuotaEntity) -> str:
    """Quotas of one entity, in Kafka's layout: `/config/users/<user>/clients/<client>` when it
    names both.
    """
    nodes = {kind: entity_node(name) for kind, name in entity}
    if IP in nodes:
        return f"{IP_CONFIGS}/{nodes[IP]}"
    if USER not in nodes:
        return f"{CLIENT_CONFIGS}/{nodes[CLIENT_ID]}"
    if CLIENT_ID in nodes:
        return f"{user_clients_path(nodes[USER])}/{nodes[CLIENT_ID]}"
    return f"{USER_CONFIGS}/{nodes[USER]}"


def entity_node(name: str | None) -> str:
    """The name of a user, client or address as a node's name, escaped as in Kafka."""
    if name is None:
        return DEFAULT_ENTITY
    if not name.strip("."):
        return name.replace(".", "%2E")  # "." and ".." would lead elsewhere
    return "".join(chr(byte) if byte in _PLAIN_IN_NODES else f"%{byte:02X}" for byte in name.encode())


def entity_name(node: str) -> str | None:
    """The name behind a node, None for the default."""
    if node == DEFAULT_ENTITY:
        return None
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(errors="replace"), node)


def encode_topic_config(overrides: Mapping[str, str]) -> bytes:
    """Config overrides of a topic."""
    return encode_document({"version": 1, "config": dict(sorted(overrides.items()))})


def decode_topic_config(topic: str, payload: bytes) -> dict[str, str]:
    """Config overrides by name."""
    return decode_config(topic_config_path(topic), payload)


def decode_config(path: str, payload: bytes) -> dict[str, str]:
    """Config overrides by name, of a topic or a broker."""
    fields = Fields.parse(path, payload)
    overrides = fields.mapping("config")
    for name, value in overrides.items():
        if not isinstance(value, str):
            fields.fail(f"config {name!r} is {value!r}, not a text")
    return dict(overrides)


def quotas_in(path: str, payload: bytes) -> dict[str, float]:
    """The quotas among the configs of a user, a client or an address; MalformedZnode for one that
    is not a number above 0, which no broker could enforce.
    """
    quotas = {}
    for key, text in decode_entity_config(path, payload).items():
        if key in QUOTA_KEYS:
            try:
                quotas[key] = float(text)
            except ValueError as error:
                raise MalformedZnode(path, f"quota {key!r} is {text!r}, not a number") from error
            if not 0 < quotas[key] < math.inf:
                raise MalformedZnode(path, f"quota {key!r} is {text!r}, not a number above 0")
    return quotas


def decode_entity_config(path: str, payload: bytes) -> dict[str, str]:
    """Decode all configs of a user, a client or an address; a parent node without content has
    none.
    """
    return decode_config(path, payload) if payload else {}


def encode_config_change(entity_path: str) -> bytes:
    """Notice, version 2; `entity_path` is for instance `topics/orders`."""
    return encode_document({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, payload: bytes) -> str:
    """Entity path of a notice; those of version 1 name type and entity apart."""
    fields = Fields.parse(path, payload)
    if fields.number("version", 2) == 1:
        return f"{fields.text('entity_type')}/{fields.text('entity_name')}"
    return fields.text("entity_path")
