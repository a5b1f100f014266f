"""Names of a segment's files, as in Apache Kafka."""

from __future__ import annotations

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_DIGITS: Final = 20


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name: 20 digits and a suffix."""
    return f"{offset:020d}{suffix}"


def numbered_offset(name: str, suffix: str) -> int | None:
    """The offset in a file name that follows Kafka's pattern, else None."""
    stem = name.removesuffix(suffix)
    is_numbered = name.endswith(suffix) and len(stem) == _DIGITS and stem.isascii() and stem.isdecimal()
    return int(stem) if is_numbered else None
