"""Requests of a mirror's fetcher: they name only what has changed, and the broker of the session
ends up with the positions that the fetcher wants.
"""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from mirror.link.ports import FetchPart, Unreachable
from mirror.sites.kafka_transfer import KafkaFetch
from runtime.addresses import HostPort
from wire.client.connection import ConnectionOptions
from wire.client.requests.fetch_requests import FetchRequest
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.fetch_codec import FetchResponse, PartitionFetched, TopicFetched


def part(key: TopicPartition, offset: int) -> FetchPart:
    return FetchPart(topic_id=UUID(int=len(key.topic)), offset=offset, leader_epoch=0, generation=1)


def make_port() -> KafkaFetch:
    return KafkaFetch(
        [HostPort("h", 1)],
        ConnectionOptions(client_id="test"),
        min_bytes=1,
        max_bytes=1,
        partition_max_bytes=1,
        max_wait_ms=1,
    )


@pytest.mark.parametrize("seed", range(20))
async def test_the_broker_has_what_the_fetcher_wants_after_any_changes(seed: int) -> None:
    chance = random.Random(seed)
    port = make_port()
    wanted: dict[TopicPartition, FetchPart] = {}
    positions: dict[tuple[str, int], int] = {}
    changed: set[TopicPartition] | None = None
    for _ in range(40):
        for _ in range(chance.randrange(3)):
            key = TopicPartition(chance.choice(("orders", "flights")), chance.randrange(3))
            wanted.pop(key, None)
            if chance.random() < 0.7:
                wanted[key] = part(key, chance.randrange(3))
            if changed is not None:
                changed.add(key)
        request = port._request(wanted, changed)
        changed = set() if chance.random() < 0.9 else None
        if request.session_id == 0:
            positions = {}
        for gone in request.forgotten_topics:
            for index in gone.partitions:
                del positions[gone.name, index]
        named = {(one.name, at.partition_index): at.fetch_offset for one in request.topics for at in one.partitions}
        if request.session_id:
            assert all(positions.get(key) != offset for key, offset in named.items())
        positions |= named
        assert positions == {key: one.offset for key, one in wanted.items()}
        if chance.random() < 0.1:
            port._session.reset()
        else:
            port._session._session.answered(77)
    await port.close()


ENDED = FetchResponse([], error_code=ErrorCode.fetch_session_id_not_found)


def answering(port: KafkaFetch, responses: list[FetchResponse], monkeypatch: pytest.MonkeyPatch) -> list[FetchRequest]:
    """The requests to a broker that gives these responses."""
    requests: list[FetchRequest] = []

    async def answer(_: int, request: FetchRequest) -> FetchResponse:
        requests.append(request)
        return responses.pop(0)

    monkeypatch.setattr(port._client, "fetch", answer)
    return requests


async def test_a_response_that_ends_the_session_is_no_answer_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no partitions because nothing was read, and not because there are no new records."""
    port, key = make_port(), TopicPartition("orders", 0)
    whole = FetchResponse([TopicFetched("orders", None, [PartitionFetched(0, high_watermark=9)])], session_id=77)
    requests = answering(port, [whole, ENDED, whole], monkeypatch)
    await port.fetch(1, {key: part(key, 5)})
    answers = await port.fetch(1, {key: part(key, 5)}, changed=())
    assert [(one.key, one.high_watermark) for one in answers] == [(key, 9)]
    assert [(one.session_id, len(one.topics)) for one in requests] == [(0, 1), (77, 0), (0, 1)]
    await port.close()


async def test_a_broker_that_ends_every_session_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    port, key = make_port(), TopicPartition("orders", 0)
    requests = answering(port, [ENDED] * 3, monkeypatch)
    with pytest.raises(Unreachable, match="fetch_session_id_not_found"):
        await port.fetch(1, {key: part(key, 5)})
    assert len(requests) == 2
    await port.close()
