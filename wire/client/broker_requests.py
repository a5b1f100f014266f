"""Requests to one broker over one connection: each API once, for all versions, with plain results.

No retries and no routing: what a broker answers about a partition comes back with that partition's
error code, only errors of the whole response are raised. Those who keep state of their own about
partitions (mirror, reconciliation) call these with a node; `wire/client/raw_client.py` adds retries
and finds the node for the others.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from wire.client import fetch_requests
from wire.client.client_errors import Unreachable, broker_error
from wire.client.cluster_metadata import ClusterMetadata, cluster_metadata
from wire.client.connection import Connection
from wire.client.fetch_requests import FetchRequest
from wire.protocol import fetch_codec, produce_codec, schemas
from wire.protocol.byte_reader import Malformed
from wire.protocol.fetch_codec import FetchResponse
from wire.protocol.ids import CONSUMER, PartitionKey
from wire.protocol.mirror_append_codec import MirrorAppend, mirror_append_parts
from wire.protocol.private import MIRROR_APPEND, MIRROR_OFFSET_COMMIT, SITE_METADATA, MirrorAppendResponse, link_claim
from wire.protocol.produce_codec import ProduceRequest, ProduceResponse
from wire.rules.sync_reports import SyncReport, encode_report

METADATA: Final = 3
LIST_OFFSETS: Final = 2
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
LIST_GROUPS: Final = 16
OFFSET_FOR_LEADER_EPOCH: Final = 23

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1

# From these versions on topics go by id alone; names serve everybody.
_LAST_WITH_NAMES: Final = {0: 12, 1: 12, OFFSET_COMMIT: 9, OFFSET_FETCH: 9}
_LAST_OF_FIRST_TRANSACTIONS: Final = 11
"""The last Produce version of the first transaction protocol; later versions add partitions to the
transaction by themselves (KIP-890).
"""
_FIRST_WITH_GROUPS: Final = 8
"""The first OffsetFetch version that asks for several groups."""

Result = TypeVar("Result")


class OffsetQuery(NamedTuple):
    """One lookup: a time in Unix ms, or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP; with the expected
    leader epoch (-1: any).
    """

    timestamp: int
    current_leader_epoch: int = -1


class ListedOffset(NamedTuple):
    """The first offset at or after the time asked for; -1 when there is none."""

    error_code: ErrorCode
    timestamp: int
    offset: int
    leader_epoch: int


class EpochQuery(NamedTuple):
    """A leader epoch whose end is wanted, asked of the leader of `current_leader_epoch` (-1:
    any).
    """

    leader_epoch: int
    current_leader_epoch: int = -1


class EpochEndOffset(NamedTuple):
    """The largest epoch not above the one asked for, and where it ends; -1, -1 when there is
    none.
    """

    error_code: ErrorCode
    leader_epoch: int
    end_offset: int


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


async def request_metadata(
    connection: Connection,
    topics: Sequence[str | UUID] | None,
    *,
    is_site_local: bool,
    may_create: bool = False,
) -> ClusterMetadata:
    """Brokers and the given topics, all by name or all by id (None: every topic). Topics whose id
    is unknown are left out of the answer.

    Site-local: of the broker's own site alone, if it is an Antipode broker.
    """
    api_key = SITE_METADATA if is_site_local and SITE_METADATA in connection.versions else METADATA
    version = connection.version_for(api_key, highest=12)
    named: list[dict[str, Any]] | None = None if topics is None else [_named(topic) for topic in topics]
    if named is None and version == 0:
        named = []
    values = {
        "topics": named,
        "allow_auto_topic_creation": may_create,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    return cluster_metadata(await connection.call(api_key, values, version=version))


def _named(topic: str | UUID) -> dict[str, Any]:
    """A topic of a Metadata request. A broker of Metadata versions below 12 takes no ids and
    refuses them.
    """
    return {"name": None, "topic_id": topic} if isinstance(topic, UUID) else {"name": topic, "topic_id": None}


async def request_fetch(
    connection: Connection, request: FetchRequest, *, timeout_ms: float | None = None
) -> FetchResponse:
    """One Fetch. Topics of the answer carry the names of the request; records are views of the
    received frame.

    The deadline is `timeout_ms`, or the connection's for a request plus the time that the broker
    may wait.
    """
    if timeout_ms is None:
        timeout_ms = connection.request_timeout_ms + request.max_wait_ms
    has_ids = all(topic.topic_id is not None for topic in request.topics) and all(
        topic.topic_id is not None for topic in request.forgotten_topics
    )
    version = connection.version_for(fetch_codec.API_KEY, highest=None if has_ids else _LAST_WITH_NAMES[1])
    body = fetch_requests.encode_fetch_request(request, version)
    answer = await connection.request(1, version, [body], body_size=len(body), timeout_ms=timeout_ms)
    response = _parsed(connection, 1, fetch_codec.parse_fetch_response, answer.frame, answer.body_position, version)
    if version < fetch_codec.TOPIC_IDS_FROM:
        return response
    names = {topic.topic_id: topic.name for topic in request.topics}
    topics = [topic._replace(name=names.get(topic.topic_id, "")) for topic in response.topics]
    return response._replace(topics=topics)


async def request_produce(
    connection: Connection, request: ProduceRequest, *, timeout_ms: float | None = None
) -> ProduceResponse | None:
    """One Produce; None with acks 0. The records must not change until it is answered."""
    has_ids = all(topic.topic_id is not None for topic in request.topics)
    highest = None if has_ids else _LAST_WITH_NAMES[0]
    if request.transactional_id is not None:
        highest = _LAST_OF_FIRST_TRANSACTIONS
    version = connection.version_for(produce_codec.API_KEY, highest=highest)
    parts, size = produce_codec.produce_request_parts(request, version)
    if request.acks == 0:
        await connection.send_unanswered(0, version, parts, body_size=size)
        return None
    answer = await connection.request(0, version, parts, body_size=size, timeout_ms=timeout_ms)
    return _parsed(connection, 0, produce_codec.parse_produce_response, answer.frame, answer.body_position, version)


async def request_mirror_append(
    connection: Connection, request: MirrorAppend, *, timeout_ms: float | None = None
) -> MirrorAppendResponse:
    """One MirrorAppend. Raises UnsupportedApi when the broker is none of Antipode's."""
    version = connection.version_for(MIRROR_APPEND)
    parts, size = mirror_append_parts(request)
    answer = await connection.request(MIRROR_APPEND, version, parts, body_size=size, timeout_ms=timeout_ms)
    response: MirrorAppendResponse = _parsed(
        connection, MIRROR_APPEND, schemas.decode, MirrorAppendResponse, answer.frame, answer.body_position
    )
    return response


