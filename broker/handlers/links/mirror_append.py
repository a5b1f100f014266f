"""MirrorAppend (private): a mirror's raw batches, appended unchanged at the passive site.

Behaviour: link epoch and role checked first; batches that are there already are acknowledged, gaps
and other histories refused with where the log ends (see `wire/protocol/messages/private.py`).
Topics whose flush.messages demands it are flushed before the answer. Acknowledged records are below
this site's high watermark: every in-sync replica has them, and these are at least
min.insync.replicas. So the source may expire them, and on a sync link may acknowledge them to its
producers. Versions: 0. Not done: throttling.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Protocol

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.metadata.core.access import mirror_error
from broker.metadata.core.cluster_image import ClusterImage
from broker.network.entities import topic_id_bytes
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.mirror_append import Diverged, append_mirrored, restart_in_threads, restart_wanted
from broker.replication.replicas import Replicas
from runtime.clock import Clock
from wire.protocol.ids import NO_EPOCH
from wire.protocol.messages.mirror_append_codec import (
    MirrorAppend,
    PartitionAppended,
    PartitionToMirror,
    TopicToMirror,
    encode_mirror_append_response,
    parse_mirror_append,
)
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND, NO_DIVERGENCE
from wire.protocol.messages.private import PRIVATE_VERSIONS

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = MIRROR_APPEND
REPLICATION_TIMEOUT_MS: Final = 5_000.0
"""Time (ms) that a MirrorAppend may wait for replication; it is shorter than the time that a mirror
waits for an answer.
"""
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[MIRROR_APPEND]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    clock: Clock
    cluster: Cluster
    replicas: Replicas


class LedPartitions(Protocol):
    """The parts of the broker with which a partition is found that it leads."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def replicas(self) -> Replicas: ...


class _Outcome:
    """One partition's result, until it is encoded."""

    __slots__ = (
        "_led_since_epoch",
        "divergence",
        "error",
        "hosted",
        "index",
        "link_epoch",
        "log_end_offset",
        "message",
    )

    def __init__(self, index: int, link_epoch: int) -> None:
        self.index = index
        self.link_epoch = link_epoch
        self.error = ErrorCode.none
        self.message: str | None = None
        self.hosted: HostedPartition | None = None
        self.log_end_offset = -1
        self._led_since_epoch = NO_EPOCH
        self.divergence: Diverged | None = None

    def took(self, hosted: HostedPartition) -> None:
        """Record that the partition has the batches; the record is valid only while the partition
        is led without interruption.
        """
        self.log_end_offset = hosted.log.log_end_offset
        self._led_since_epoch = hosted.state.led_since_epoch

    def is_missing(self) -> bool:
        """True while followers still lack appended batches. Fails the partition if its followers
        cannot get the batches from this broker.
        """
        if self.hosted is None or self.error is not ErrorCode.none:
            return False
        state = self.hosted.state
        if not state.is_leader or state.led_since_epoch != self._led_since_epoch:
            # no mirror knows which batches those are: it asks for the log's end again, because the
            # log may have been truncated in between and have other batches there
            self.fail(PartitionFailure(ErrorCode.not_leader_or_follower))
            return False
        return state.high_watermark < self.log_end_offset

    def fail(self, failure: PartitionFailure) -> None:
        """Remember why it failed."""
        self.error, self.message = failure.code, failure.reason
        if isinstance(failure, Diverged):
            self.divergence = failure

    def _end(self) -> int:
        """The log end offset after the append; the current one if nothing was appended."""
        if self.log_end_offset >= 0:
            return self.log_end_offset
        return -1 if self.hosted is None else self.hosted.log.log_end_offset

    def appended(self) -> PartitionAppended:
        """The partition's entry of the response."""
        return PartitionAppended(
            partition_index=self.index,
            error_code=self.error,
            error_message=self.message,
            log_end_offset=self._end(),
            link_epoch=self.link_epoch,
            divergence_epoch=NO_DIVERGENCE if self.divergence is None else self.divergence.epoch,
            divergence_end_offset=-1 if self.divergence is None else self.divergence.end_offset,
        )


