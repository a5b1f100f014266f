"""AlterReplicaLogDirs: moves a partition's log to another log directory of this broker, while
clients write and read it.

Behaviour: as Kafka. The answer means that the move has begun; DescribeLogDirs shows its progress.
For a partition that this broker does not have yet, the directory is remembered and
REPLICA_NOT_AVAILABLE is answered: in this way a reassignment chooses directories. A partition that
the site does not have is UNKNOWN_TOPIC_OR_PARTITION. Versions: 1 to 2.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.log.directories.log_store import LogStore
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 34
MIN_VERSION = 1
MAX_VERSION = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    logs: LogStore


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an AlterReplicaLogDirs request."""
    build = builder(API_KEY, context.api_version)
    results: dict[str, list[Any]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            for partition in topic.partitions:
                error = _wish(doors, wanted.path, topic.name, partition)
                part = build.part("AlterReplicaLogDirPartitionResult", partition_index=partition, error_code=error)
                results.setdefault(topic.name, []).append(part)
    return build.response(
        results=tuple(
            build.part("AlterReplicaLogDirTopicResult", topic_name=name, partitions=tuple(partitions))
            for name, partitions in results.items()
        )
    )


def _wish(doors: Doors, path: str, topic: str, partition: int) -> ErrorCode:
    logs = doors.logs
    directory = logs.directory_at(path)
    if directory is None:
        return ErrorCode.kafka_storage_error if path in logs.offline else ErrorCode.log_dir_not_found
    if logs.is_offline(topic, partition):
        return ErrorCode.kafka_storage_error
    if logs.wish_home(topic, partition, directory):
        return ErrorCode.none
    known = doors.cluster.image.topics.get(topic)
    if known is None or partition not in known.partitions:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.replica_not_available
