"""Produce: the hot way in. Record bytes are written from the receive buffer to the log without a
copy.

Behaviour: acks 0 is never answered, and a failed partition then closes the connection (the only
sign that such a client gets); acks 1 is answered after the append, acks -1 when every in-sync
replica has the records. Topics whose flush.messages demands it are flushed before the answer.
Errors carry the current leader (KIP-951) from version 10 on. Versions: 3 to 13. A transaction's
first batch in a partition waits until the transaction's coordinator has confirmed that the
partition takes part (`transactional_produce.py`). Requests wait during a controlled shutdown
(`broker/site/controlled_shutdown.py`), and while the active role of their link moves to the other
site, to which they are then forwarded (`role_moves.py`). The size of a request is charged to the
client's quota when the request is answered. Requests that follow on the connection are appended
while one waits for the in-sync replicas; answers keep the order of the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from broker.authorization.authorizer import Check
from broker.authorization.authorizer import topics as written_topics
from broker.handlers.records.leader_hints import HINTED_ERRORS, leader_hint
from broker.handlers.records.produce_doors import Doors
from broker.handlers.records.produce_responses import answer, errors_of, throttle_time_ms
from broker.handlers.records.transactional_produce import TransactionalProduce
from broker.handlers.records.waiting_produce import WaitingProduce
from broker.log.errors import StorageError
from broker.metadata.core.cluster_image import ClusterImage
from broker.network.entities import topic_id_bytes
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from wire.batches.record_batch import is_transactional
from wire.protocol.byte_reader import Buffer
from wire.protocol.ids import ACKS_ALL
from wire.protocol.messages.leader_hints import NO_HINT
from wire.protocol.messages.produce_codec import (
    HIGHEST_VERSION,
    LOWEST_VERSION,
    PartitionProduced,
    PartitionRecords,
    ProduceRequest,
    TopicProduced,
    parse_produce_request,
)
from wire.rules.acls import Operation, ResourceType
from wire.rules.topic_names import is_internal_topic

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = 0
MIN_VERSION = LOWEST_VERSION
MAX_VERSION = HIGHEST_VERSION
ADVERTISED_FROM = 0
"""Versions 0 to 2 are listed and refused, see api_versions.py."""
ACKS_NONE: Final = 0
_ACKS = (ACKS_NONE, 1, ACKS_ALL)
_TOPIC_IDS_FROM = 13


class _Append:
    """The appends of one request so far."""

    __slots__ = ("appended", "error_count", "led_since", "topics")

    def __init__(self) -> None:
        self.topics: list[TopicProduced] = []
        self.appended: list[tuple[HostedPartition, int]] = []
        self.led_since: dict[tuple[str, int], int] = {}
        """The leader epoch since which this broker leads each partition without interruption. Set
        right after the append, if a partition must be flushed before the response.
        """
        self.error_count = 0

    def to_flush(self) -> list[HostedPartition]:
        """The partitions that must be flushed to disk before the response."""
        found = [hosted for hosted, _ in self.appended if hosted.log.needs_flush]
        if found:
            self.led_since = {hosted.key: hosted.state.led_since_epoch for hosted, _ in self.appended}
        return found


def handle_frame(frame: Frame, exchange: Exchange, doors: Doors) -> None:
    """Answer a Produce request."""
    header = exchange.header
    request = parse_produce_request(frame, header.body_position, header.api_version)
    refused: tuple[TopicProduced, ...] = ()
    if doors.authorizer.is_enabled:
        # Topics that were refused above are skipped.
        request, refused = _without_denied(doors, exchange, request)
    if doors.role_moves.concern(request):
        # The bytes are copied, because the frame's buffer is reused for the next request as soon as
        # this call returns.
        _wait_for_role(doors, exchange, _copied(request), refused)
        return
    admission: TransactionalProduce | None = None
    if request.transactional_id is not None:
        # the guards are taken here, before the coordinator is asked, so that no marker can be
        # written in between
        admission = TransactionalProduce(doors, request, header.api_version)
        if admission.is_needed and (doors.controlled_shutdown.is_under_way or not admission.ask_now()):
            exchange.defer(
                _append_after(admission.ask, doors, exchange, _copied(request), refused=refused, admission=admission)
            )
            return
    if doors.controlled_shutdown.is_under_way:
        # The refusal is built after the wait, so that it can name the new leader.
        moved = doors.controlled_shutdown.moved
        exchange.defer(_append_after(moved, doors, exchange, _copied(request), refused=refused))
        return
    try:
        done = _append_all(doors, doors.cluster.image, request, header.api_version, admission, refused=refused)
    finally:
        if admission is not None:
            # guards always end, or a producer's later markers would find stale ones
            admission.end()
    if to_flush := done.to_flush():
        exchange.defer(_finish_flushed(doors, exchange, request, done, to_flush))
    else:
        _finish(doors, exchange, request, done)


def _without_denied(
    doors: Doors, exchange: Exchange, request: ProduceRequest
) -> tuple[ProduceRequest, tuple[TopicProduced, ...]]:
    """The request without the topics that the client may not write to, and their results. All are
    refused if it may not use the transactional id, or has records of a transaction without an id.
    """
    authorizer, context, image = doors.authorizer, exchange.context, doors.cluster.image
    names = [topic.name or image.topic_names.get(topic_id_bytes(topic.topic_id), "") for topic in request.topics]
    error, denied = ErrorCode.topic_authorization_failed, set(names)
    transactional_id = request.transactional_id
    if transactional_id is None:
        # as in Kafka: records without the id could end up in the open transaction of another client
        may_use_id = not _has_transactional_records(request)
    else:
        may_use_id = authorizer.may(context, Check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id))
    if not may_use_id:
        error = ErrorCode.transactional_id_authorization_failed
    else:
        checks = written_topics(Operation.WRITE, [name for name in names if name])
        denied = {check.name for check in authorizer.denied(context, checks)}
    if not denied:
        return request, ()
    refused = tuple(
        TopicProduced(
            topic.name, topic.topic_id, [PartitionProduced(part.partition_index, error) for part in topic.partitions]
        )
        for topic, name in zip(request.topics, names, strict=True)
        if name in denied
    )
    kept = [topic for topic, name in zip(request.topics, names, strict=True) if name not in denied]
    return request._replace(topics=kept), refused


def _has_transactional_records(request: ProduceRequest) -> bool:
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.records is not None and is_transactional(partition.records):
                return True
    return False


def _copied(request: ProduceRequest) -> ProduceRequest:
    """The request with copied records: the frame is valid only until the handler returns."""
    return request._replace(
        topics=[
            topic._replace(
                partitions=[
                    partition._replace(records=None if partition.records is None else bytes(partition.records))
                    for partition in topic.partitions
                ]
            )
            for topic in request.topics
        ]
    )


async def _append_after(
    wait: Callable[[], Awaitable[object]] | None,
    doors: Doors,
    exchange: Exchange,
    request: ProduceRequest,
    *,
    refused: tuple[TopicProduced, ...],
    admission: TransactionalProduce | None = None,
) -> None:
    """Append after the wait."""
    try:
        if wait is not None:
            await wait()
        done = _append_all(doors, doors.cluster.image, request, exchange.header.api_version, admission, refused=refused)
    finally:
        if admission is not None:
            admission.end()
    if to_flush := done.to_flush():
        await _finish_flushed(doors, exchange, request, done, to_flush)
    else:
        _finish(doors, exchange, request, done)


def _wait_for_role(
    doors: Doors, exchange: Exchange, request: ProduceRequest, refused: tuple[TopicProduced, ...]
) -> None:
    image = doors.role_moves.route(request, exchange.header.client_id)
    if image is None:
        exchange.defer(_append_when_role_is_known(doors, exchange, request, refused))
        return
    # Later requests of the connection are sent behind this one, without a wait for its results: a
    # producer sends a request for each of many partitions.
    forwarded = asyncio.ensure_future(doors.role_moves.forwarded(request, image))
    exchange.defer_until(forwarded, lambda done: answer(doors, exchange, [*refused, *done.result()], is_forwarded=True))


async def _append_when_role_is_known(
    doors: Doors, exchange: Exchange, request: ProduceRequest, refused: tuple[TopicProduced, ...]
) -> None:
    """Append after the move of the active role, or answer with what the other site has done. Later
    requests of the connection wait behind this one.
    """
    forwarded = await doors.role_moves.results(request, exchange.header.client_id)
    if forwarded is not None:
        answer(doors, exchange, [*refused, *forwarded], is_forwarded=True)
        return
    if request.transactional_id is None:
        await _append_after(None, doors, exchange, request, refused=refused)
        return
    # The guards are taken after the wait: a marker that is written meanwhile would withdraw them.
    admission = TransactionalProduce(doors, request, exchange.header.api_version)
    await _append_after(admission.ask, doors, exchange, request, refused=refused, admission=admission)


def _append_all(
    doors: Doors,
    image: ClusterImage,
    request: ProduceRequest,
    version: int,
    admission: TransactionalProduce | None = None,
    *,
    refused: tuple[TopicProduced, ...] = (),
) -> _Append:
    """Append the records that the client may write; `refused` is added to the response."""
    done = _Append()
    if refused:
        done.topics.extend(refused)
        done.error_count += sum(len(topic.partitions) for topic in refused)
    has_topic_ids = version >= _TOPIC_IDS_FROM
    for topic in request.topics:
        name: str | None = topic.name
        unknown = ErrorCode.unknown_topic_or_partition
        if has_topic_ids:
            # The image decides, so that the id of a deleted topic is unknown at once.
            name = image.topic_names.get(topic_id_bytes(topic.topic_id))
            unknown = ErrorCode.unknown_topic_id
        results = []
        for partition in topic.partitions:
            if name is None:
                done.error_count += 1
                results.append(PartitionProduced(partition.partition_index, unknown))
            else:
                results.append(
                    _append(
                        doors, image, topic=name, partition=partition, acks=request.acks, done=done, admission=admission
                    )
                )
        done.topics.append(tuple.__new__(TopicProduced, (topic.name, topic.topic_id, results)))
    return done


def _append(
    doors: Doors,
    image: ClusterImage,
    topic: str,
    partition: PartitionRecords,
    acks: int,
    done: _Append,
    admission: TransactionalProduce | None,
) -> PartitionProduced:
    hosted: HostedPartition | None = None
    try:
        records = _checked_records(topic, partition, acks)
        hosted = doors.replicas.get(image, topic, partition.partition_index)
        may_begin = admission is not None and admission.may_begin(hosted, records)
        info = doors.replicas.append(hosted, records, acks=acks, may_begin_transaction=may_begin)
    except PartitionFailure as failure:
        done.error_count += 1
        hint = leader_hint(image, topic, partition.partition_index) if failure.code in HINTED_ERRORS else NO_HINT
        start = -1 if hosted is None else hosted.log.log_start_offset
        return PartitionProduced(
            partition.partition_index,
            failure.code,
            log_start_offset=start,
            record_errors=failure.record_errors,
            error_message=failure.reason,
            current_leader=hint,
        )
    done.appended.append((hosted, info.last_offset + 1))
    # by `tuple.__new__`: the constructor of a named tuple is Python, and takes longer
    index, none, offset = partition.partition_index, ErrorCode.none, info.first_offset
    fields = index, none, offset, info.log_append_time_ms, info.log_start_offset, (), None, NO_HINT
    return tuple.__new__(PartitionProduced, fields)


def _checked_records(topic: str, partition: PartitionRecords, acks: int) -> Buffer:
    # Checked before the partition is looked up, so that every broker gives the same answer.
    if is_internal_topic(topic):
        raise PartitionFailure(ErrorCode.invalid_topic_exception, f"only coordinators may write to {topic}")
    if acks not in _ACKS:
        raise PartitionFailure(ErrorCode.invalid_required_acks)
    if partition.records is None:
        raise PartitionFailure(ErrorCode.invalid_record, "no records")
    return partition.records


async def _finish_flushed(
    doors: Doors,
    exchange: Exchange,
    request: ProduceRequest,
    done: _Append,
    to_flush: list[HostedPartition],
) -> None:
    is_done = False
    try:
        # flush all of them, also after a failure: the others' records are on disk and must be
        # acknowledged
        results = await asyncio.gather(*(hosted.log.flush() for hosted in to_flush), return_exceptions=True)
        is_done = True
    finally:
        for hosted in to_flush:
            # Before the responses, because the high watermark may advance for waiting requests.
            doors.replicas.note_flushed(hosted, is_done=is_done)
    failed: dict[tuple[str, int], ErrorCode] = {}
    for hosted, result in zip(to_flush, results, strict=True):
        if isinstance(result, StorageError):
            failed[hosted.key] = ErrorCode.kafka_storage_error
            doors.replicas.storage_failed(result)
        elif isinstance(result, BaseException):
            raise result
    # acks=1 promised only that the leader wrote it
    for hosted, _ in done.appended if request.acks == ACKS_ALL else ():
        if not hosted.state.is_leader or hosted.state.led_since_epoch != done.led_since[hosted.key]:
            # the leadership was interrupted during the flush: other records may be at these offsets
            failed.setdefault(hosted.key, ErrorCode.not_leader_or_follower)
    if failed:
        _replace_failed(done, failed)
    _finish(doors, exchange, request, done)


def _replace_failed(done: _Append, failed: Mapping[tuple[str, int], ErrorCode]) -> None:
    names = {hosted.topic_id: hosted.topic for hosted, _ in done.appended}
    done.error_count += len(failed)
    done.appended = [(hosted, offset) for hosted, offset in done.appended if hosted.key not in failed]
    done.topics = [
        topic._replace(
            partitions=[
                partition
                if (error := failed.get((name, partition.partition_index))) is None
                else PartitionProduced(partition.partition_index, error)
                for partition in topic.partitions
            ]
        )
        for topic in done.topics
        for name in [topic.name or names.get(topic_id_bytes(topic.topic_id), "")]
    ]


def _finish(doors: Doors, exchange: Exchange, request: ProduceRequest, done: _Append) -> None:
    if request.acks == ACKS_NONE:
        if done.error_count:
            exchange.count_errors(errors_of(done.topics))
            exchange.fail("a produce request with acks=0 failed")
        else:
            # With acks=0 there is no response for the throttle time, but the quota is charged all
            # the same.
            throttle_time_ms(doors, exchange)
            exchange.reply_nothing()
        return
    if request.acks == ACKS_ALL:
        missing = {
            hosted.key: (hosted, offset) for hosted, offset in done.appended if hosted.state.high_watermark < offset
        }
        if missing:
            waiting = WaitingProduce(doors, exchange, done.topics, missing)
            waiting.begin(request.timeout_ms)
            return
    answer(doors, exchange, done.topics)
