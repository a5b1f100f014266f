"""Fetch: the hot way out. Records are sent from the page cache to the socket by sendfile; small
ones are copied into the response.

Behaviour: long polling by min bytes and max wait, max bytes for the whole and for each partition
(the first batch always goes out whole), incremental sessions (KIP-227), topic ids, leader epochs
and divergence (KIP-320, KIP-595), isolation level with the last stable offset and aborted
transactions. Replica id -2 reads any role's log. A follower (replica id 0 and up) reads to the
log's end, and its fetch offset shows which records it has: high watermark and ISR follow from it. A
mirror (replica id -3) and tools (-2) read the records that all in-sync replicas have, and get their
end as the high watermark. A leader sends a consumer to the replica in its rack, and a follower
serves consumers up to its high watermark (KIP-392); a client that sends no leader epoch and asks a
follower for an offset that it lacks is sent to the leader, so that it never resets its offset
because of a follower. Followers that clients read from get a new high watermark at once (KIP-1166).
A client above its quota gets an empty response with the throttle time; the session continues as if
nothing had been read. A replica that is not in sync gets nothing of a throttled partition while the
leader's throttle is exceeded (KIP-73). Versions: 4 to 18.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from kio.schema.errors import ErrorCode

from broker.handlers.records.fetch_doors import Doors
from broker.handlers.records.fetch_reading import FetchReader, Reading
from broker.handlers.records.leader_hints import hinted_endpoints
from broker.log.segments.log_slice import LogSlice
from broker.network.entities import topic_id_bytes
from broker.replication.core.fetch_sessions import (
    NO_SESSION,
    FetchPartitionState,
    SessionPartition,
    TopicKey,
)
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.hosted_partition import HostedPartition
from wire.client.requests.fetch_requests import FetchRequest, parse_fetch_request
from wire.protocol.ids import CONSUMER, MIRROR, NO_NODE, READ_COMMITTED
from wire.protocol.messages.fetch_codec import (
    HIGHEST_VERSION,
    LOWEST_VERSION,
    TOPIC_IDS_FROM,
    FetchResponse,
    PartitionFetched,
    TopicFetched,
    fetch_response_parts,
)
from wire.protocol.messages.leader_hints import NO_HINT

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = 1


MIN_VERSION = LOWEST_VERSION


MAX_VERSION = HIGHEST_VERSION


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
        is_mirrors=request.replica_id == MIRROR,
        forgotten=_forgotten(request, version),
        now_ms=doors.clock.monotonic_ms(),
    )
    if plan.error is not ErrorCode.none:
        exchange.count_errors([plan.error])
        parts, size = fetch_response_parts(FetchResponse((), error_code=plan.error), version)
        exchange.reply_body(parts, body_size=size)  # type: ignore[arg-type]
        return
    # Consumers keep their session: a client may use one session over several connections.
    if plan.session is not None and plan.session.tracks_changes:
        # Such a session ends when its fetcher opens another one, or its connection closes.
        session_id, end_former = plan.session_id, exchange.connection.on_end
        if end_former is not None and not plan.is_incremental:
            # before the new one is watched: two sessions of one fetcher would both be woken by
            # changes
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


class Fetch(FetchReader):
    """One Fetch request until its answer; the `Waiter` while it waits for bytes."""

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
        # appends count this down, so that a wake-up need not read anything
        self._missing_bytes = self._bytes_min - reading.size
        # The slices are released, because their files may be deleted while the request waits.
        reading.release()
        purgatory = self._doors.replicas.purgatory
        keys: set[Hashable] = {hosted.key for _, hosted, _ in reading.results if hosted is not None}
        operation = DelayedOperation.CONSUMER_FETCH
        if self._is_follower:
            operation = DelayedOperation.FOLLOWER_FETCH
        elif request.replica_id != CONSUMER:
            operation = DelayedOperation.MIRROR_FETCH
        if self._plan.session is not None and self._plan.session.tracks_changes:
            # one key instead of thousands: changes are marked in the session
            keys = {self._plan.session}
        entry = purgatory.wait(self, operation, keys=keys, timeout_ms=request.max_wait_ms)
        self._exchange.on_cancelled(lambda: purgatory.forget(entry))

    def changed(self, key: Hashable, grown_bytes: int) -> bool:  # noqa: ARG002  the Waiter's signature
        """More can be read from a partition; a change without bytes (leadership, deletion) ends the
        wait.
        """
        if self._request.isolation_level == READ_COMMITTED and grown_bytes:
            # records of open transactions make the log grow, but are not readable yet
            reading = self._read()
            reading.release()
            return reading.has_error or reading.size >= self._bytes_min
        self._missing_bytes -= grown_bytes
        return self._missing_bytes <= 0 or not grown_bytes

    def complete(self) -> None:
        """Answer with what there is now."""
        self._exchange.resume(lambda: self._answer(self._read()))

    # --- answering

    def _answer(self, reading: Reading) -> None:
        doors, exchange, plan = self._doors, self._exchange, self._plan
        # the client has disconnected: its session would record a response that was never sent
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
        # Read in the order of the session: below, partitions that were served move to its end.
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
            # settled before the response is sent: a change after this line marks it again
            if hosted is not None and self._is_settled(hosted, state, fetched, size):
                settled.append(state.key)
            if has_news or not plan.is_incremental:
                topics.setdefault(state.topic, []).append(fetched)
            if fetched.error_code:
                exchange.count_errors([fetched.error_code])
                # behind those for which the limit of failures left no place
                served.append(state.key)
            if fetched.current_leader is not NO_HINT:
                hints.add(fetched.current_leader.leader_id)
        if plan.session is not None:
            # After the loop, because it iterates over the same session.
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
        """True when a mirror, or a follower in sync, has all that it may have. Nothing is reported
        then before something changes.
        """
        if size or fetched.error_code or fetched.diverging_epoch.epoch >= 0:
            return False
        if self._is_to_mirror:
            return state.fetch_offset >= hosted.state.mirrorable_end
        # Followers out of sync must be examined as well, otherwise they could never be proposed for
        # the ISR.
        return state.fetch_offset == hosted.log.log_end_offset and self._request.replica_id in hosted.state.isr

    def _throttle_time_ms(self, reading: Reading) -> int:
        if self._is_follower:
            return 0
        if not self._has_quota:
            return self._exchange.throttle_time_ms()
        quotas, client = self._doors.quotas, self._exchange.quota_client
        throttle_time_ms = self._exchange.throttle_time_ms(quotas.used_bytes(quotas.fetch, client, reading.size))
        if throttle_time_ms:
            # the client gets nothing now, so its quota must not pay for these bytes
            quotas.take_back_bytes(quotas.fetch, client, reading.size)
        return throttle_time_ms

    def _answer_empty(self, reading: Reading, throttle_time_ms: int) -> None:
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


def _topic_fetched(key: TopicKey, partitions: Sequence[PartitionFetched]) -> TopicFetched:
    if isinstance(key, bytes):
        return TopicFetched("", UUID(bytes=key) if any(key) else None, partitions)
    return TopicFetched(key, None, partitions)
