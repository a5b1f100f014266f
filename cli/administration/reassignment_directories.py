"""The log directories that a plan asks for, over the Kafka protocol: checked, sent to each broker,
verified.

As in KIP-113, brokers get the directories before the reassignment, so that they create new replicas
in the right place. The request is repeated until the replicas exist, because a broker keeps it in
memory only. Called by cli/administration/reassign.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from cli.administration.log_dirs import ALTER_REPLICA_LOG_DIRS, directories_of
from cli.administration.reassignment_plan import Replica
from runtime.process import OperationalFailure
from wire.protocol.ids import TopicPartition

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

PAUSE_S = 0.2
REPORTED_MAX = 100
"""The maximum number of requests while replicas are created."""
DONE, MOVING, ELSEWHERE, MISSING = "done", "moving", "elsewhere", "missing"


async def check(client: KafkaClient, wanted: Mapping[Replica, str]) -> None:
    """OperationalFailure when a broker does not have a directory, or has it offline."""
    found = await directories_of(client, _nodes(wanted))
    for replica, path in sorted(wanted.items()):
        online = [row["directory"] for row in found if row["broker"] == replica.node_id and row["state"] == "online"]
        if path not in [directory.rstrip("/") for directory in online]:
            raise OperationalFailure(
                f"broker {replica.node_id} has no log directory {path} online; it has {', '.join(online)}"
            )


async def request_directories(client: KafkaClient, wanted: Mapping[Replica, str]) -> dict[Replica, str]:
    """Send each broker the directories of its replicas; returns those that it does not have yet.
    OperationalFailure when it refuses one.
    """
    left: dict[Replica, str] = {}
    for node_id in _nodes(wanted):
        here = {replica: path for replica, path in wanted.items() if replica.node_id == node_id}
        response = await (await client.connection(node_id)).call(ALTER_REPLICA_LOG_DIRS, {"dirs": _asked(here)})
        for topic in response.results:
            for partition in topic.partitions:
                replica = Replica(TopicPartition(topic.topic_name, partition.partition_index), node_id)
                if partition.error_code is ErrorCode.replica_not_available:
                    left[replica] = wanted[replica]
                elif partition.error_code:
                    name = partition.error_code.name.upper()
                    raise OperationalFailure(f"{replica} cannot lie in {wanted[replica]}: {name}")
    return left


async def report_until_acknowledged(client: KafkaClient, wanted: Mapping[Replica, str]) -> None:
    """Repeat the requests until the brokers have all these replicas. OperationalFailure when one is
    not created.
    """
    left = dict(wanted)
    for _ in range(REPORTED_MAX):
        left = await request_directories(client, left)
        if not left:
            return
        await asyncio.sleep(PAUSE_S)
    raise OperationalFailure(f"{min(left)} was not created in time: it may get another log directory")


async def states(client: KafkaClient, wanted: Mapping[Replica, str]) -> dict[Replica, str]:
    """The state of each replica: done, moving, elsewhere, or missing at its broker."""
    found: dict[Replica, dict[str, bool]] = {}
    for directory in await directories_of(client, _nodes(wanted)):
        for log in directory["logs"]:
            replica = Replica(TopicPartition(log["topic"], log["partition"]), log["broker"])
            found.setdefault(replica, {})[log["directory"].rstrip("/")] = log["is_coming"]
    return {replica: _state(found.get(replica, {}), path) for replica, path in sorted(wanted.items())}


def _state(here: Mapping[str, bool], path: str) -> str:
    """`here` maps each directory that has the log to True if the log is only a future replica
    there.
    """
    if not here:
        return MISSING
    if path not in here:
        return ELSEWHERE
    if here[path]:
        return MOVING
    return ELSEWHERE if any(here.values()) else DONE


def _nodes(wanted: Iterable[Replica]) -> list[int]:
    return sorted({replica.node_id for replica in wanted})


def _asked(here: Mapping[Replica, str]) -> list[dict[str, Any]]:
    paths: dict[str, dict[str, list[int]]] = {}
    for (place, _), path in sorted(here.items()):
        paths.setdefault(path, {}).setdefault(place.topic, []).append(place.partition)
    return [
        {"path": path, "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()]}
        for path, topics in paths.items()
    ]
