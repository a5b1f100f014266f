"""FetchPort and AppendPort over the raw-batch client: the two ends of the data path, each with
connections of its own, and the reports of both ends.

Records are views of the received frame on the one side and are handed to the transport as they are
on the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from clients.reader.single_fetches import is_throttled_away
from mirror.link.ports import (
    BRIEF_WAIT_MS,
    AppendAnswer,
    AppendPart,
    FetchAnswer,
    FetchParts,
    IdlePartition,
    ReportAnswer,
    Unreachable,
)
from mirror.sites.kafka_site import new_client, reached
from runtime.addresses import HostPort
from wire.client.client_errors import BrokerError, error_code
from wire.client.connection import ConnectionOptions
from wire.client.requests.fetch_requests import FetchRequest
from wire.client.session_fetch import FetchPosition, SessionFetch
from wire.protocol.ids import CONSUMER, TopicPartition
from wire.protocol.messages.fetch_codec import FetchResponse, PartitionFetched
from wire.protocol.messages.mirror_append_codec import MirrorAppend, PartitionToMirror, TopicToMirror

_NO_RECORDS = memoryview(b"")


class RecordFilter(Protocol):
    """Turns fetched bytes into an answer, and names the batches that must not go to the target."""

    isolation_level: int

    async def sift(self, topic: str, partition: PartitionFetched) -> FetchAnswer:
        """The answer for one partition. Raises Unreachable when the origin of a batch cannot be
        determined.
        """
        ...


class KafkaFetch:
    """FetchPort: long-polling fetches of one fetcher, in an incremental session."""

    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        options: ConnectionOptions,
        *,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
        max_wait_ms: int,
        record_filter: RecordFilter | None = None,
        replica_id: int = CONSUMER,
    ) -> None:
        self._record_filter = record_filter
        self._client = new_client(bootstrap, options)
        limits = FetchRequest(
            [],
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=0 if record_filter is None else record_filter.isolation_level,
            replica_id=replica_id,
        )
        self._session = SessionFetch(limits, partition_max_bytes=partition_max_bytes)

    async def fetch(
        self,
        node_id: int,
        parts: FetchParts,
        *,
        changed: Collection[TopicPartition] | None = None,
        is_brief: bool = False,
    ) -> Sequence[FetchAnswer]:
        """One fetch; the answer leaves out partitions that have not changed.

        Two responses are no answer, because the broker has read nothing: an empty one due to a
        quota, after which the fetch is repeated after the broker's throttle time, and one that
        ends the session, after which it is repeated in another session.
        """
        has_session_ended = False
        while True:
            response = await self._exchange(node_id, self._request(parts, changed), is_brief=is_brief)
            try:
                answers = self._session.answered(response)
            except BrokerError as error:
                raise self._failed(node_id, response) from error
            if is_throttled_away(response):
                changed = ()
                await asyncio.sleep(response.throttle_time_ms / 1000)
            elif not response.error_code:
                break
            elif has_session_ended:
                raise self._failed(node_id, response)
            else:
                has_session_ended, changed = True, None
        if self._record_filter is None:
            return [_answer(name, partition) for name, partition in answers]
        return [await self._record_filter.sift(name, partition) for name, partition in answers]

    async def _exchange(self, node_id: int, request: FetchRequest, *, is_brief: bool) -> FetchResponse:
        if is_brief:
            request = request._replace(max_wait_ms=min(request.max_wait_ms, BRIEF_WAIT_MS))
        try:
            return await reached(self._client.fetch(node_id, request))
        except BaseException:
            # the broker may have handled the request, so the session's epoch is unknown (KIP-227)
            self._session.reset()
            raise

    def _failed(self, node_id: int, response: FetchResponse) -> Unreachable:
        return Unreachable(f"source broker {node_id} answers {error_code(response.error_code).name} to a fetch")

    def _request(self, parts: FetchParts, changed: Collection[TopicPartition] | None) -> FetchRequest:
        """Build the request; of thousands of partitions, only the changed ones are looked at."""
        if changed is not None:
            named = {key: part for key in changed if (part := parts.get(key)) is not None}
            updates: dict[tuple[str, int], FetchPosition | None] = dict.fromkeys(changed)
            updates |= _positions(named)
            request = self._session.update(updates, _topic_ids(named))
            if request is not None:
                return request
        return self._session.request(_positions(parts), _topic_ids(parts))

    async def close(self) -> None:
        """Drop the connection."""
        await self._client.close()


class KafkaAppend:
    """AppendPort: one producer's appends to the brokers of the target."""

    def __init__(self, bootstrap: Sequence[HostPort], options: ConnectionOptions) -> None:
        self._client = new_client(bootstrap, options)

    async def append(
        self, node_id: int, *, link: str, link_epoch: int, parts: Sequence[AppendPart]
    ) -> Sequence[AppendAnswer]:
        """Append; calls made one after the other reach the broker in that order."""
        topics: dict[tuple[str, UUID], list[PartitionToMirror]] = {}
        for part in parts:
            mirrored = PartitionToMirror(
                partition_index=part.key.partition,
                expected_log_end_offset=part.expected_log_end_offset,
                source_high_watermark=part.source_high_watermark,
                source_log_start_offset=part.source_log_start_offset,
                source_seen_at_ms=part.source_seen_at_ms,
                records=part.records or None,
            )
            topics.setdefault((part.key.topic, part.topic_id), []).append(mirrored)
        listed = [TopicToMirror(name, topic_id, partitions) for (name, topic_id), partitions in topics.items()]
        response = await reached(self._client.mirror_append(node_id, MirrorAppend(link, link_epoch, listed)))
        return [
            AppendAnswer(
                key=TopicPartition(topic.name, answer.index),
                error=answer.error_code,
                message=answer.error_message or "",
                log_end_offset=answer.log_end_offset,
                link_epoch=answer.link_epoch,
                divergence_epoch=answer.divergence_epoch,
                divergence_end_offset=answer.divergence_end_offset,
            )
            for topic in response.topics
            for answer in topic.partitions
        ]

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()


