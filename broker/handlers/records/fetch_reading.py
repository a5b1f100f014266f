"""Reads the partitions of one Fetch request: the records that the reader may see, within the limits
of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from broker.authorization.authorizer import CLUSTER_ACTION, Check
from broker.handlers.records.fetch_doors import Doors
from broker.handlers.records.leader_hints import HINTED_ERRORS, leader_hint
from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from broker.log.segments.log_slice import LogSlice
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.replication.core.fetch_sessions import (
    FetchPartitionState,
    FetchPlan,
)
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.partition_failures import failure_of
from broker.replication.read_routing import active_leader_epoch, preferred_replica
from wire.client.requests.fetch_requests import FetchRequest
from wire.protocol.ids import CONSUMER, DEBUGGING_CONSUMER, MIRROR, READ_COMMITTED, REPLICA_READER
from wire.protocol.messages.fetch_codec import (
    AbortedTransaction,
    EpochEnd,
    PartitionFetched,
)
from wire.protocol.messages.leader_hints import NO_HINT
from wire.rules.acls import Operation, ResourceType

if TYPE_CHECKING:
    from broker.network.exchange import Exchange


_SEES_MIRRORABLE_END: Final = (DEBUGGING_CONSUMER, MIRROR)


COPIED_BYTES_MAX: Final = 16 * 1024
"""Up to this size, records are copied into the response: one call and one packet, while each file
slice doubles both.
"""


FAILURES_MAX: Final = 200
"""Partitions that cannot be read in one response to a follower or a mirror: when the active role of
a link moves, thousands fail at once, and writers wait for the event loop. The next responses have
the others.
"""


FOLLOWERS_READ_FROM: Final = 11
"""The version from which a client may fetch from followers."""


JAVA_CLIENT: Final = "apache-kafka-java"
"""The software name (KIP-511) of a client that reads only from brokers that Metadata lists as
replicas. It would ask the leader again and again if it were sent to a standby.
"""


class Reading:
    """One pass over the partitions: results and slices so far, and the number of bytes left to
    read.
    """

    __slots__ = ("bytes_left", "has_error", "has_news", "results", "size")

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left
        self.size = 0
        self.has_error = False
        self.has_news = False
        """True if there is something without records that deserves an immediate response."""
        self.results: list[tuple[FetchPartitionState, HostedPartition | None, PartitionFetched]] = []

    def release(self) -> None:
        """Give up the slices."""
        for _, _, fetched in self.results:
            if isinstance(fetched.records, LogSlice):
                fetched.records.release()


def _out_of_range(hosted: HostedPartition, state: FetchPartitionState, *, replica_id: int) -> PartitionFailure:
    """After such a response from a follower, a client that knows leader epochs asks the leader;
    others would reset their offset.
    """
    knows_epochs = state.current_leader_epoch >= 0
    if replica_id == CONSUMER and not hosted.state.is_leader and not knows_epochs:
        return PartitionFailure(ErrorCode.not_leader_or_follower, "this follower does not have the offset")
    return PartitionFailure(ErrorCode.offset_out_of_range)


def _known(name: str | None) -> str:
    if name is None:
        raise PartitionFailure(ErrorCode.unknown_topic_id)
    return name


def _copied(piece: LogSlice) -> bytes:
    """The bytes of the slice, which is released. StorageError."""
    try:
        return piece.read_bytes()
    finally:
        piece.release()


def _aborted(log: PartitionLog, offset: int, piece: LogSlice) -> list[AbortedTransaction]:
    """The aborted transactions from `offset` to the end of the slice, which is released if they
    cannot be read. StorageError.
    """
    try:
        # not to the end of the log: the client filters the records that it got
        found = log.aborted_transactions(offset, piece.next_offset)
    except StorageError:
        piece.release()
        raise
    return [AbortedTransaction(one.producer_id, one.first_offset) for one in found]


def fetched_part(
    hosted: HostedPartition,
    request: FetchRequest,
    records: LogSlice | bytes,
    *,
    aborted: Sequence[AbortedTransaction] | None = None,
    diverging_epoch: EpochEnd | None = None,
    preferred_replica: int = -1,
) -> PartitionFetched:
    """The result of a partition that could be read."""
    return PartitionFetched(
        partition_index=hosted.index,
        error_code=ErrorCode.none,
        high_watermark=hosted.state.mirrorable_end
        if request.replica_id in _SEES_MIRRORABLE_END
        else hosted.state.high_watermark,
        last_stable_offset=hosted.log.last_stable_offset,
        log_start_offset=hosted.log.log_start_offset,
        aborted_transactions=aborted,
        preferred_read_replica=preferred_replica,
        records=records,
        diverging_epoch=diverging_epoch or EpochEnd(),
    )


def failed_fetch(image: ClusterImage, topic: str | None, index: int, failure: PartitionFailure) -> PartitionFetched:
    """The result of a partition that could not be read, with a hint to its leader."""
    hint = NO_HINT
    if topic is not None and failure.code in HINTED_ERRORS:
        hint = leader_hint(image, topic, index)
    return PartitionFetched(index, failure.code, current_leader=hint)


class FetchReader:
    """Reads the partitions of one Fetch request."""

    def __init__(self, doors: Doors, exchange: Exchange, request: FetchRequest, plan: FetchPlan) -> None:
        self._doors = doors
        self._exchange = exchange
        self._request = request
        self._plan = plan
        self._missing_bytes = 0
        self._is_follower = request.replica_id >= 0
        self._is_to_mirror = request.replica_id == MIRROR
        # A waiting fetch is read again later, but the follower's offset counts only once.
        self._is_recorded = not self._is_follower
        self._has_quota = doors.quotas.fetch.is_in_use and not (self._is_follower or exchange.is_exempt)
        self._bytes_max = doors.configs.current.fetch_bytes_max
        # a quota below max.bytes would otherwise be used up for many windows by one response
        if self._has_quota:
            self._bytes_max = min(self._bytes_max, doors.quotas.most_fetched(exchange.quota_client) or self._bytes_max)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._asking = exchange.context if doors.authorizer.is_enabled else None

    def _read(self) -> Reading:
        doors = self._doors
        image = doors.cluster.image
        reading = Reading(min(self._request.max_bytes, self._bytes_max))
        self._unsettle_if_forbidden()
        # a full response names every partition
        failures_left = FAILURES_MAX if self._plan.keeps_unread else None
        for state in self._plan.to_read():
            if failures_left == 0:
                break
            hosted: HostedPartition | None = None
            name = state.topic if isinstance(state.topic, str) else image.topic_names.get(state.topic)
            try:
                if self._asking is not None:
                    # Rights are checked before existence, so that an unknown topic looks like a
                    # forbidden one.
                    self._check_may_read(self._asking, _known(name))
                hosted = doors.replicas.get(image, _known(name), state.partition)
                fetched = self._read_partition(hosted, state, reading)
                # Taken after the read, because earlier changes are in this response.
                self._watch(hosted, state)
            except (PartitionFailure, StorageError) as error:
                if isinstance(error, StorageError):
                    doors.replicas.storage_failed(error)
                failure = error if isinstance(error, PartitionFailure) else failure_of(error)
                reading.has_error = True
                if failures_left is not None:
                    failures_left -= 1
                fetched = failed_fetch(image, name, state.partition, failure)
            reading.results.append((state, hosted, fetched))
        self._is_recorded = True
        return reading

    def _unsettle_if_forbidden(self) -> None:
        """A mirror that has lost its right learns so of every partition, although none of them has
        changed.
        """
        session = self._plan.session
        if self._asking is None or session is None or not session.is_mirrors:
            return
        if not self._doors.authorizer.may(self._asking, CLUSTER_ACTION):
            session.unsettle_all()

    def _check_may_read(self, context: RequestContext, topic: str) -> None:
        """Raises PartitionFailure unless the client may read the topic; replicas, mirrors and tools
        read with the right of brokers.
        """
        authorizer = self._doors.authorizer
        if self._request.replica_id == CONSUMER:
            may_read = authorizer.may(context, Check(Operation.READ, ResourceType.TOPIC, topic))
        else:
            may_read = authorizer.may_replicate(context, topic)
        if not may_read:
            raise PartitionFailure(ErrorCode.topic_authorization_failed)

    def _read_partition(
        self, hosted: HostedPartition, state: FetchPartitionState, reading: Reading
    ) -> PartitionFetched:
        request = self._request
        is_of_standby = self._check_readable(hosted, state)
        log, offset = hosted.log, state.fetch_offset
        # Before epochs and offsets, because the replica to which the client is redirected checks
        # its own.
        preferred = self._preferred_replica(hosted, offset)
        if preferred is not None:
            reading.has_news = True
            return fetched_part(hosted, request, b"", preferred_replica=preferred)
        # the follower or client has records of an epoch that ended earlier here (KIP-595, KIP-320)
        diverging = log.divergence(state.last_fetched_epoch, offset)
        if diverging is not None:
            reading.has_error = True
            return fetched_part(hosted, request, b"", diverging_epoch=EpochEnd(diverging.epoch, diverging.end_offset))
        end_offset = hosted.readable_end(replica_id=request.replica_id, isolation_level=request.isolation_level)
        if is_of_standby and offset > log.log_end_offset:
            return fetched_part(hosted, request, b"")  # the active site has the offset: it will arrive here
        if offset < log.log_start_offset or offset > log.log_end_offset:
            hosted.metrics.failed_fetch += 1
            raise _out_of_range(hosted, state, replica_id=request.replica_id)
        # after the checks of the offset: an offset outside the log does not show which records the
        # follower has
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
        # The session serves this partition first the next time, so that none stays empty for ever.
        if offset >= end_offset or state.is_throttled or (reading.bytes_left <= 0 and reading.size):
            return fetched_part(hosted, request, b"")
        piece = self._doors.replicas.read(
            hosted,
            offset,
            max_bytes=min(state.partition_max_bytes, max(reading.bytes_left, 0)),
            end_offset=end_offset,
            has_minimum_one_batch=not reading.size,
        )
        reading.size += piece.length
        reading.bytes_left -= piece.length
        # a hole at the end of a segment, or a batch that reaches past the readable end
        if not piece.length:
            piece.release()
            return fetched_part(hosted, request, b"")
        aborted = _aborted(log, offset, piece) if request.isolation_level == READ_COMMITTED else None
        # While the whole answer is small, a copy costs less than sending from the file.
        records = _copied(piece) if reading.size <= COPIED_BYTES_MAX else piece
        return fetched_part(hosted, request, records, aborted=aborted)

    def _check_readable(self, hosted: HostedPartition, state: FetchPartitionState) -> bool:
        """PartitionFailure unless the reader may read here. True for a consumer that reads the copy
        of a standby.
        """
        request = self._request
        may_read_from_follower = (
            request.replica_id == CONSUMER and self._exchange.header.api_version >= FOLLOWERS_READ_FROM
        )
        epoch = None
        # KIP-392 reads of a passive site, by clients that name their rack
        if may_read_from_follower and request.rack_id and hosted.read_error is not ErrorCode.none:
            epoch = active_leader_epoch(hosted, self._doors.cluster.image, rack=request.rack_id)
        if epoch is not None:
            hosted.check_copy_readable(state.current_leader_epoch, epoch)
        elif may_read_from_follower:
            hosted.check_readable_here()
        elif request.replica_id == REPLICA_READER:
            hosted.check_replica_here()
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
        if session is not None and session.tracks_changes:
            self._doors.replicas.purgatory.sessions.watch(session, state, hosted)
