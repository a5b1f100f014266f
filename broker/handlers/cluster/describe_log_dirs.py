"""DescribeLogDirs: the logs in each log directory of this broker, their sizes, and the logs that
are moving to another directory.

Behaviour: as Kafka. A directory that is offline has the error KAFKA_STORAGE_ERROR and no
partitions. Versions: 1 to 5. Not done: cordoned directories (KIP-1066); no directory is reported as
cordoned.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.log.directories.log_directory import LogDirectory
from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from wire.protocol.ids import TopicPartition

API_KEY = 35
MIN_VERSION = 1
MAX_VERSION = 5

UNKNOWN_BYTES = -1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    logs: LogStore


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeLogDirs request."""
    build = builder(API_KEY, context.api_version)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    online = [_directory(build, doors.logs, directory, wanted) for directory in doors.logs.directories]
    offline = [_result(build, path, ErrorCode.kafka_storage_error) for path in doors.logs.offline]
    return build.response(error_code=ErrorCode.none, results=(*online, *offline))


def _directory(build: Any, logs: LogStore, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> Any:
    topics: dict[str, list[Any]] = {}
    for (topic, index), size_bytes, lag, is_future in _contents(logs, directory):
        if wanted is None or (topic, index) in wanted:
            topics.setdefault(topic, []).append(
                build.part(
                    "DescribeLogDirsPartition",
                    partition_index=index,
                    partition_size=size_bytes,
                    offset_lag=lag,
                    is_future_key=is_future,
                )
            )
    try:
        sizes = directory.capacity_bytes(), directory.free_bytes()
    except StorageError as error:
        logs.note_failure(error)
        return _result(build, directory.path, ErrorCode.kafka_storage_error)
    return _result(build, directory.path, ErrorCode.none, topics=topics, sizes=sizes)


def _contents(logs: LogStore, directory: LogDirectory) -> list[tuple[TopicPartition, int, int, bool]]:
    """Each log here with its size, its lag, and whether it is the copy of a move, even one that has
    not begun.
    """
    here = [
        (key, log.size_bytes, max(log.high_watermark - log.log_end_offset, 0), False)
        for key, log in directory.logs.items()
    ]
    coming = [
        (move.key, 0 if move.future is None else move.future.size_bytes, move.lag, True)
        for move in logs.moves.values()
        if move.target is directory
    ]
    return here + coming


def _result(
    build: Any,
    path: str,
    error: ErrorCode,
    *,
    topics: dict[str, list[Any]] | None = None,
    sizes: tuple[int, int] = (UNKNOWN_BYTES, UNKNOWN_BYTES),
) -> Any:
    return build.part(
        "DescribeLogDirsResult",
        error_code=error,
        log_dir=path,
        topics=tuple(
            build.part("DescribeLogDirsTopic", name=name, partitions=tuple(partitions))
            for name, partitions in (topics or {}).items()
        ),
        total_bytes=sizes[0],
        usable_bytes=sizes[1],
        is_cordoned=False,
    )
