"""Names of the files beside the partitions' folders that keep what a log loses inside its site."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

TRUNCATED_PREFIX: Final = "0.cut."
"""Kafka's dump tool reads a number in front of the first dot."""
_NAME_BYTES_MAX: Final = 255
LEADING_CHARACTERS: Final = 200
"""Length of a topic's name in the name of a file, followed by a digest of the whole, where the
whole would be too long.
"""


def truncated_name(topic: str, partition: int) -> str:
    """The name of the file of this partition."""
    name = f"{TRUNCATED_PREFIX}{topic}-{partition}.log"
    return name if len(name) <= _NAME_BYTES_MAX else f"{TRUNCATED_PREFIX}{short_topic(topic)}-{partition}.log"


def short_topic(topic: str) -> str:
    """The name of a topic in the name of a file where the whole would be too long. No topic has
    this name, for the sake of its tilde.
    """
    return f"{topic[:LEADING_CHARACTERS]}~{blake2b(topic.encode(), digest_size=8).hexdigest()}"