def handle_frame(frame: Frame, exchange: Exchange, doors: Doors) -> None:
    """Answer a MirrorAppend request."""
    position = exchange.header.body_position
    request = parse_mirror_append(frame, position)
    if _restarting(doors, request):
        # the frame is invalid after the disk write, so it is parsed again from a copy: views of the
        # frame end with this call
        kept = parse_mirror_append(memoryview(bytes(frame)), position)
        exchange.defer(_restart_and_append(doors, exchange, kept))
    else:
        _append_all(doors, exchange, request)


def _restarting(doors: Doors, request: MirrorAppend) -> list[tuple[HostedPartition, PartitionToMirror]]:
    """The partitions whose logs are restarted empty at the offset where their sources begin."""
    found = []
    for topic in request.topics:
        for sent in topic.partitions:
            hosted = doors.replicas.find(topic.name, sent.partition_index)
            if hosted is not None and restart_wanted(hosted, sent) is not None:
                with contextlib.suppress(PartitionFailure):
                    found.append((_find(doors, request, topic, sent), sent))
    return found


async def _restart_and_append(doors: Doors, exchange: Exchange, request: MirrorAppend) -> None:
    # looked up again: roles and ends may have changed before this task ran
    for hosted, sent in _restarting(doors, request):
        try:
            await restart_in_threads(doors.replicas, hosted, sent)
        except StorageError as error:
            doors.replicas.storage_failed(error)
    _append_all(doors, exchange, request)


def _append_all(doors: Doors, exchange: Exchange, request: MirrorAppend) -> None:
    image = doors.cluster.image
    outcomes = [
        (topic.name, [_append(doors, image, request, topic, partition) for partition in topic.partitions])
        for topic in request.topics
    ]
    to_flush = [
        outcome
        for _, partitions in outcomes
        for outcome in partitions
        if outcome.hosted is not None and outcome.error is ErrorCode.none and outcome.hosted.log.needs_flush
    ]
    if to_flush:
        exchange.defer(_answer_flushed(doors, exchange, outcomes, to_flush))
    else:
        _answer_replicated(doors, exchange, outcomes)


def _append(
    doors: Doors,
    image: ClusterImage,
    request: MirrorAppend,
    topic: TopicToMirror,
    partition: PartitionToMirror,
) -> _Outcome:
    link = image.links.get(request.link)
    outcome = _Outcome(partition.partition_index, -1 if link is None else link.epoch)
    try:
        hosted = outcome.hosted = _find(doors, request, topic, partition)
        append_mirrored(doors.replicas, hosted, partition, now_ms=doors.clock.now_ms())
        outcome.took(hosted)
    except PartitionFailure as failure:
        outcome.fail(failure)
    return outcome


def _find(doors: Doors, request: MirrorAppend, topic: TopicToMirror, sent: PartitionToMirror) -> HostedPartition:
    return find_mirrored(
        doors,
        topic.name,
        topic.topic_id,
        sent.partition_index,
        link=request.link,
        link_epoch=request.link_epoch,
    )


def find_mirrored(
    doors: LedPartitions, topic: str, topic_id: uuid.UUID | None, index: int, *, link: str, link_epoch: int
) -> HostedPartition:
    """The partition, if this broker leads it and the link's mirror may change it; else raises
    PartitionFailure.
    """
    error = mirror_error(doors.cluster.image, topic, link_name=link, link_epoch=link_epoch)
    if error is not ErrorCode.none:
        raise PartitionFailure(error, f"a mirror of link {link} at epoch {link_epoch} may not append here")
    return find_led(doors, topic, topic_id, index)


