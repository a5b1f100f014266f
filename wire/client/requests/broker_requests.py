"""Requests to one broker over one connection: each API once, for all versions, with plain results.

No retries and no routing. The result has each partition's answer with its error code; only errors
of the whole response are raised. Callers with their own state of partitions (mirror,
reconciliation) call these functions with a node; `wire/client/raw_client.py` adds retries and finds
the node for the others.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from wire.client.client_errors import RequestTimedOut, Unreachable, broker_error
from wire.client.cluster_metadata import ClusterMetadata, cluster_metadata
from wire.client.connection import Connection
from wire.client.requests import fetch_requests
from wire.client.requests.fetch_requests import FetchRequest
from wire.protocol import schemas
from wire.protocol.byte_reader import Malformed
from wire.protocol.entity_building import build_entity
from wire.protocol.ids import CONSUMER, PartitionKey
from wire.protocol.messages import fetch_codec, produce_codec
from wire.protocol.messages.fetch_codec import FetchResponse
from wire.protocol.messages.link_messages import LINK_PROGRESS, LinkProgressResponse
from wire.protocol.messages.mirror_append_codec import MirrorAppend, mirror_append_parts
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND, MirrorAppendResponse
from wire.protocol.messages.private import SITE_METADATA
from wire.protocol.messages.produce_codec import ProduceRequest, ProduceResponse

METADATA: Final = 3
LIST_OFFSETS: Final = 2
OFFSET_FOR_LEADER_EPOCH: Final = 23

# From these versions on topics go by id alone; every broker accepts names.
_LAST_WITH_NAMES: Final = {0: 12, 1: 12}
_LAST_OF_FIRST_TRANSACTIONS: Final = 11
"""The last Produce version of the first transaction protocol; later versions add partitions to the
transaction by themselves (KIP-890).
"""

Result = TypeVar("Result")


class MetadataAnswer(NamedTuple):
    """A Metadata response: its schema, its bytes, and what they mean."""

    schema: type[Any]
    content: bytes
    metadata: ClusterMetadata


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
    """A leader epoch whose end is requested from the leader of `current_leader_epoch` (-1: any)."""

    leader_epoch: int
    current_leader_epoch: int = -1


class EpochEndOffset(NamedTuple):
    """The largest epoch that is not above the requested one, and its end offset; -1, -1 if the
    leader has none.
    """

    error_code: ErrorCode
    leader_epoch: int
    end_offset: int


async def request_metadata(
    connection: Connection,
    topics: Sequence[str | UUID] | None,
    *,
    is_site_local: bool,
    may_create: bool = False,
    last: MetadataAnswer | None = None,
) -> MetadataAnswer:
    """Brokers and the given topics, all by name or all by id (None: every topic). Topics whose id
    is unknown are left out of the answer.

    Site-local: of the broker's own site alone, if it is an Antipode broker. `last` is returned if
    the broker answers with the same bytes: decoding 10,000 partitions takes 100 ms.
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
    body = schemas.encode(build_entity(schemas.request_type(api_key, version), values))
    try:
        answer = await connection.request(api_key, version, [body], body_size=len(body))
    except Unreachable as lost:
        if api_key != SITE_METADATA or topics is not None or isinstance(lost, RequestTimedOut):
            raise
        # the answer has no field for an error
        detail = f"{lost.detail}; a list of all topics of a site needs ClusterAction"
        raise Unreachable(detail, node=lost.node, api_key=api_key) from lost
    schema = schemas.response_type(api_key, version)
    content = bytes(answer.frame[answer.body_position :])
    if last is not None and (last.schema, last.content) == (schema, content):
        return last
    response = _parsed(connection, api_key, schemas.decode, schema, answer.frame, answer.body_position)
    return MetadataAnswer(schema, content, cluster_metadata(response))


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


async def request_link_progress(connection: Connection, body: bytes) -> ErrorCode:
    """One LinkProgress with this body. Raises UnsupportedApi when the broker is none of
    Antipode's.
    """
    version = connection.version_for(LINK_PROGRESS)
    answer = await connection.request(LINK_PROGRESS, version, [body], body_size=len(body))
    response: LinkProgressResponse = _parsed(
        connection, LINK_PROGRESS, schemas.decode, LinkProgressResponse, answer.frame, answer.body_position
    )
    return response.error_code


async def request_offsets(
    connection: Connection,
    queries: Mapping[PartitionKey, OffsetQuery],
    *,
    replica_id: int = CONSUMER,
    isolation_level: int = 0,
) -> dict[PartitionKey, ListedOffset]:
    """Offsets by time, or the ends of logs, from the partitions' leader."""
    topics = by_topic(
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
    topics = by_topic(
        {"partition": partition, **query._asdict()} | {"topic": topic} for (topic, partition), query in queries.items()
    )
    named = [{"topic": name, "partitions": partitions} for name, partitions in topics.items()]
    response = await connection.call(OFFSET_FOR_LEADER_EPOCH, {"replica_id": replica_id, "topics": named})
    return {
        (topic.topic, found.partition): EpochEndOffset(found.error_code, found.leader_epoch, found.end_offset)
        for topic in response.topics
        for found in topic.partitions
    }


def by_topic(partitions: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The values of partitions by their topic."""
    """Partitions gathered under the name that each carries as `topic`."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in partitions:
        topics.setdefault(partition.pop("topic"), []).append(partition)
    return topics


def check(connection: Connection, api_key: int, code: ErrorCode, message: str | None = None) -> None:
    """Raise the BrokerError of a response that failed as a whole."""
    if code:
        raise broker_error(code, message=message, node=str(connection.address), api_key=api_key)


def _parsed(connection: Connection, api_key: int, parse: Callable[..., Result], *arguments: Any) -> Result:
    try:
        return parse(*arguments)
    except Malformed as error:
        connection.close(f"malformed answer: {error}")
        raise Unreachable(f"the answer is malformed: {error}", node=str(connection.address), api_key=api_key) from error