async def request_offsets(
    connection: Connection,
    queries: Mapping[PartitionKey, OffsetQuery],
    *,
    replica_id: int = CONSUMER,
    isolation_level: int = 0,
) -> dict[PartitionKey, ListedOffset]:
    """Offsets by time, or the ends of logs, from the partitions' leader."""
    topics = _by_topic(
        {"partition_index": partition, **query._asdict()} | {"topic": topic}
        for (topic, partition), query in queries.items()
    )
    values = {
        "replica_id": replica_id,
        "isolation_level": isolation_level,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "timeout": dt.timedelta(seconds=30),
    }
    response = await connection.call(LIST_OFFSETS, values)
    return {
        (topic.name, found.partition_index): ListedOffset(
            found.error_code, found.timestamp, found.offset, getattr(found, "leader_epoch", -1)
        )
        for topic in response.topics
        for found in topic.partitions
    }


async def request_epoch_ends(
    connection: Connection, queries: Mapping[PartitionKey, EpochQuery], *, replica_id: int = CONSUMER
) -> dict[PartitionKey, EpochEndOffset]:
    """The ends of leader epochs, from the partitions' leader (KIP-101, KIP-320)."""
    topics = _by_topic(
        {"partition": partition, **query._asdict()} | {"topic": topic} for (topic, partition), query in queries.items()
    )
    named = [{"topic": name, "partitions": partitions} for name, partitions in topics.items()]
    response = await connection.call(OFFSET_FOR_LEADER_EPOCH, {"replica_id": replica_id, "topics": named})
    return {
        (topic.topic, found.partition): EpochEndOffset(found.error_code, found.leader_epoch, found.end_offset)
        for topic in response.topics
        for found in topic.partitions
    }