class KafkaReports:
    """ReportPort: reports about idle partitions to the target's brokers."""

    def __init__(self, bootstrap: Sequence[HostPort], options: ConnectionOptions) -> None:
        self._client = new_client(bootstrap, options)

    async def report(
        self,
        node_id: int,
        *,
        link: str,
        link_epoch: int,
        session_id: int,
        source_seen_at_ms: int,
        removed: Sequence[int],
        added: Sequence[IdlePartition],
    ) -> ReportAnswer:
        """Report as of when (Unix ms) the source has no new records of the session's partitions."""
        topics: dict[tuple[str, UUID], list[dict[str, int]]] = {}
        for one in added:
            ends = {
                "index": one.key.partition,
                "log_end_offset": one.log_end_offset,
                "source_high_watermark": one.source_high_watermark,
            }
            topics.setdefault((one.key.topic, one.topic_id), []).append(ends)
        values = {
            "link": link,
            "link_epoch": link_epoch,
            "session_id": session_id,
            "source_seen_at_ms": source_seen_at_ms,
            "removed": removed,
            "added": [
                {"name": name, "topic_id": topic_id, "partitions": partitions}
                for (name, topic_id), partitions in topics.items()
            ],
        }
        response = await reached(self._client.mirror_reports(node_id, values))
        return ReportAnswer(response.error_code, response.session_id, response.ended)

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()


class KafkaProgress:
    """ProgressPort: reports the target's progress to the source's brokers."""

    def __init__(self, bootstrap: Sequence[HostPort], options: ConnectionOptions) -> None:
        self._client = new_client(bootstrap, options)

    async def report(
        self, node_id: int, *, link: str, link_epoch: int, acknowledged: Mapping[TopicPartition, int]
    ) -> str:
        """Report; empty when it was accepted, else why not."""
        reports = acknowledged.items()
        request = self._client.link_progress(node_id, link=link, link_epoch=link_epoch, acknowledged=reports)
        code = await reached(request)
        return "" if code is ErrorCode.none else code.name

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()


def _positions(parts: FetchParts) -> dict[tuple[str, int], FetchPosition]:
    return {key: FetchPosition(part.offset, part.leader_epoch) for key, part in parts.items()}


def _topic_ids(parts: FetchParts) -> dict[str, UUID]:
    return {key.topic: part.topic_id for key, part in parts.items()}


def _answer(topic: str, partition: PartitionFetched) -> FetchAnswer:
    records = partition.records
    return FetchAnswer(
        key=TopicPartition(topic, partition.partition_index),
        error=error_code(partition.error_code),
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        records=records if isinstance(records, memoryview) else _NO_RECORDS,
    )
