"""A daemon whose lease of a translate link has run out sends nothing to the target."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from kio.schema.errors import ErrorCode

from mirror.link.core.naming import Naming
from mirror.link.core.partitions import PartitionKey
from mirror.link.ports import AppendPart
from mirror.translate.offset_store import OffsetStore
from mirror.translate.tail_reader import TailReader
from mirror.translate.translated_append import TranslatedAppend
from mirror.translate.translations import Translations
from tests.support.clock import ManualClock
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient


class Client:
    """Connects, and has nothing that could send."""

    async def connection(self, node_id: int) -> object:
        assert node_id == 1
        return object()


async def test_records_are_to_be_sent_again_later_when_another_daemon_may_carry_the_link() -> None:
    client, clock = cast("KafkaClient", Client()), ManualClock()
    translations = Translations(client, cast("OffsetStore", object()), clock=clock)
    translations.may_write = lambda: False
    append = TranslatedAppend(
        client,
        naming=cast("Naming", object()),
        translations=translations,
        tails=cast("TailReader", object()),
        clock=clock,
        timeout_ms=1_000,
    )
    part = AppendPart(
        key=PartitionKey("orders", 0),
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