async def request_groups(connection: Connection) -> list[GroupListing]:
    """The groups that this broker coordinates. Raises BrokerError."""
    response = await connection.call(LIST_GROUPS, {"states_filter": (), "types_filter": ()})
    _check(connection, LIST_GROUPS, response.error_code)
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
    _check(connection, FIND_COORDINATOR, found.error_code, getattr(found, "error_message", None))
    return int(found.node_id)


async def request_committed(
    connection: Connection, group_id: str, partitions: Iterable[PartitionKey] | None = None
) -> dict[PartitionKey, FetchedOffset]:
    """A group's offsets (None: all) from its coordinator. Raises BrokerError."""
    version = connection.version_for(OFFSET_FETCH, highest=_LAST_WITH_NAMES[OFFSET_FETCH])
    topics = None
    if partitions is not None:
        indexes: dict[str, list[int]] = {}
        for topic, partition in partitions:
            indexes.setdefault(topic, []).append(partition)
        topics = [{"name": name, "partition_indexes": found} for name, found in indexes.items()]
    values = {
        "group_id": group_id,
        "topics": topics,
        "groups": [{"group_id": group_id, "topics": topics, "member_id": None, "member_epoch": -1}],
        "require_stable": False,
    }
    response = await connection.call(OFFSET_FETCH, values, version=version)
    found = response.groups[0] if hasattr(response, "groups") else response
    _check(connection, OFFSET_FETCH, getattr(found, "error_code", ErrorCode.none))
    return _fetched_offsets(found)


async def request_committed_by_groups(
    connection: Connection, group_ids: Sequence[str]
) -> dict[str, dict[PartitionKey, FetchedOffset]]:
    """All offsets of several groups from their coordinator, in one request where it takes one
    (KIP-709). A group that it does not coordinate is left out.
    """
    version = connection.version_for(OFFSET_FETCH, highest=_LAST_WITH_NAMES[OFFSET_FETCH])
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
    version = connection.version_for(OFFSET_COMMIT, highest=_LAST_WITH_NAMES[OFFSET_COMMIT])
    return await _commit(connection, OFFSET_COMMIT, version, group_id, offsets, committer)


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
    return await _commit(connection, MIRROR_OFFSET_COMMIT, version, group_id, offsets, committer)


async def request_sync_report(connection: Connection, report: SyncReport, *, link: str, link_epoch: int) -> None:
    """Report what a daemon of the link's mirror has carried of its part of the link, and at what it
    fails.
    """
    version = connection.version_for(MIRROR_OFFSET_COMMIT)
    claim = NO_MEMBER._replace(member_id=str(report.synced_at_ms), instance_id=link_claim(link, link_epoch))
    offsets: dict[PartitionKey, CommittedOffset] = {("", 0): CommittedOffset(-1, -1, encode_report(report))}
    await _commit(connection, MIRROR_OFFSET_COMMIT, version, "", offsets, claim)


async def _commit(
    connection: Connection,
    api_key: int,
    version: int,
    group_id: str,
    offsets: Mapping[PartitionKey, CommittedOffset],
    committer: Committer,
) -> dict[PartitionKey, ErrorCode]:
    topics = _by_topic(
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


def _by_topic(partitions: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Partitions gathered under the name that each carries as `topic`."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in partitions:
        topics.setdefault(partition.pop("topic"), []).append(partition)
    return topics


def _check(connection: Connection, api_key: int, code: ErrorCode, message: str | None = None) -> None:
    if code:
        raise broker_error(code, message=message, node=str(connection.address), api_key=api_key)


def _parsed(connection: Connection, api_key: int, parse: Callable[..., Result], *arguments: Any) -> Result:
    try:
        return parse(*arguments)
    except Malformed as error:
        connection.close(f"malformed answer: {error}")
        raise Unreachable(f"the answer is malformed: {error}", node=str(connection.address), api_key=api_key) from error
