"""Fetches in an incremental session (KIP-227): from positions by partition to a request, from the
answer back to partitions.

A session belongs to one broker, with one request at a time. An answer that ends the session is no
error: the next request opens another and names everything again. Used by the mirror's fetchers and
by the reader under the consumers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from wire.client.client_errors import broker_error, error_code
from wire.client.requests.fetch_requests import FetchRequest, ForgottenTopic, PartitionToFetch, TopicToFetch
from wire.client.session_state import FetchSession, SessionRequest
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.fetch_codec import FetchResponse, PartitionFetched

_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


class FetchPosition(NamedTuple):
    """The position at which to read a partition, and the expected leader epoch (-1: any)."""

    offset: int
    leader_epoch: int = -1


class SessionFetch:
    """One broker's session, and the names of the topics in it."""

    def __init__(self, limits: FetchRequest, *, partition_max_bytes: int) -> None:
        """`limits` are the fields that every request has; its topics and session are not looked
        at.
        """
        self._limits = limits
        self._partition_max_bytes = partition_max_bytes
        self._session: FetchSession[PartitionKey, FetchPosition] = FetchSession()
        self._topic_ids: dict[str, UUID | None] = {}

    def reset(self) -> None:
        """No answer came: what the broker has of the session is unknown."""
        self._session.reset()

    def request(
        self, wanted: Mapping[PartitionKey, FetchPosition], topic_ids: Mapping[str, UUID | None]
    ) -> FetchRequest:
        """The request that makes the broker read these partitions."""
        if any(self._topic_ids.get(name, topic_id) != topic_id for name, topic_id in topic_ids.items()):
            # A topic made again: the session would take it for the partition that it has already,
            # perhaps at the same offset.
            self._session.reset()
        self._topic_ids.update(topic_ids)
        return self._named(self._session.next_request(wanted))

    def update(
        self, changed: Mapping[PartitionKey, FetchPosition | None], topic_ids: Mapping[str, UUID | None]
    ) -> FetchRequest | None:
        """The request after these changes since the last one; the position None removes a
        partition. None where the request must name all partitions.
        """
        if self._session.is_new or any(self._topic_ids.get(name) != topic_id for name, topic_id in topic_ids.items()):
            return None
        return self._named(self._session.next_update(changed))

    def _named(self, asked: SessionRequest[PartitionKey, FetchPosition]) -> FetchRequest:
        return self._limits._replace(
            topics=[
                TopicToFetch(
                    name,
                    self._topic_ids[name],
                    [
                        PartitionToFetch(partition, at.offset, self._partition_max_bytes, at.leader_epoch)
                        for partition in partitions
                        for at in [asked.named[name, partition]]
                    ],
                )
                for name, partitions in _by_topic(asked.named).items()
            ],
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            forgotten_topics=[
                ForgottenTopic(name, self._topic_ids[name], partitions)
                for name, partitions in _by_topic(asked.forgotten).items()
            ],
        )

    def answered(self, response: FetchResponse) -> list[tuple[str, PartitionFetched]]:
        """The partitions of a response with their topics' names; partitions without news are left
        out. Raises BrokerError.
        """
        code = error_code(response.error_code)
        if code is not ErrorCode.none:
            self._session.reset()
            # the broker has dropped the session; the next request opens another one and names
            # everything
            if code in _SESSION_ERRORS:
                return []
            raise broker_error(code, api_key=1)
        self._session.answered(response.session_id)
        # from version 13 on a response names topics only by their ids (KIP-516)
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        return [
            (names.get(topic.topic_id, topic.name) if topic.topic_id is not None else topic.name, partition)
            for topic in response.topics
            for partition in topic.partitions
        ]


def _by_topic(places: Iterable[PartitionKey]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics
