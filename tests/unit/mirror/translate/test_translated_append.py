"""A daemon whose lease of a translate link, or whose share of it, has run out sends nothing to the
target.
"""

from __future__ import annotations

from typing import cast
from uuid import UUID

from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry

from mirror.link.core.slots import slot_of
from mirror.link.core.topic_naming import Naming
from mirror.link.ports import AppendPart
from mirror.settings.config import load_config
from mirror.sharing.ownership import Ownership
from mirror.translate.notes.offset_store import OffsetStore
from mirror.translate.tail_reader import TailReader
from mirror.translate.translated_append import TranslatedAppend
from mirror.translate.translations import Translations
from mirror.translate_ends import TranslateEnds
from tests.support.clock import ManualClock
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition


class Client:
    """A client that connects, and has no method that sends."""

    async def connection(self, node_id: int) -> object:
        assert node_id == 1
        return object()


async def test_records_are_to_be_sent_again_later_when_another_daemon_may_carry_the_link() -> None:
    client, clock = cast("KafkaClient", Client()), ManualClock()
    translations = Translations(client, cast("OffsetStore", object()), clock=clock)
    translations.may_write = lambda _: False
    append = TranslatedAppend(
        client,
        naming=cast("Naming", object()),
        translations=translations,
        tails=cast("TailReader", object()),
        clock=clock,
        timeout_ms=1_000,
    )
    part = AppendPart(
        key=TopicPartition("orders", 0),
        topic_id=UUID(int=1),
        expected_log_end_offset=0,
        source_high_watermark=1,
        source_log_start_offset=0,
        source_seen_at_ms=clock.now_ms(),
        records=memoryview(encode_batch([Record(b"key", b"value", clock.now_ms())])),
    )
    (answer,) = await append.append(1, link="a-b", link_epoch=0, parts=[part])
    assert answer.error is ErrorCode.request_timed_out
    assert answer.log_end_offset == 0


async def test_a_daemon_of_a_shared_link_writes_as_long_as_its_share_is_confirmed() -> None:
    clock = ManualClock()
    config = load_config(
        {
            "link.name": "a-b",
            "link.mode": "translate",
            "source.alias": "a",
            "target.alias": "b",
            "source.bootstrap.servers": "127.0.0.1:1",
            "target.bootstrap.servers": "127.0.0.1:2",
        }
    )
    link = TranslateEnds(config, client_id="test", registry=CollectorRegistry(), clock=clock)
    try:
        ownership = Ownership(session_timeout_ms=1_000, clock=clock)
        link.share(ownership)
        key = TopicPartition("orders", 0)
        others = (TopicPartition("orders", index) for index in range(1, 100))
        other = next(one for one in others if slot_of(one) != slot_of(key))
        assert not link.translations.may_write(key)
        await ownership.take(frozenset({slot_of(key)}), asked_at_ms=clock.monotonic_ms())
        assert link.translations.may_write(key)
        assert not link.translations.may_write(other)
        clock.advance(1_000)
        assert not link.translations.may_write(key), "the daemon was stopped for longer than a session"
    finally:
        await link.close()
