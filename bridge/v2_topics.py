"""API v2 without consumers: topics, partitions, offsets, brokers, and records to topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.admin import KnownTopic
from bridge.core import refusals
from bridge.core.media_types import GENERAL, embedded_format_of, negotiate
from bridge.core.refusals import Refused, partition_not_found, topic_not_found, unprocessable
from bridge.core.v2_documents import KeyValue, Produced, ProducedRecord, read_records
from bridge.gate import caller_of
from bridge.kafka_errors import refused as kafka_refused
from bridge.parts import Parts, answer_v2, check_v2, number_in_path
from bridge.producing import PARTITION_ANY, Delivered, Outcome, OutgoingRecord, Undelivered


class V2Topics:
    """The handlers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes of these handlers."""
        return [
            Route("/", self.root),
            Route("/brokers", self.brokers),
            Route("/topics", self.topics),
            Route("/topics/{topic}", self.topic),
            Route("/topics/{topic}", self.produce, methods=["POST"]),
            Route("/topics/{topic}/partitions", self.partitions),
            Route("/topics/{topic}/partitions/{partition}", self.partition),
            Route("/topics/{topic}/partitions/{partition}", self.produce, methods=["POST"]),
            Route("/topics/{topic}/partitions/{partition}/offsets", self.offsets),
        ]

    async def root(self, request: Request) -> Response:
        """Record that a client is using the instance."""
        return answer_v2(request, {})

    async def brokers(self, request: Request) -> Response:
        """Node ids of the brokers."""
        check_v2(request)
        return answer_v2(request, {"brokers": sorted((await caller_of(request).user.admin.metadata()).brokers)})

    async def topics(self, request: Request) -> Response:
        """Names of the topics."""
        check_v2(request)
        return answer_v2(request, sorted((await caller_of(request).user.admin.metadata()).topics))

    async def topic(self, request: Request) -> Response:
        """One topic with its configs and partitions."""
        check_v2(request)
        topic = await self._topic(request)
        configs = await caller_of(request).user.admin.configs(ResourceType.TOPIC, topic.topic)
        document = {
            "name": topic.topic,
            "configs": {name: entry.value for name, entry in sorted(configs.items())},
            "partitions": _partitions(topic),
        }
        return answer_v2(request, document)

    async def partitions(self, request: Request) -> Response:
        """The partitions of a topic."""
        check_v2(request)
        return answer_v2(request, _partitions(await self._topic(request)))

    async def partition(self, request: Request) -> Response:
        """One partition."""
        check_v2(request)
        number = number_in_path(request, "partition")
        found = [item for item in _partitions(await self._topic(request)) if item["partition"] == number]
        if not found:
            raise partition_not_found()
        return answer_v2(request, found[0])

    async def offsets(self, request: Request) -> Response:
        """The start and the end of the partition."""
        check_v2(request)
        topic, number = request.path_params["topic"], number_in_path(request, "partition")
        await self._check_places(request, topic, [number])
        low, high = await caller_of(request).user.admin.watermarks(topic, number)
        return answer_v2(request, {"beginning_offset": low, "end_offset": high})

    async def produce(self, request: Request) -> Response:
        """Write records to the topic, or to one partition of it; the response is sent when Kafka
        has acknowledged all of them.
        """
        parts, topic = self._parts, request.path_params["topic"]
        negotiate(request.headers.get("accept"), GENERAL)
        embedded = embedded_format_of(request.headers.get("content-type"))
        fixed = number_in_path(request, "partition") if "partition" in request.path_params else None
        async with parts.bodies.whole(request) as body:
            records = _outgoing(read_records(body, embedded), fixed)
            wanted = {record.partition for record in records} - {PARTITION_ANY}
            await self._check_places(request, topic, sorted(wanted))
            await parts.throttle(records)
            outcomes = await caller_of(request).user.producer.send_all(topic, records)
        if any(isinstance(outcome, Undelivered) and outcome.is_unknown_topic for outcome in outcomes):
            caller_of(request).user.admin.forget_topics()
        if all(isinstance(outcome, Undelivered) and outcome.is_unknown_topic for outcome in outcomes):
            raise topic_not_found()
        return answer_v2(request, Produced([_produced(outcome) for outcome in outcomes]))

    async def _topic(self, request: Request) -> KnownTopic:
        try:
            return await caller_of(request).user.admin.topic(request.path_params["topic"])
        except Refused as refusal:
            if refusal.status in (400, 404):  # no topic can have an invalid name, so none exists
                raise topic_not_found() from refusal
            raise

    async def _check_places(self, request: Request, topic: str, wanted: Sequence[int]) -> None:
        known = await caller_of(request).user.admin.partitions_of(topic, wanted=wanted)
        if not known:
            raise topic_not_found()
        if not known.issuperset(wanted):
            raise partition_not_found()


def _partitions(topic: KnownTopic) -> list[dict[str, Any]]:
    return [
        {
            "partition": number,
            "leader": partition.leader,
            "replicas": [
                {"broker": broker, "leader": broker == partition.leader, "in_sync": broker in partition.isrs}
                for broker in partition.replicas
            ],
        }
        for number, partition in sorted(topic.partitions.items())
    ]


def _outgoing(records: Sequence[KeyValue], fixed: int | None) -> list[OutgoingRecord]:
    """The records; under a partition's own path, no record may name another partition."""
    if fixed is not None and any(partition not in (None, fixed) for _, _, partition in records):
        raise unprocessable(f"partition must be {fixed} or left out")
    return [
        OutgoingRecord(
            key=key,
            value=value,
            partition=fixed if fixed is not None else PARTITION_ANY if partition is None else partition,
        )
        for key, value, partition in records
    ]


def _produced(outcome: Outcome) -> ProducedRecord:
    match outcome:
        case Delivered():
            return ProducedRecord(partition=outcome.partition, offset=outcome.offset)
        case Undelivered():
            refused = undelivered_v2(outcome)
            return ProducedRecord(error_code=refused.error_code, error=refused.message)


def undelivered_v2(outcome: Undelivered) -> Refused:
    """The error for an unwritten record: 50003 means that it may succeed when sent again."""
    if outcome.is_unknown_topic:
        return topic_not_found()
    if outcome.is_unknown_partition:
        return partition_not_found()
    refused = kafka_refused(outcome.error)
    if refused.status in (401, 403):
        return refused
    return refusals.kafka_failed(outcome.error.str(), is_retriable=outcome.is_retriable)
