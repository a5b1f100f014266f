"""The topic of a link's notes, into which other clients may write too."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.translate.notes import offset_store
from mirror.translate.notes.core.group_notes import GroupNote, StoredGroups, note_record
from mirror.translate.notes.core.stored_map import StoredLink, StoredRecord, producer_record
from mirror.translate.notes.offset_store import TOPIC_PREFIX, read_topic
from mirror.translate.provenance import Provenance
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import EARLIEST_TIMESTAMP, TopicPartition

KEY = TopicPartition("orders", 1)
FOREIGN: list[tuple[bytes | None, bytes | None]] = [
    (None, b"v"),
    (b"k", b"v"),
    (b"\xff", b"{}"),
    (b"[]", b"{}"),
    (b"7", b"{}"),
    (b"{}", b"{}"),
    (b'{"kind":["producer"]}', b"{}"),
    (b'{"kind":"producer","origin":"a"}', b"[]"),
    (b'{"kind":"writer","id":{}}', b"{}"),
    (b'{"kind":"claim","writer":"w","id":1,"epoch":1}', b'{"slots":7}'),
    (b'{"kind":"topic","topic":"orders"}', b'{"source_id":1,"target":"orders","target_id":2}'),
    (b'{"kind":"position","topic":"orders","partition":1}', b"{}"),
    (b'{"kind":"position","topic":"orders","partition":1}', b"0"),
    (
        b'{"kind":"position","topic":"orders","partition":1}',
        b'{"source_next":1,"source_epoch":1,"target_next":1,"sequences":[7]}',
    ),
    (b'{"kind":"runs","topic":"orders","partition":1,"chunk":0}', b'{"runs":[[1,2]]}'),
    (b'{"kind":"runs","topic":"orders","partition":"one","chunk":0}', b'{"runs":[]}'),
    (b'{"group":"billing","topic":"orders","partition":1}', b"{}"),
    (b'{"group":"billing","topic":"orders","partition":[]}', b"null"),
]


class Topic:
    """A client of a cluster, and the records of the topic there."""

    def __init__(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        self._records = records

    async def offsets_at(
        self, places: Sequence[tuple[str, int]], timestamp_ms: int, **_: int
    ) -> dict[tuple[str, int], int]:
        return {places[0]: 0 if timestamp_ms == EARLIEST_TIMESTAMP else len(self._records)}

    async def fetch(self, _: object, __: str, ___: int, offset: int, **____: int) -> tuple[bytes, frozenset[int]]:
        found = list(enumerate(self._records))[offset:]
        return b"".join(encode_batch([Record(*record)], base_offset=at) for at, record in found), frozenset()

    async def metadata(self) -> Any:
        return SimpleNamespace(topics={f"{TOPIC_PREFIX}a-b": SimpleNamespace(topic_id=None)})


def around(record: StoredRecord, monkeypatch: pytest.MonkeyPatch) -> KafkaClient:
    """A topic with this note between records of other clients."""
    topic = Topic([*FOREIGN, record, *FOREIGN])
    monkeypatch.setattr(offset_store, "fetch_with_skipped", topic.fetch)
    return cast("KafkaClient", topic)


async def test_records_of_other_clients_are_no_notes_of_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = StoredLink()
    await read_topic(around(producer_record("a", 7), monkeypatch), "notes", stored.apply)
    assert stored == StoredLink(producers={"a": 7}, origins={"a"})


async def test_records_of_other_clients_are_no_notes_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, note = StoredGroups(), GroupNote("a", 10, 7)
    await read_topic(around(note_record("live", KEY, note), monkeypatch), "notes", stored.apply)
    assert stored.notes == {("live", KEY): note}


async def test_records_of_other_clients_say_nothing_about_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    client = around(producer_record("a", 7), monkeypatch)
    found: list[str] = []
    provenance = Provenance(client, source_alias="b", on_origin=found.append)
    await provenance.learn([7])
    assert (provenance.origin_of(7), found) == ("a", ["a"])