def find_led(doors: LedPartitions, topic: str, topic_id: uuid.UUID | None, index: int) -> HostedPartition:
    """The partition of the topic with this id, if this broker leads it; else raises
    PartitionFailure.
    """
    image = doors.cluster.image
    # A passive site directs clients to the active one, so this checks whether its own topic exists.
    hosted = doors.replicas.find(topic, index)
    if hosted is None:
        known = image.partition(topic, index)
        raise PartitionFailure(
            ErrorCode.unknown_topic_or_partition if known is None else ErrorCode.not_leader_or_follower
        )
    if topic_id_bytes(topic_id) != hosted.topic_id:
        raise PartitionFailure(ErrorCode.inconsistent_topic_id, "the topic with this name has another topic id")
    if not hosted.state.is_leader:
        raise PartitionFailure(ErrorCode.not_leader_or_follower)
    return hosted


async def _answer_flushed(
    doors: Doors, exchange: Exchange, outcomes: list[tuple[str, list[_Outcome]]], to_flush: list[_Outcome]
) -> None:
    logs = [outcome.hosted.log for outcome in to_flush if outcome.hosted is not None]
    results = await asyncio.gather(*(log.flush() for log in logs), return_exceptions=True)
    for outcome, result in zip(to_flush, results, strict=True):
        if isinstance(result, StorageError):
            outcome.fail(PartitionFailure(ErrorCode.kafka_storage_error, str(result)))
            doors.replicas.storage_failed(result)
        elif isinstance(result, BaseException):
            raise result
    _answer_replicated(doors, exchange, outcomes)


def _answer_replicated(doors: Doors, exchange: Exchange, outcomes: list[tuple[str, list[_Outcome]]]) -> None:
    missing = [outcome for _, partitions in outcomes for outcome in partitions if outcome.is_missing()]
    if not missing:
        _answer(exchange, outcomes)
        return
    waiting = _WaitingAppend(exchange, outcomes, missing)
    purgatory = doors.replicas.purgatory
    keys = {outcome.hosted.key for outcome in missing if outcome.hosted is not None}
    entry = purgatory.wait(waiting, DelayedOperation.PRODUCE, keys=keys, timeout_ms=REPLICATION_TIMEOUT_MS)
    exchange.on_cancelled(lambda: purgatory.forget(entry))


class _WaitingAppend:
    """Mirrored batches that are not on every in-sync replica yet; waits (as a `Waiter`) until they
    are.
    """

    def __init__(self, exchange: Exchange, outcomes: list[tuple[str, list[_Outcome]]], missing: list[_Outcome]) -> None:
        self._exchange = exchange
        self._outcomes = outcomes
        self._missing = missing

    def changed(self, key: Hashable, grown_bytes: int) -> bool:  # noqa: ARG002  the Waiter's signature
        """True if no partition is pending."""
        self._missing = [outcome for outcome in self._missing if outcome.is_missing()]
        return not self._missing

    def complete(self) -> None:
        """Answer; a mirror sends batches again that took too long, and the broker finds that it has
        them.
        """
        self._exchange.resume(self._answer)

    def _answer(self) -> None:
        for outcome in self._missing:
            # one timeout has two causes, and only one of them needs an operator
            few = outcome.hosted is not None and not outcome.hosted.state.has_enough_in_sync
            why = "fewer replicas are in sync than min.insync.replicas" if few else "an in-sync replica is slow"
            outcome.fail(PartitionFailure(ErrorCode.request_timed_out, why))
        _answer(self._exchange, self._outcomes)


def _answer(exchange: Exchange, outcomes: list[tuple[str, list[_Outcome]]]) -> None:
    topics = [(name, [outcome.appended() for outcome in partitions]) for name, partitions in outcomes]
    exchange.count_errors(outcome.error for _, partitions in outcomes for outcome in partitions)
    body = encode_mirror_append_response(topics, throttle_time_ms=exchange.throttle_time_ms())
    exchange.reply_body([body], body_size=len(body))
