"""Fetch: the hot way out. Records go from the page cache to the socket by sendfile, few of them as
part of the answer.

Behaviour: long polling by min bytes and max wait, max bytes for the whole and for each partition
(the first batch always goes out whole), incremental sessions (KIP-227), topic ids, leader epochs
and divergence (KIP-320, KIP-595), isolation level with the last stable offset and aborted
transactions. Replica id -2 reads any role's log. A follower (replica id 0 and up) reads to the
log's end, and its fetch offset says what it has: high watermark and ISR follow from it. A mirror
(replica id -3) and tools (-2) read what all in-sync replicas have, and get its end as the high
watermark. A leader sends a consumer to the replica in its rack, and a follower serves consumers up
to its high watermark (KIP-392); a client that knows no leader epoch and asks a follower for what
that does not have is sent to the leader, so that it never resets its offset because of a follower.
Followers that clients read from get a new high watermark at once (KIP-1166). A client above its
quota gets an empty answer that says how long to wait; the session goes on as if nothing had been
read. A replica that is not in sync gets nothing of a throttled partition while the leader's
throttle is exceeded (KIP-73). Versions: 4 to 18.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from broker.authorization.authorizer import CLUSTER_ACTION, Authorizer, Check
from broker.handlers.records.produce import hinted_endpoints
from broker.log.errors import StorageError
from broker.log.log_slice import LogSlice
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.metrics import BrokerMetrics
from broker.network.entities import topic_id_bytes
from broker.quotas.client_throttling import Quotas
from broker.replication.core.fetch_sessions import (
    NO_SESSION,
    FetchPartitionState,
    FetchPlan,
    FetchSessions,
    SessionPartition,
    TopicKey,
)
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.hosted_partition import READ_COMMITTED, HostedPartition, PartitionFailure
from broker.replication.partition_failures import failure_of
from broker.replication.read_routing import active_leader_epoch, preferred_replica
from broker.replication.replicas import Replicas
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.clock import Clock
from wire.client.fetch_requests import FetchRequest, parse_fetch_request
from wire.protocol.fetch_codec import (
    HIGHEST_VERSION,
    LOWEST_VERSION,
    TOPIC_IDS_FROM,
    AbortedTransaction,
    EpochEnd,
    FetchResponse,
    PartitionFetched,
    TopicFetched,
    fetch_response_parts,
)
from wire.protocol.ids import CONSUMER, DEBUGGING_CONSUMER, MIRROR, NO_NODE
from wire.protocol.leader_hints import NO_HINT, LeaderHint
from wire.rules.acls import Operation, ResourceType

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = 1
MIN_VERSION = LOWEST_VERSION
MAX_VERSION = HIGHEST_VERSION

_SEES_MIRRORABLE_END: Final = (DEBUGGING_CONSUMER, MIRROR)
COPIED_BYTES_MAX: Final = 16 * 1024
"""An answer's records up to here are copied into it: one call and one packet, where each piece sent
from its file makes two of either.
"""
FOLLOWERS_READ_FROM: Final = 11
"""The version from which a client may fetch from followers."""
JAVA_CLIENT: Final = "apache-kafka-java"
"""The software name (KIP-511) of a client that reads only from brokers which Metadata names as
replicas. It would ask the leader again and again if it were sent to a standby.
"""
_HINTED_ERRORS: Final = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    clock: Clock
    cluster: Cluster
    configs: DynamicConfigs
    fetch_sessions: FetchSessions
    metrics: BrokerMetrics
    quotas: Quotas
    replicas: Replicas


def handle_frame(frame: Frame, exchange: Exchange, doors: Doors) -> None:
    """Answer a Fetch request."""
    header = exchange.header
    version = header.api_version
    request = parse_fetch_request(frame, header.body_position, version)
    exchange.count_as(doors.metrics.api(_reader_label(request.replica_id)))
    plan = doors.fetch_sessions.open(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        has_topic_ids=version >= TOPIC_IDS_FROM,
        wanted=_wanted(request, version),
        follower=request.replica_id if request.replica_id >= 0 else NO_NODE,
        forgotten=_forgotten(request, version),
        now_ms=doors.clock.monotonic_ms(),
    )
    if plan.error is not ErrorCode.none:
        exchange.count_errors([plan.error])
        parts, size = fetch_response_parts(FetchResponse((), error_code=plan.error), version)
        exchange.reply_body(parts, body_size=size)  # type: ignore[arg-type]
        return
    if plan.session is not None and plan.session.is_followers:
        # a follower's session is over when it opens another one, or its connection ends
        session_id, end_former = plan.session_id, exchange.connection.on_end
        if end_former is not None and not plan.is_incremental:
            end_former()
        exchange.connection.on_end = lambda: doors.fetch_sessions.close(session_id)
    fetch = Fetch(doors, exchange, request, plan)
    fetch.begin()


def _reader_label(replica_id: int) -> str:
    """The metrics label of the request; Kafka's names for consumers and followers."""
    if replica_id >= 0:
        return "FetchFollower"
    return "FetchMirror" if replica_id == MIRROR else "FetchConsumer"


