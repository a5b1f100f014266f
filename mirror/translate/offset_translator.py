"""Translates one offset of a translate link, from the source's to the target's and back, by the
link's state at the target.

Reads the link's topic there (`offset_store.py`), so it needs neither the source nor a running
mirror: an application that keeps its offsets itself can ask after the source is gone. Records that
the mirror wrote in its last moments may not be noted yet; then the answer is that the offset is
beyond the known ones.

Where both directions go by the same names, the records that the opposite link has brought count
too, and their notes are at the source: given the source, the answer is as a group's would be
(`core/both_ways.py`). Without it the answer covers this link alone, and its text mentions that.

Python: `await (await OffsetTranslator.read(client, "a-b", source=source)).downstream("orders", 0,
1234)`; commands: `antipode links translate-offset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from msgspec import Struct

from mirror.sites.kafka_site import reached
from mirror.translate.core import both_ways
from mirror.translate.core.translation import Translation
from mirror.translate.notes.core.stored_map import Binding, StoredLink
from mirror.translate.notes.offset_store import TOPIC_PREFIX, read_link, read_topic
from mirror.translate.opposite_links import OppositeLinks, UnknownPlace
from runtime.clock import SystemClock
from runtime.process import OperationalFailure
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import LATEST_TIMESTAMP, TopicPartition

_START = 0


class TranslatedOffset(Struct, frozen=True, kw_only=True):
    """The position at the other end: the first record there among those at or after the requested
    offset.

    With `is_known` False no mirrored record at or after it is noted; `offset` is then the end of
    the noted ones. `opposite`: whether the command searched for a link that mirrors the same topics
    back, and whether there is one; if there is, the offset takes its records into account.
    """

    topic: str
    partition: int
    offset: int
    is_known: bool
    opposite: Literal["not asked", "none", "counted"]


class SourceNotes(Struct, frozen=True, kw_only=True):
    """The state at the source's brokers: the maps of opposite links, and the log ends, which are
    read after them.
    """

    opposite: OppositeLinks
    ends: Mapping[TopicPartition, int]


class OffsetTranslator:
    """A link's state when it was read."""

    def __init__(self, link: str, stored: StoredLink, source: SourceNotes | None = None) -> None:
        self._link = link
        self._stored = stored
        self._source = source

    @classmethod
    async def read(cls, client: KafkaClient, link: str, *, source: KafkaClient | None = None) -> Self:
        """Read the link's topic at the target, and the opposite notes at the source. Raises
        OperationalFailure when the target has none, Unreachable.
        """
        stored, end = await read_link(client, link)
        if source is None:
            return cls(link, stored)
        notes = await _source_notes(source, stored)
        # read again after the source: entries that came in between belong to ends that were just
        # read
        await read_topic(client, TOPIC_PREFIX + link, stored.apply, first_offset=end)
        return cls(link, stored, notes)

    def downstream(self, topic: str, partition: int, offset: int) -> TranslatedOffset:
        """Translate from the source's topic and offset to the target's. Raises OperationalFailure
        for topics that the link does not carry, or cannot translate.
        """
        binding = self._stored.bindings.get(topic)
        if binding is None:
            raise self._unknown(topic, sorted(self._stored.bindings))
        translation, opposite = self._translation(topic, partition), self._opposite(binding, partition)
        last, theirs = translation.map.last, None if opposite is None else opposite.map.last
        end = None if self._source is None else self._source.ends.get(TopicPartition(topic, partition))
        # without the source's end it is unknown whether the map is complete
        is_complete = end is not None and translation.position.source_next >= end
        there = both_ways.downstream(translation, opposite, offset, is_link_complete=is_complete)
        is_known = last is not None and offset < last.source_end
        return TranslatedOffset(
            topic=binding.target,
            partition=partition,
            offset=max(_START, there),
            is_known=is_known or (is_complete and theirs is not None and offset < theirs.target_end),
            opposite=self._asked(opposite),
        )

    def upstream(self, topic: str, partition: int, offset: int) -> TranslatedOffset:
        """Translate from the target's topic and offset to the source's. Raises OperationalFailure
        for topics that the link does not carry, or cannot translate.
        """
        by_target = {binding.target: binding for binding in self._stored.bindings.values()}
        if topic not in by_target:
            raise self._unknown(topic, sorted(by_target))
        binding = by_target[topic]
        translation, opposite = self._translation(binding.topic, partition), self._opposite(binding, partition)
        last, theirs = translation.map.last, None if opposite is None else opposite.map.last
        is_known = last is not None and offset < last.target_end
        return TranslatedOffset(
            topic=binding.topic,
            partition=partition,
            offset=max(_START, both_ways.upstream(translation, opposite, offset)),
            is_known=is_known or (theirs is not None and offset < theirs.source_end),
            opposite=self._asked(opposite),
        )

    def _opposite(self, binding: Binding, partition: int) -> Translation | None:
        if self._source is None:
            return None
        try:
            return self._source.opposite.of(TopicPartition(binding.topic, partition), binding)
        except UnknownPlace as error:
            raise OperationalFailure(f"{error}: the link has not stored their offsets") from error

    def _asked(self, opposite: Translation | None) -> Literal["not asked", "none", "counted"]:
        if self._source is None:
            return "not asked"
        return "none" if opposite is None else "counted"

    def _translation(self, topic: str, partition: int) -> Translation:
        key = TopicPartition(topic, partition)
        if key not in self._stored.positions:
            raise OperationalFailure(f"link {self._link!r} has stored no offsets of {topic}-{partition} yet")
        return self._stored.translation(key)

    def _unknown(self, topic: str, known: list[str]) -> OperationalFailure:
        return OperationalFailure(
            f"link {self._link!r} carries no topic {topic!r}; there: {', '.join(known) or 'none'}"
        )


async def _source_notes(source: KafkaClient, stored: StoredLink) -> SourceNotes:
    topics = (await reached(source.metadata())).topics
    # An origin that this link has never written for may be its target: it leaves out what came into
    # being there.
    opposite = OppositeLinks(source, is_target=lambda origin: origin not in stored.origins, clock=SystemClock())
    await opposite.refresh({name: topic.topic_id for name, topic in topics.items() if topic.topic_id is not None})
    carried = [
        (name, partition)
        for name, binding in stored.bindings.items()
        if name in topics and topics[name].topic_id == binding.source_id
        for partition, described in topics[name].partitions.items()
        if described.leader_id >= 0
    ]
    ends = await reached(source.offsets_at(carried, LATEST_TIMESTAMP))
    return SourceNotes(opposite=opposite, ends={TopicPartition(*place): end for place, end in ends.items()})
