"""Requests to one broker about groups: their coordinators, their committed offsets and commits.
Like `wire/client/requests/broker_requests.py`: no retries, no routing, a partition's error code
beside its answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from wire.client.client_errors import error_code
from wire.client.connection import Connection
from wire.client.requests.broker_requests import by_topic, check
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.group_offset_messages import CARRIED_OFFSETS, MIRROR_GROUP_OFFSETS
from wire.protocol.messages.private import MIRROR_OFFSET_COMMIT, link_claim
from wire.rules.sync_reports import SyncReport, encode_report

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
LIST_GROUPS: Final = 16
_LAST_WITH_NAMES: Final = 9
"""The last OffsetFetch and OffsetCommit version with topic names; later ones have ids alone."""
_FIRST_WITH_GROUPS: Final = 8
"""The first OffsetFetch version that asks for several groups."""


class GroupListing(NamedTuple):
    """A group as its coordinator lists it; the state is "" from brokers that do not report it."""

    group_id: str
    protocol_type: str
    state: str


class CommittedOffset(NamedTuple):
    """A group's position in a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


class FetchedOffset(NamedTuple):
    """A committed offset as the coordinator reports it; offset -1 when there is none."""

    error_code: ErrorCode
    offset: int
    leader_epoch: int
    metadata: str | None


async def request_groups(connection: Connection) -> list[GroupListing]:
    """The groups that this broker coordinates. Raises BrokerError."""
    response = await connection.call(LIST_GROUPS, {"states_filter": (), "types_filter": ()})
    check(connection, LIST_GROUPS, response.error_code)
    return [
        GroupListing(group.group_id, group.protocol_type, getattr(group, "group_state", ""))
        for group in response.groups
    ]


TRANSACTION_KEY_TYPE: Final = 1


async def request_coordinator(connection: Connection, key: str, *, key_type: int = 0) -> int:
    """Node id of the coordinator of a group (key type 0) or a transactional id
    (`TRANSACTION_KEY_TYPE`). Raises BrokerError.
    """
    values = {"key": key, "key_type": key_type, "coordinator_keys": (key,)}
    response = await connection.call(FIND_COORDINATOR, values)
    found = response.coordinators[0] if hasattr(response, "coordinators") else response
    check(connection, FIND_COORDINATOR, found.error_code, getattr(found, "error_message", None))
    return int(found.node_id)


async def request_committed(
    connection: Connection, group_id: str, partitions: Iterable[PartitionKey] | None = None
) -> dict[PartitionKey, FetchedOffset]:
    """A group's offsets (None: all) from its coordinator. Raises BrokerError."""
    version = connection.version_for(OFFSET_FETCH, highest=_LAST_WITH_NAMES)
    topics = None
    if partitions is not None:
        indexes: dict[str, list[int]] = {}
        for topic, partition in partitions:
            indexes.setdefault(topic, []).append(partition)
        topics = [{"name": name, "partition_indexes": found} for name, found in indexes.items()]
    values = {
        "group_id": group_id,
        "topics": topics,
        # from version 8 on the same question in another form; each version encodes its own fields
        "groups": [{"group_id": group_id, "topics": topics, "member_id": None, "member_epoch": -1}],
        "require_stable": False,
    }
    response = await connection.call(OFFSET_FETCH, values, version=version)
    found = response.groups[0] if hasattr(response, "groups") else response
    check(connection, OFFSET_FETCH, getattr(found, "error_code", ErrorCode.none))
    return _fetched_offsets(found)


async def request_committed_by_groups(
    connection: Connection, group_ids: Sequence[str]
) -> dict[str, dict[PartitionKey, FetchedOffset]]:
    """All offsets of several groups from their coordinator, in one request if the broker supports
    this (KIP-709). A group that it does not coordinate is left out.
    """
    version = connection.version_for(OFFSET_FETCH, highest=_LAST_WITH_NAMES)
    if version < _FIRST_WITH_GROUPS:
        return {group_id: await request_committed(connection, group_id) for group_id in group_ids}
    groups = [{"group_id": one, "topics": None, "member_id": None, "member_epoch": -1} for one in group_ids]
    response = await connection.call(OFFSET_FETCH, {"groups": groups, "require_stable": False}, version=version)
    return {group.group_id: _fetched_offsets(group) for group in response.groups if not group.error_code}


def _fetched_offsets(found: Any) -> dict[PartitionKey, FetchedOffset]:
    return {
        (topic.name, at.partition_index): FetchedOffset(
            at.error_code, at.committed_offset, getattr(at, "committed_leader_epoch", -1), at.metadata
        )
        for topic in found.topics
        for at in topic.partitions
    }


class Committer(NamedTuple):
    """The member that commits; NO_MEMBER for admin tools, which may while the group has no
    members.
    """

    generation_id: int
    member_id: str
    instance_id: str | None = None