def _topic_key(name: str, topic_id: UUID | None, version: int) -> TopicKey:
    return topic_id_bytes(topic_id) if version >= TOPIC_IDS_FROM else name


def _wanted(request: FetchRequest, version: int) -> list[FetchPartitionState]:
    return [
        FetchPartitionState(
            topic=key,
            partition=partition.partition_index,
            fetch_offset=partition.fetch_offset,
            partition_max_bytes=partition.partition_max_bytes,
            current_leader_epoch=partition.current_leader_epoch,
            last_fetched_epoch=partition.last_fetched_epoch,
            log_start_offset=partition.log_start_offset,
            known_high_watermark=partition.high_watermark,
        )
        for topic in request.topics
        for key in (_topic_key(topic.name, topic.topic_id, version),)
        for partition in topic.partitions
    ]


def _forgotten(request: FetchRequest, version: int) -> Iterable[SessionPartition]:
    for topic in request.forgotten_topics:
        key = _topic_key(topic.name, topic.topic_id, version)
        for index in topic.partitions:
            yield key, index


class _Reading:
    """One pass over the partitions: results and slices so far, and the bytes that may still be
    read.
    """

    __slots__ = ("bytes_left", "has_error", "has_news", "results", "size")

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left
        self.size = 0
        self.has_error = False
        self.has_news = False
        """True when something without records is worth an answer at once."""
        self.results: list[tuple[FetchPartitionState, HostedPartition | None, PartitionFetched]] = []

    def release(self) -> None:
        """Give up the slices."""
        for _, _, fetched in self.results:
            if isinstance(fetched.records, LogSlice):
                fetched.records.release()


