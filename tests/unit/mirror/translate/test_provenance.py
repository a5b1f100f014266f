"""The site that a producer's records come from, read from the topics in which mirrors note it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from mirror.translate.notes.core.stored_map import writer_record
from mirror.translate.provenance import Provenance
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import READ_UNCOMMITTED

TOPIC = "antipode-offset-map.a-b"
EARLIEST = -2


class Cluster:
    """A client of a cluster with one topic of notes."""

    def __init__(self, topic_id: UUID | None) -> None:
        self.topic_id = topic_id
        self.notes: list[tuple[bytes, bytes]] = []

    def note(self, origin: str, producer_id: int) -> None:
        key = json.dumps({"kind": "producer", "origin": origin}).encode()
        self.notes.append((key, json.dumps({"id": producer_id}).encode()))

    def note_positions(self, count: int) -> None:
        self.notes += [(b'{"kind":"position","topic":"t","partition":0}', b"{}")] * count

    async def metadata(self) -> Any:
        return SimpleNamespace(topics={TOPIC: SimpleNamespace(topic_id=self.topic_id)})

    async def offsets_at(
        self, places: Sequence[tuple[str, int]], timestamp_ms: int, **_: int
    ) -> dict[tuple[str, int], int]:
        return {places[0]: 0 if timestamp_ms == EARLIEST else len(self.notes)}

    async def fetch(
        self, _: object, __: str, ___: int, offset: int, *, max_bytes: int, isolation_level: int
    ) -> tuple[bytes, frozenset[int]]:
        assert isolation_level == READ_UNCOMMITTED, (
            "a mirror's open transaction does not hide whose records another one's are"
        )
        notes = list(enumerate(self.notes))[offset:]
        batches = (encode_batch([Record(key, value, 1)], base_offset=at) for at, (key, value) in notes)
        return b"".join(batches)[:max_bytes], frozenset()


async def test_transactional_producers_of_a_mirror_are_known_by_every_id_that_they_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(UUID(int=1))
    monkeypatch.setattr("mirror.translate.notes.offset_store.fetch_with_skipped", cluster.fetch)
    provenance = Provenance(cast("KafkaClient", cluster), source_alias="b", on_origin=lambda _: None)
    cluster.notes += [writer_record("a", 7), writer_record("a", 8)]
    await provenance.learn([7, 8, 9])
    assert [provenance.origin_of(one) for one in (7, 8, 9)] == ["a", "a", "b"]


@pytest.mark.parametrize("ids", [(UUID(int=1), UUID(int=2)), (None, None)], ids=["topic ids", "no topic ids"])
async def test_notes_are_read_from_the_beginning_when_their_topic_was_made_anew(
    monkeypatch: pytest.MonkeyPatch, ids: tuple[UUID | None, UUID | None]
) -> None:
    """M5: else the new producer would count as an ordinary one, and a site's own records would come
    back to it.
    """
    cluster = Cluster(ids[0])
    monkeypatch.setattr("mirror.translate.notes.offset_store.fetch_with_skipped", cluster.fetch)
    provenance = Provenance(cast("KafkaClient", cluster), source_alias="b", on_origin=lambda _: None)
    cluster.note("a", 100)
    cluster.note_positions(20)
    await provenance.learn([100])
    assert provenance.origin_of(100) == "a"
    cluster.notes.clear()
    cluster.note("a", 200)
    cluster.topic_id = ids[1]
    await provenance.learn([200, 300])
    assert [provenance.origin_of(number) for number in (100, 200, 300)] == ["a", "a", "b"]


async def test_a_topic_made_anew_that_is_longer_already_is_read_from_the_beginning_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(UUID(int=1))
    monkeypatch.setattr("mirror.translate.notes.offset_store.fetch_with_skipped", cluster.fetch)
    provenance = Provenance(cast("KafkaClient", cluster), source_alias="b", on_origin=lambda _: None)
    cluster.note("a", 100)
    await provenance.learn([100])
    cluster.notes.clear()
    cluster.note("a", 200)
    cluster.note_positions(5)
    cluster.topic_id = UUID(int=2)
    await provenance.learn([200])
    assert provenance.origin_of(200) == "a"
