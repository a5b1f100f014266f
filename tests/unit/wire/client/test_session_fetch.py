"""Incremental fetch sessions: the partitions that a request names again."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
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


class Broker:
    """The positions that the broker of a session has, from the requests that it got."""

    def __init__(self) -> None:
        self.positions: dict[tuple[str, int], int] = {}

    def take(self, request: FetchRequest) -> None:
        if request.session_id == 0:
            self.positions = {}
        for topic in request.forgotten_topics:
            for index in topic.partitions:
                del self.positions[topic.name, index]
        for asked in request.topics:
            for part in asked.partitions:
                self.positions[asked.name, part.partition_index] = part.fetch_offset


@pytest.mark.parametrize("seed", range(20))
def test_requests_by_changes_and_of_everything_leave_the_broker_with_what_is_wanted(seed: int) -> None:
    chance, broker = random.Random(seed), Broker()
    session = SessionFetch(FetchRequest([]), partition_max_bytes=100)
    wanted: dict[tuple[str, int], FetchPosition] = {}
    topic_ids: dict[str, UUID | None] = {"orders": UUID(int=1), "flights": UUID(int=2)}
    for _ in range(50):
        changed: dict[tuple[str, int], FetchPosition | None] = {}
        for _ in range(chance.randrange(4)):
            key = (chance.choice(("orders", "flights")), chance.randrange(3))
            at = changed[key] = None if chance.random() < 0.3 else FetchPosition(chance.randrange(3))
            wanted.pop(key, None)
            if at is not None:
                wanted[key] = at
        by_changes = None if chance.random() < 0.2 else session.update(changed, topic_ids)
        broker.take(by_changes or session.request(wanted, topic_ids))
        assert broker.positions == {key: at.offset for key, at in wanted.items()}
        if chance.random() < 0.1:
            session.reset()
        else:
            session.answered(answer())


def test_changes_of_a_topic_made_again_need_a_request_of_everything() -> None:
    session = SessionFetch(FetchRequest([]), partition_max_bytes=100)
    assert session.update({PLACE: FetchPosition(0, 0)}, {"orders": UUID(int=1)}) is None
    named(session, UUID(int=1))
    assert session.update({PLACE: FetchPosition(1, 0)}, {"orders": UUID(int=1)}) is not None
    assert session.update({PLACE: FetchPosition(1, 0)}, {"orders": UUID(int=2)}) is None
