"""MirrorMaker 2's heartbeats of one link: its own at its target, and at its source in the stead of
an opposite link.

RemoteClusterUtils finds upstream clusters by the copies `<source>.heartbeats`, so the source needs
a heartbeats topic as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from mirror.link.core.topic_naming import HEARTBEATS
from mirror.mirrormaker.core.mirror_maker_records import Heartbeat
from mirror.mirrormaker.core.stand_in import StandIn
from mirror.sites.kafka_site import reached
from mirror.translate.notes.offset_store import read_topic
from runtime.clock import Clock
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import LATEST_TIMESTAMP

Write = Callable[[KafkaClient, Sequence[Heartbeat]], Awaitable[None]]
"""Creates the topic at a cluster if needed, and writes these heartbeats into it."""


class Heartbeats:
    """`write` each interval."""

    def __init__(
        self,
        *,
        source: KafkaClient,
        target: KafkaClient,
        source_alias: str,
        target_alias: str,
        interval_ms: int,
        write: Write,
        clock: Clock,
    ) -> None:
        self._source = source
        self._target = target
        self._source_alias = source_alias
        self._target_alias = target_alias
        self._write_to = write
        self._clock = clock
        self._stand_in = StandIn(interval_ms=interval_ms, now_ms=clock.monotonic_ms())
        # The offset up to which the source's topic has been read; None before the first read.
        self._read_to: int | None = None
        self._written: Heartbeat | None = None

    async def write(self) -> None:
        """Write the heartbeats that are due. Raises Unreachable, KafkaClientError."""
        now_ms = self._clock.now_ms()
        here = Heartbeat(source_alias=self._source_alias, target_alias=self._target_alias, timestamp_ms=now_ms)
        there = Heartbeat(source_alias=self._target_alias, target_alias=self._source_alias, timestamp_ms=now_ms)
        await self._write_to(self._target, [here])
        await self._write_to(self._source, [])
        await self._listen(there.key)
        if self._stand_in.may_write(self._clock.monotonic_ms()):
            self._written = there
            await self._write_to(self._source, [there])

    async def _listen(self, theirs: bytes) -> None:
        """Read the records that arrived in the source's topic since the last call."""
        if self._read_to is None:
            place = (HEARTBEATS, 0)
            self._read_to = (await reached(self._source.offsets_at([place], LATEST_TIMESTAMP)))[place]
            return
        own = None if self._written is None else self._written.value

        def take(key: bytes | None, value: bytes | None) -> None:
            if key == theirs and value != own:
                self._stand_in.note_heartbeat(self._clock.monotonic_ms())

        self._read_to = await read_topic(self._source, HEARTBEATS, take, first_offset=self._read_to)