class Fetch:
    """One Fetch request until its answer; the `Waiter` while it waits for bytes."""

    def __init__(self, doors: Doors, exchange: Exchange, request: FetchRequest, plan: FetchPlan) -> None:
        self._doors = doors
        self._exchange = exchange
        self._request = request
        self._plan = plan
        self._missing_bytes = 0
        self._is_follower = request.replica_id >= 0
        self._is_to_mirror = request.replica_id == MIRROR
        self._is_recorded = not self._is_follower
        self._has_quota = doors.quotas.fetch.is_in_use and not (self._is_follower or exchange.is_exempt)
        self._bytes_max = doors.configs.current.fetch_bytes_max
        if self._has_quota:
            self._bytes_max = min(self._bytes_max, doors.quotas.most_fetched(exchange.quota_client) or self._bytes_max)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._asking = exchange.context if doors.authorizer.is_enabled else None

    def begin(self) -> None:
        """Answer at once, or wait for more bytes."""
        request = self._request
        reading = self._read()
        if (
            reading.size >= self._bytes_min
            or reading.has_error
            or reading.has_news
            or request.max_wait_ms <= 0
            or self._plan.is_empty
        ):
            self._answer(reading)
            return
        self._missing_bytes = self._bytes_min - reading.size
        reading.release()
        purgatory = self._doors.replicas.purgatory
        keys: set[Hashable] = {hosted.key for _, hosted, _ in reading.results if hosted is not None}
        operation = DelayedOperation.CONSUMER_FETCH
        if self._is_follower:
            operation = DelayedOperation.FOLLOWER_FETCH
        elif request.replica_id != CONSUMER:
            operation = DelayedOperation.MIRROR_FETCH
        if self._plan.session is not None and self._plan.session.is_followers:
            keys = {self._plan.session}
        entry = purgatory.wait(self, operation, keys=keys, timeout_ms=request.max_wait_ms)
        self._exchange.on_cancelled(lambda: purgatory.forget(entry))

    def changed(self, key: Hashable, grown_bytes: int) -> bool:  # noqa: ARG002  the Waiter's signature
        """More can be read from a partition; a change without bytes (leadership, deletion) ends the
        wait.
        """
        if self._request.isolation_level == READ_COMMITTED and grown_bytes:
            # records of open transactions make the log grow, and nothing can be read of them
            reading = self._read()
            reading.release()
            return reading.has_error or reading.size >= self._bytes_min
        self._missing_bytes -= grown_bytes
        return self._missing_bytes <= 0 or not grown_bytes

    def complete(self) -> None:
        """Answer with what there is now."""
        self._exchange.resume(lambda: self._answer(self._read()))

    # --- reading

    def _read(self) -> _Reading:
        doors = self._doors
        image = doors.cluster.image
        reading = _Reading(min(self._request.max_bytes, self._bytes_max))
        for state in self._plan.to_read():
            hosted: HostedPartition | None = None
            name = state.topic if isinstance(state.topic, str) else image.topic_names.get(state.topic)
            try:
                if self._asking is not None:
                    self._check_may_read(self._asking, _known(name))
                hosted = doors.replicas.get(image, _known(name), state.partition)
                fetched = self._read_partition(hosted, state, reading)
                self._watch(hosted, state)
            except PartitionFailure as failure:
                reading.has_error = True
                fetched = _failed(image, name, state.partition, failure)
            reading.results.append((state, hosted, fetched))
        self._is_recorded = True
        return reading

    def _check_may_read(self, context: RequestContext, topic: str) -> None:
        """PartitionFailure unless the client may read the topic; replicas, mirrors and tools read
        by the right of brokers.
        """
        is_consumer = self._request.replica_id == CONSUMER
        check = Check(Operation.READ, ResourceType.TOPIC, topic) if is_consumer else CLUSTER_ACTION
        if not self._doors.authorizer.may(context, check):
            raise PartitionFailure(ErrorCode.topic_authorization_failed)

    def _read_partition(
        self, hosted: HostedPartition, state: FetchPartitionState, reading: _Reading
    ) -> PartitionFetched:
        request = self._request
        is_of_standby = self._check_readable(hosted, state)
        log, offset = hosted.log, state.fetch_offset
        preferred = self._preferred_replica(hosted, offset)
        if preferred is not None:
            reading.has_news = True
            return _fetched(hosted, request, b"", preferred_replica=preferred)
        if state.last_fetched_epoch >= 0:
            end = log.epoch_end_offset(state.last_fetched_epoch)
            if end.epoch < state.last_fetched_epoch or end.end_offset < offset:
                reading.has_error = True
                return _fetched(hosted, request, b"", diverging_epoch=EpochEnd(end.epoch, end.end_offset))
        end_offset = hosted.readable_end(replica_id=request.replica_id, isolation_level=request.isolation_level)
        if is_of_standby and offset > log.log_end_offset:
            return _fetched(hosted, request, b"")  # the active site has it: it will come
        if offset < log.log_start_offset or offset > log.log_end_offset:
            hosted.metrics.failed_fetch += 1
            raise _out_of_range(hosted, state, replica_id=request.replica_id)
        if not self._is_recorded:
            self._doors.replicas.record_fetch(
                hosted,
                request.replica_id,
                offset,
                broker_epoch=request.replica_epoch,
                log_start_offset=state.log_start_offset,
            )
        if state.lacks_high_watermark(hosted.state.high_watermark):
            reading.has_news = True
        state.is_throttled = self._is_throttled(hosted)
        if offset >= end_offset or state.is_throttled or (reading.bytes_left <= 0 and reading.size):
            return _fetched(hosted, request, b"")
        piece = self._doors.replicas.read(
            hosted,
            offset,
            max_bytes=min(state.partition_max_bytes, max(reading.bytes_left, 0)),
            end_offset=end_offset,
            has_minimum_one_batch=not reading.size,
        )
        reading.size += piece.length
        reading.bytes_left -= piece.length
        if not piece.length:
            piece.release()
            return _fetched(hosted, request, b"")
        records = _copied(piece) if reading.size <= COPIED_BYTES_MAX else piece
        aborted: Sequence[AbortedTransaction] | None = None
        if request.isolation_level == READ_COMMITTED:
            aborted = [
                AbortedTransaction(found.producer_id, found.first_offset)
                for found in log.aborted_transactions(offset, piece.next_offset)
            ]
        return _fetched(hosted, request, records, aborted=aborted)

    def _check_readable(self, hosted: HostedPartition, state: FetchPartitionState) -> bool:
        """PartitionFailure unless the reader may read here. True for a consumer that reads the copy
        of a standby.
        """
        request = self._request
        may_read_from_follower = (
            request.replica_id == CONSUMER and self._exchange.header.api_version >= FOLLOWERS_READ_FROM
        )
        epoch = None
        if may_read_from_follower and request.rack_id and hosted.read_error is not ErrorCode.none:
            epoch = active_leader_epoch(hosted, self._doors.cluster.image, rack=request.rack_id)
        if epoch is not None:
            hosted.check_copy_readable(state.current_leader_epoch, epoch)
        elif may_read_from_follower:
            hosted.check_readable_here()
        else:
            hosted.check_readable(request.replica_id)
        if epoch is None:
            hosted.check_leader_epoch(state.current_leader_epoch)
        if request.replica_id == CONSUMER and not hosted.state.is_leader:
            self._doors.replicas.record_client_read(hosted)
        return epoch is not None

    def _preferred_replica(self, hosted: HostedPartition, offset: int) -> int | None:
        request = self._request
        if not request.rack_id or request.replica_id != CONSUMER or not hosted.state.is_leader:
            return None
        doors = self._doors
        return preferred_replica(
            hosted,
            doors.cluster.image,
            None if self._exchange.connection.client_software == JAVA_CLIENT else doors.replicas.standbys.ends,
            selector=doors.configs.current.replica_selector,
            rack=request.rack_id,
            listener=self._exchange.connection.listener,
            offset=offset,
            now_ms=doors.clock.monotonic_ms(),
        )

    def _is_throttled(self, hosted: HostedPartition) -> bool:
        replicas, replica_id = self._doors.replicas, self._request.replica_id
        if not self._is_follower or replica_id in hosted.state.isr or not hosted.is_throttled_leader:
            return False
        return replicas.leader_throttle.is_exceeded(self._doors.clock.monotonic_ms())

    def _watch(self, hosted: HostedPartition, state: FetchPartitionState) -> None:
        session = self._plan.session
        if session is not None and session.is_followers:
            self._doors.replicas.purgatory.followers.watch(session, state, hosted)

    # --- answering

    def _answer(self, reading: _Reading) -> None:
        doors, exchange, plan = self._doors, self._exchange, self._plan
        if exchange.connection.is_closed:
            reading.release()
            return
        version = exchange.header.api_version
        throttle_time_ms = self._throttle_time_ms(reading)
        if throttle_time_ms:
            self._answer_empty(reading, throttle_time_ms)
            return
        topics: dict[TopicKey, list[PartitionFetched]] = {}
        served: list[SessionPartition] = []
        settled: list[SessionPartition] = []
        hints: set[int] = set()
        for state, hosted, fetched in reading.results:
            size = len(fetched.records) if isinstance(fetched.records, LogSlice | bytes) else 0
            if size and hosted is not None:
                hosted.metrics.count_sent(size, is_to_follower=self._is_follower, is_to_mirror=self._is_to_mirror)
                if self._is_follower and hosted.is_throttled_leader:
                    doors.replicas.leader_throttle.record(doors.clock.monotonic_ms(), size)
                served.append(state.key)
            has_news = state.record_answer(
                high_watermark=fetched.high_watermark,
                log_start_offset=fetched.log_start_offset,
                last_stable_offset=fetched.last_stable_offset,
                is_sent=bool(
                    size
                    or fetched.error_code
                    or fetched.diverging_epoch.epoch >= 0
                    or fetched.preferred_read_replica >= 0
                ),
            )
            if hosted is not None and self._is_settled(hosted, state, fetched, size):
                settled.append(state.key)
            if has_news or not plan.is_incremental:
                topics.setdefault(state.topic, []).append(fetched)
            if fetched.error_code:
                exchange.count_errors([fetched.error_code])
            if fetched.current_leader is not NO_HINT:
                hints.add(fetched.current_leader.leader_id)
        if plan.session is not None:
            plan.session.serve_last(served)
            for key in settled:
                plan.session.settle(key)
        endpoints = hinted_endpoints(self._doors.cluster.image, hints, exchange.connection.listener) if hints else ()
        response = FetchResponse(
            [_topic_fetched(key, partitions) for key, partitions in topics.items()],
            session_id=plan.session_id,
            node_endpoints=endpoints,
        )
        parts, size = fetch_response_parts(response, version)
        exchange.reply_body(parts, body_size=size)  # type: ignore[arg-type]

    def _is_settled(
        self, hosted: HostedPartition, state: FetchPartitionState, fetched: PartitionFetched, size: int
    ) -> bool:
        """True when a follower in sync has all that there is, so that nothing is to be said before
        something changes.
        """
        if size or fetched.error_code or fetched.diverging_epoch.epoch >= 0:
            return False
        return state.fetch_offset == hosted.log.log_end_offset and self._request.replica_id in hosted.state.isr

    def _throttle_time_ms(self, reading: _Reading) -> int:
        if self._is_follower:
            return 0
        if not self._has_quota:
            return self._exchange.throttle_time_ms()
        quotas, client = self._doors.quotas, self._exchange.quota_client
        throttle_time_ms = self._exchange.throttle_time_ms(quotas.used_bytes(quotas.fetch, client, reading.size))
        if throttle_time_ms:
            quotas.take_back_bytes(quotas.fetch, client, reading.size)
        return throttle_time_ms

    def _answer_empty(self, reading: _Reading, throttle_time_ms: int) -> None:
        """Answer without records. A session that would have begun with this response does not
        begin: the client must name all its partitions again.
        """
        reading.release()
        plan, session_id = self._plan, self._plan.session_id
        if not plan.is_incremental:
            self._doors.fetch_sessions.close(session_id)
            session_id = NO_SESSION
        response = FetchResponse((), throttle_time_ms=throttle_time_ms, session_id=session_id)
        parts, size = fetch_response_parts(response, self._exchange.header.api_version)
        self._exchange.reply_body(parts, body_size=size)  # type: ignore[arg-type]


