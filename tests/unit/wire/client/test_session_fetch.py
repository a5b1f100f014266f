"""Incremental fetch sessions: the partitions that a request names again."""

from __future__ import annotations

from uuid import UUID

from kio.schema.errors import ErrorCode

from wire.client.requests.fetch_requests import FetchRequest
from wire.client.session_fetch import FetchPosition, SessionFetch
from wire.protocol.messages.fetch_codec import FetchResponse

PLACE = ("orders", 0)
SESSION = 77


def answer() -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=ErrorCode.none, session_id=SESSION, topics=[])


def named(session: SessionFetch, topic_id: UUID) -> tuple[int, list[UUID | None]]:
    request = session.request({PLACE: FetchPosition(0, 0)}, {"orders": topic_id})
    session.answered(answer())
    return request.session_id, [topic.topic_id for topic in request.topics]


def test_a_partition_at_the_same_place_is_not_named_again() -> None:
    session = SessionFetch(FetchRequest([]), partition_max_bytes=100)
    assert named(session, UUID(int=1)) == (0, [UUID(int=1)])
    assert named(session, UUID(int=1)) == (SESSION, [])


def test_a_topic_made_again_is_named_under_its_new_id_although_its_place_is_the_same() -> None:
    session = SessionFetch(FetchRequest([]), partition_max_bytes=100)
    named(session, UUID(int=1))
    assert named(session, UUID(int=2)) == (0, [UUID(int=2)])
    assert named(session, UUID(int=2)) == (SESSION, [])