NO_MEMBER: Final = Committer(-1, "")


async def request_commit(
    connection: Connection,
    group_id: str,
    offsets: Mapping[PartitionKey, CommittedOffset],
    committer: Committer = NO_MEMBER,
) -> dict[PartitionKey, ErrorCode]:
    """Write a group's offsets; the outcome by partition."""
    version = connection.version_for(OFFSET_COMMIT, highest=_LAST_WITH_NAMES)
    return await _commit(
        connection, OFFSET_COMMIT, version=version, group_id=group_id, offsets=offsets, committer=committer
    )


async def request_mirror_commit(
    connection: Connection,
    group_id: str,
    offsets: Mapping[PartitionKey, CommittedOffset],
    *,
    link: str,
    link_epoch: int,
) -> dict[PartitionKey, ErrorCode]:
    """Write a group's offsets as the link's mirror. Raises UnsupportedApi when the broker is none
    of Antipode's.
    """
    version = connection.version_for(MIRROR_OFFSET_COMMIT)
    claim = link_claim(link, link_epoch)
    committer = NO_MEMBER._replace(instance_id=claim)
    return await _commit(
        connection, MIRROR_OFFSET_COMMIT, version=version, group_id=group_id, offsets=offsets, committer=committer
    )


async def request_mirror_groups(
    connection: Connection,
    groups: Mapping[str, Mapping[PartitionKey, CommittedOffset]],
    *,
    link: str,
    link_epoch: int,
) -> dict[str, dict[PartitionKey, ErrorCode]]:
    """Write the offsets of several groups as the link's mirror; the outcome by group and partition.
    Raises UnsupportedApi when the broker does not know the request.
    """
    values = {
        "link": link,
        "link_epoch": link_epoch,
        "groups": [
            {
                "group_id": group_id,
                "offsets": [
                    {
                        "topic": topic,
                        "partition_index": partition,
                        "committed_offset": committed.offset,
                        "committed_leader_epoch": committed.leader_epoch,
                        "committed_metadata": committed.metadata or "",
                    }
                    for (topic, partition), committed in offsets.items()
                ],
            }
            for group_id, offsets in groups.items()
        ],
    }
    answer = await connection.call(MIRROR_GROUP_OFFSETS, values)
    return {
        group_id: dict.fromkeys(offsets, error_code(outcome.error_code))
        | {(one.topic, one.partition_index): error_code(one.error_code) for one in outcome.refused}
        for (group_id, offsets), outcome in zip(groups.items(), answer.outcomes, strict=True)
    }


async def request_carried_offsets(
    connection: Connection, group_ids: Sequence[str], *, link: str, link_epoch: int
) -> dict[str, dict[PartitionKey, int]]:
    """The offsets that mirrors of the link have written at this epoch and that are unchanged since.
    A group that the broker does not coordinate is left out. Raises UnsupportedApi when the broker
    does not know the request.
    """
    values = {"link": link, "link_epoch": link_epoch, "group_ids": tuple(group_ids)}
    answer = await connection.call(CARRIED_OFFSETS, values)
    return {
        group_id: {(one.topic, one.partition_index): one.committed_offset for one in group.offsets}
        for group_id, group in zip(group_ids, answer.groups, strict=True)
        if not group.error_code
    }


async def request_sync_report(connection: Connection, report: SyncReport, *, link: str, link_epoch: int) -> None:
    """Report what a daemon of the link's mirror has carried of its part of the link, and at what it
    fails.
    """
    version = connection.version_for(MIRROR_OFFSET_COMMIT)
    claim = NO_MEMBER._replace(member_id=str(report.synced_at_ms), instance_id=link_claim(link, link_epoch))
    # OffsetCommit has no field for a report: the metadata of one nameless partition carries it
    offsets: dict[PartitionKey, CommittedOffset] = {("", 0): CommittedOffset(-1, -1, encode_report(report))}
    await _commit(connection, MIRROR_OFFSET_COMMIT, version=version, group_id="", offsets=offsets, committer=claim)


async def _commit(
    connection: Connection,
    api_key: int,
    version: int,
    group_id: str,
    offsets: Mapping[PartitionKey, CommittedOffset],
    committer: Committer,
) -> dict[PartitionKey, ErrorCode]:
    topics = by_topic(
        {
            "topic": topic,
            "partition_index": partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "committed_metadata": committed.metadata,
        }
        for (topic, partition), committed in offsets.items()
    )
    values = {
        "group_id": group_id,
        "generation_id_or_member_epoch": committer.generation_id,
        "member_id": committer.member_id,
        "group_instance_id": committer.instance_id,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    response = await connection.call(api_key, values, version=version)
    return {
        (topic.name, found.partition_index): found.error_code for topic in response.topics for found in topic.partitions
    }
