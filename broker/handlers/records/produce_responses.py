"""Responses to Produce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from kio.schema.errors import ErrorCode

from broker.handlers.records.leader_hints import hinted_endpoints
from broker.metadata.cluster import Cluster
from broker.network.channels import Part
from broker.network.entities import topic_id_bytes
from broker.network.exchange import RequestOrigin
from broker.quotas.client_throttling import QuotaClient, Quotas
from broker.replication.replicas import Replicas
from runtime.clock import Clock
from wire.protocol.messages.leader_hints import NO_HINT
from wire.protocol.messages.produce_codec import (
    PartitionProduced,
    ProduceResponse,
    TopicProduced,
    encode_produce_response,
)
from wire.protocol.streams.frames import RequestHeader


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


class ProduceExchange(Protocol):
    """The exchange, as a response to Produce uses it."""

    @property
    def header(self) -> RequestHeader: ...
    @property
    def connection(self) -> RequestOrigin: ...
    @property
    def is_exempt(self) -> bool: ...
    @property
    def quota_client(self) -> QuotaClient: ...
    @property
    def frame_bytes(self) -> int: ...
    def count_errors(self, codes: Iterable[int]) -> None:
        """As in `Exchange`."""
        ...

    def throttle_time_ms(self, bandwidth_ms: float = 0.0) -> int:
        """As in `Exchange`."""
        ...

    def check_before_send(self, may_be_sent: Callable[[], bool]) -> None:
        """As in `Exchange`."""
        ...

    def reply_body(self, parts: Sequence[Part], *, body_size: int) -> None:
        """As in `Exchange`."""
        ...


def answer(
    doors: ResponseDoors, exchange: ProduceExchange, topics: list[TopicProduced], *, is_forwarded: bool = False
) -> None:
    """Send the response. The results of a forwarded request are those of the other site, whose
    broker has checked its own permit.
    """
    version = exchange.header.api_version
    if doors.cluster.permits.is_in_use and not is_forwarded:
        # a permit may end while followers are awaited
        topics = _permitted(doors, topics)
        # and again while the response waits for those of earlier requests, or the process is paused
        exchange.check_before_send(partial(_may_acknowledge, doors, topics))
    hints: set[int] = set()
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code:
                exchange.count_errors((partition.error_code,))
                if partition.current_leader is not NO_HINT:
                    hints.add(partition.current_leader.leader_id)
    endpoints = hinted_endpoints(doors.cluster.image, hints, exchange.connection.listener) if hints else ()
    # the constructor of a named tuple is Python, and takes longer
    response: ProduceResponse = tuple.__new__(ProduceResponse, (topics, throttle_time_ms(doors, exchange), endpoints))
    body = encode_produce_response(response, version)
    exchange.reply_body([body], body_size=len(body))


def _may_acknowledge(doors: ResponseDoors, topics: list[TopicProduced]) -> bool:
    """True if every record that the results acknowledge may be acknowledged now."""
    image, permits, now_ms = doors.cluster.image, doors.cluster.permits, doors.clock.monotonic_ms()
    return all(
        permits.may_acknowledge(image, _name_of(doors, topic), now_ms=now_ms)
        for topic in topics
        if any(one.error_code == ErrorCode.none for one in topic.partitions)
    )


def _name_of(doors: ResponseDoors, topic: TopicProduced) -> str:
    return topic.name or doors.cluster.image.topic_names.get(topic_id_bytes(topic.topic_id), "")


def _permitted(doors: ResponseDoors, topics: list[TopicProduced]) -> list[TopicProduced]:
    """The results, with an error for records that must not be acknowledged because the lease of
    their link has ended since the append. The client sends it again, to the site that is active
    then.
    """
    image, permits, now_ms = doors.cluster.image, doors.cluster.permits, doors.clock.monotonic_ms()
    found = []
    for topic in topics:
        if permits.may_acknowledge(image, _name_of(doors, topic), now_ms=now_ms):
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


def throttle_time_ms(doors: ResponseDoors, exchange: ProduceExchange) -> int:
    """The throttle time of the request, in ms: its frame counts against the client's quota."""
    bandwidth_ms = 0.0
    quotas = doors.quotas
    if quotas.produce.is_in_use and not exchange.is_exempt:
        bandwidth_ms = quotas.used_bytes(quotas.produce, exchange.quota_client, exchange.frame_bytes)
    return exchange.throttle_time_ms(bandwidth_ms)
