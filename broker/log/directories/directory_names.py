"""Names of partition directories in Apache Kafka's form, and of deleted and moving ones."""

from __future__ import annotations

from typing import Final

from runtime.chance import new_uuid
from wire.protocol.ids import TopicPartition

DELETED_MARK: Final = "-delete"


FUTURE_MARK: Final = "-future"


STRAY_MARK: Final = "-stray"
"""Of logs that are kept though their topics are unknown; no start loads or removes them."""


IGNORED_MARKS: Final = (FUTURE_MARK, STRAY_MARK)


_NAME_BYTES_MAX: Final = 255


def parse_directory_name(name: str) -> TopicPartition | None:
    """Topic and partition of a directory `<topic>-<partition>`; None for any other name."""
    topic, _, number = name.rpartition("-")
    if not topic or not number.isascii() or not number.isdecimal() or name.endswith(IGNORED_MARKS):
        return None
    return TopicPartition(topic, int(number))


def is_stray(name: str) -> bool:
    """True for the folder of a log that was set aside, by us or by Apache Kafka."""
    return name.endswith(STRAY_MARK)


def aside_name(key: TopicPartition, mark: str) -> str:
    """A new name for the directory of a log that is let go, short enough for file systems."""
    mark = f".{new_uuid().hex}{mark}"
    return f"{key.topic}-{key.partition}"[: _NAME_BYTES_MAX - len(mark)] + mark
