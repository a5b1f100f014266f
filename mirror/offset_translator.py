"""One offset of a translate link, from the source's numbers to the target's and back, by what the link keeps at the target.

Reads the link's topic there (`offset_store.py`), so it needs neither the source nor a running mirror: an application that keeps its
offsets itself can ask after the source is gone. What the mirror brought in its last moments may not be noted yet; then the answer says
that the offset is beyond what is known.

Python: `await (await OffsetTranslator.read(client, "a-b")).downstream("orders", 0, 1234)`; commands: `antipode links translate-offset`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from mirror.core.partitions import PartitionKey
from mirror.core.stored_map import StoredLink
from mirror.core.translation import Translation
from mirror.kafka_site import reached
from mirror.offset_store import TOPIC_PREFIX, read_topic
from runtime.process import OperationalFailure
from wire.client import KafkaClient

_START = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOffset:
    """Where a consumer goes on at the other end: at the first record that is there of those at or after the offset asked for.

    `is_known` False: nothing at or after it is noted as mirrored; `offset` is then the end of what is.
    """

    topic: str
    partition: int
    offset: int
    is_known: bool


class OffsetTranslator:
    """What a link knew when it was read."""

    def __init__(self, link: str, stored: StoredLink) -> None:
        self._link = link
        self._stored = stored

    @classmethod
    async def read(cls, client: KafkaClient, link: str) -> Self:
        """Read the link's topic at the target. OperationalFailure when the target has none, Unreachable."""
        topic = TOPIC_PREFIX + link
        found = (await reached(client.metadata([topic]))).topics.get(topic)
        if found is None or found.error_code:
            raise OperationalFailure(f"these brokers hold no offset map of link {link!r}: ask those of its target")
        stored = StoredLink()
        await read_topic(client, topic, stored.apply)
        return cls(link, stored)

    def downstream(self, topic: str, partition: int, offset: int) -> TranslatedOffset:
        """From the source's topic and offset to the target's. OperationalFailure for what the link does not carry."""
        binding = self._stored.bindings.get(topic)
        if binding is None:
            raise self._unknown(topic, sorted(self._stored.bindings))
        translation = self._translation(topic, partition)
        return TranslatedOffset(
            topic=binding.target,
            partition=partition,
            offset=max(_START, translation.downstream(offset)),
            is_known=(last := translation.map.last) is not None and offset < last.source_end,
        )

    def upstream(self, topic: str, partition: int, offset: int) -> TranslatedOffset:
        """From the target's topic and offset to the source's. OperationalFailure for what the link does not carry."""
        by_target = {binding.target: binding.topic for binding in self._stored.bindings.values()}
        if topic not in by_target:
            raise self._unknown(topic, sorted(by_target))
        translation = self._translation(by_target[topic], partition)
        return TranslatedOffset(
            topic=by_target[topic],
            partition=partition,
            offset=max(_START, translation.upstream(offset)),
            is_known=(last := translation.map.last) is not None and offset < last.target_end,
        )

    def _translation(self, topic: str, partition: int) -> Translation:
        key = PartitionKey(topic, partition)
        if key not in self._stored.positions:
            raise OperationalFailure(f"link {self._link!r} has noted nothing of {topic}-{partition} yet")
        return self._stored.translation(key)

    def _unknown(self, topic: str, known: list[str]) -> OperationalFailure:
        return OperationalFailure(
            f"link {self._link!r} carries no topic {topic!r}; there: {', '.join(known) or 'none'}"
        )
