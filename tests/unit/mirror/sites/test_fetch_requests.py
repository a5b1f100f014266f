"""Requests of a mirror's fetcher: they name only what has changed, and the broker of the session
ends up with the positions that the fetcher wants.
"""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from mirror.link.ports import FetchPart
from mirror.sites.kafka_transfer import KafkaFetch
from runtime.addresses import HostPort
from wire.client.connection import ConnectionOptions
from wire.protocol.ids import TopicPartition


def part(key: TopicPartition, offset: int) -> FetchPart:
    return FetchPart(topic_id=UUID(int=len(key.topic)), offset=offset, leader_epoch=0, generation=1)


@pytest.mark.parametrize("seed", range(20))
async def test_the_broker_has_what_the_fetcher_wants_after_any_changes(seed: int) -> None:
    chance = random.Random(seed)
    port = KafkaFetch(
        [HostPort("h", 1)],
        ConnectionOptions(client_id="test"),
        min_bytes=1,
        max_bytes=1,
        partition_max_bytes=1,
        max_wait_ms=1,
    )
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
