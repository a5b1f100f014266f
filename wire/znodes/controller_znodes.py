"""The paths that a controller adds to Kafka's layout (`layout.py`): brokers that will not return,
raises of leader epochs that are not in the states of all partitions yet, and the controller's
rules.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection

from wire.znodes.documents import Fields, MalformedZnode, encode_document
from wire.znodes.layout import ANTIPODE

UNREGISTERED_BROKERS = f"{ANTIPODE}/unregistered_brokers"
"""One empty node for each broker that an operator unregistered, named by its node id; removed when
the broker registers again.
"""
SITE_RULES = f"{ANTIPODE}/site_rules"
"""The site-wide settings by which the active controller decides
(`controller/election/site_rules.py`).
"""


EPOCH_RAISES = f"{ANTIPODE}/epoch_raises"
"""Raises of leader epochs in force: the partitions of the named topics have at least the leader
epoch `floor`, also those whose own znode has a lower one.
"""


def epoch_raise_path(name: str) -> str:
    """One raise of leader epochs."""
    return f"{EPOCH_RAISES}/{name}"


def encode_epoch_raise(floor: int, topics: Collection[str]) -> bytes:
    """A raise as compressed JSON: it may name thousands of topics."""
    return zlib.compress(encode_document({"version": 1, "floor": floor, "topics": sorted(topics)}))


def decode_epoch_raise(name: str, payload: bytes) -> tuple[int, frozenset[str]]:
    """The floor and the topics of a raise. Raises MalformedZnode."""
    path = epoch_raise_path(name)
    try:
        plain = zlib.decompress(payload)
    except zlib.error as error:
        raise MalformedZnode(path, f"it cannot be decompressed: {error}") from error
    fields = Fields.parse(path, plain)
    return fields.number("floor"), frozenset(fields.texts("topics"))


def unregistered_broker_path(node_id: int) -> str:
    """The mark that one broker was given up."""
    return f"{UNREGISTERED_BROKERS}/{node_id}"
