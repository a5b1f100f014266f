"""Responses to Produce: at once, or when every in-sync replica has the records."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Protocol

from kio.schema.errors import ErrorCode

from broker.handlers.records.leader_hints import hinted_endpoints
from broker.metadata.cluster import Cluster
from broker.network.entities import topic_id_bytes
from broker.quotas.client_throttling import Quotas
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.hosted_partition import HostedPartition
from broker.replication.replicas import Replicas
from runtime.clock import Clock
from wire.protocol.messages.leader_hints import NO_HINT
from wire.protocol.messages.produce_codec import (
    PartitionProduced,
    ProduceResponse,
    TopicProduced,
    encode_produce_response,
)

if TYPE_CHECKING:
    from broker.network.exchange import Exchange


class ResponseDoors(Protocol):
    """The parts of the broker that a response to Produce uses."""

    @property
    def clock(self) -> Clock: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def quotas(self) -> Quotas: ...
    @property
    def replicas(self) -> Replicas: ...


def answer(doors: ResponseDoors, exchange: Exchange, topics: list[TopicProduced]) -> None:
    """Send the response."""
    version = exchange.header.api_version
    # checked just before the response is sent: a permit may end while followers are awaited
    if doors.cluster.permits.is_in_use:
        topics = _permitted(doors, topics)
    hints: set[int] = set()
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code:
                exchange.count_errors((partition.error_code,))
                if partition.current_leader is not NO_HINT:
                    hints.add(partition.current_leader.leader_id)
    endpoints = hinted_endpoints(doors.cluster.image, hints, exchange.connection.listener) if hints else ()
    response = ProduceResponse(topics, throttle_time_ms(doors, exchange), node_endpoints=endpoints)
    body = encode_produce_response(response, version)
    exchange.reply_body([body], body_size=len(body))


def _permitted(doors: ResponseDoors, topics: list[TopicProduced]) -> list[TopicProduced]:
    """The results, with an error for records that must not be acknowledged because the lease of
    their link has ended since the append. The client sends it again, to the site that is active
    then.
    """
    image, permits, now_ms = doors.cluster.image, doors.cluster.permits, doors.clock.monotonic_ms()
    found = []
    for topic in topics:
        name = topic.name or image.topic_names.get(topic_id_bytes(topic.topic_id), "")
        if permits.may_acknowledge(image, name, now_ms=now_ms):
            found.append(topic)
            continue
        refused = [
            PartitionProduced(one.partition_index, ErrorCode.not_leader_or_follower)
            if one.error_code == ErrorCode.none
            else one
            for one in topic.partitions
        ]
        found.append(topic._replace(partitions=refused))
    return found


def errors_of(topics: list[TopicProduced]) -> Iterator[int]:
    """The error code of each partition."""
    return (partition.error_code for topic in topics for partition in topic.partitions)


def throttle_time_ms(doors: ResponseDoors, exchange: Exchange) -> int:
    """The throttle time of the request, in ms: its frame counts against the client's quota."""
    bandwidth_ms = 0.0
    quotas = doors.quotas
    if quotas.produce.is_in_use and not exchange.is_exempt:
        bandwidth_ms = quotas.used_bytes(quotas.produce, exchange.quota_client, exchange.frame_bytes)
    return exchange.throttle_time_ms(bandwidth_ms)


class WaitingProduce:
    """A request with acks=all whose records are not on every in-sync replica yet."""

    def __init__(
        self,
        doors: ResponseDoors,
        exchange: Exchange,
        topics: list[TopicProduced],
        missing: dict[tuple[str, int], tuple[HostedPartition, int]],
    ) -> None:
        self._doors = doors
        self._exchange = exchange
        self._topics = topics
        self._missing = missing
        self._led_since = {key: hosted.state.led_since_epoch for key, (hosted, _) in missing.items()}
        self._failed: dict[tuple[str, int], ErrorCode] = {}

    def begin(self, timeout_ms: float) -> None:
        """Wait for the high watermarks."""
        purgatory = self._doors.replicas.purgatory
        entry = purgatory.wait(self, DelayedOperation.PRODUCE, keys=list(self._missing), timeout_ms=timeout_ms)
        # the client may have disconnected while it waits: then nothing is kept for it
        self._exchange.reserve_slot(lambda: purgatory.forget(entry))

    def changed(self, key: Hashable, grown_bytes: int) -> bool:  # noqa: ARG002  the Waiter's signature
        # a copy: the loop removes settled partitions
        """A partition has changed; True if no partition is pending."""
        for missing_key, (hosted, offset) in tuple(self._missing.items()):
            if missing_key != key:
                continue
            state = hosted.state
            if not state.is_leader or state.led_since_epoch != self._led_since[missing_key]:
                # the leadership was interrupted: the log may have been truncated and have other
                # records there
                self._failed[missing_key] = ErrorCode.not_leader_or_follower
            elif state.high_watermark < offset:
                continue
            elif not state.has_enough_in_sync:
                # Kafka's code for replicas lost after the append: the client sends again, and
                # duplicates are recognised
                self._failed[missing_key] = ErrorCode.not_enough_replicas_after_append
            del self._missing[missing_key]
        return not self._missing

    def complete(self) -> None:
        """Answer; the partitions that are still awaited have timed out."""
        self._exchange.resume(self._answer)

    def _answer(self) -> None:
        # acks=all with a timeout: the records may still become safe, and the producer sends them
        # again
        self._failed.update(dict.fromkeys(self._missing, ErrorCode.request_timed_out))
        image = self._doors.cluster.image
        topics = []
        for topic in self._topics:
            name = topic.name or image.topic_names.get(topic_id_bytes(topic.topic_id), "")
            partitions = [
                PartitionProduced(partition.partition_index, error)
                if (error := self._failed.get((name, partition.partition_index))) is not None
                else partition
                for partition in topic.partitions
            ]
            topics.append(topic._replace(partitions=partitions))
        answer(self._doors, self._exchange, topics)