def _out_of_range(hosted: HostedPartition, state: FetchPartitionState, *, replica_id: int) -> PartitionFailure:
    """A client that knows leader epochs asks the leader after such an answer of a follower; others
    would reset their offset.
    """
    knows_epochs = state.current_leader_epoch >= 0
    if replica_id == CONSUMER and not hosted.state.is_leader and not knows_epochs:
        return PartitionFailure(ErrorCode.not_leader_or_follower, "this follower does not have the offset")
    return PartitionFailure(ErrorCode.offset_out_of_range)


def _known(name: str | None) -> str:
    if name is None:
        raise PartitionFailure(ErrorCode.unknown_topic_id)
    return name


def _topic_fetched(key: TopicKey, partitions: Sequence[PartitionFetched]) -> TopicFetched:
    if isinstance(key, bytes):
        return TopicFetched("", UUID(bytes=key) if any(key) else None, partitions)
    return TopicFetched(key, None, partitions)


def _copied(piece: LogSlice) -> bytes:
    """The bytes of the slice, which is given up. PartitionFailure when the disk refuses them."""
    try:
        return piece.read_bytes()
    except StorageError as error:
        raise failure_of(error) from error
    finally:
        piece.release()


def _fetched(
    hosted: HostedPartition,
    request: FetchRequest,
    records: LogSlice | bytes,
    *,
    aborted: Sequence[AbortedTransaction] | None = None,
    diverging_epoch: EpochEnd | None = None,
    preferred_replica: int = -1,
) -> PartitionFetched:
    return PartitionFetched(
        hosted.index,
        ErrorCode.none,
        hosted.state.mirrorable_end if request.replica_id in _SEES_MIRRORABLE_END else hosted.state.high_watermark,
        hosted.log.last_stable_offset,
        hosted.log.log_start_offset,
        aborted,
        preferred_replica,
        records=records,
        diverging_epoch=diverging_epoch or EpochEnd(),
    )


def _failed(image: ClusterImage, topic: str | None, index: int, failure: PartitionFailure) -> PartitionFetched:
    hint = NO_HINT
    if topic is not None and failure.code in _HINTED_ERRORS:
        routed = image.routed_topic(topic)
        partition = None if routed is None else routed.topic.partitions.get(index)
        if partition is not None and partition.leader not in (-1, image.node_id):
            hint = LeaderHint(partition.leader, partition.leader_epoch)
    return PartitionFetched(index, failure.code, current_leader=hint)
