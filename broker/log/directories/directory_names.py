"""Names of partition directories in Apache Kafka's form, and of deleted and moving ones."""

from __future__ import annotations

from typing import Final

from runtime.chance import new_uuid
from wire.protocol.ids import TopicPartition

DELETED_MARK: Final = "-delete"


FUTURE_MARK: Final = "-future"


IGNORED_MARKS: Final = (FUTURE_MARK, "-stray")


_NAME_BYTES_MAX: Final = 255


def parse_directory_name(name: str) -> TopicPartition | None:
    """Topic and partition of a directory `<topic>-<partition>`; None for any other name."""
    topic, _, number = name.rpartition("-")
    if not topic or not number.isascii() or not number.isdecimal() or name.endswith(IGNORED_MARKS):
        return None
    return TopicPartition(topic, int(number))


def deleted_name(key: TopicPartition) -> str:
    """A new name for the directory of a deleted log, short enough for file systems."""
    mark = f".{new_uuid().hex}{DELETED_MARK}"
    return f"{key.topic}-{key.partition}"[: _NAME_BYTES_MAX - len(mark)] + mark
