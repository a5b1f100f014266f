"""The notes of the links that write into this link's source: needed where both directions go by the
same names.

Each of them keeps its offset map in a topic at our source (`offset_store.py`). The one whose
binding has the same two topics as ours, by their ids, is the opposite link of a topic;
`core/both_ways.py` uses its map. In a ring of sites, records of our own target come back through a
third site. Their offsets there are not known, so group offsets of such topics cannot be translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from mirror.translate.core.translation import Translation
from mirror.translate.notes.core.stored_map import Binding, StoredLink
from mirror.translate.notes.followed_notes import FollowedNotes
from mirror.translate.notes.offset_store import TOPIC_PREFIX
from runtime.clock import Clock
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition


class UnknownPlace(Exception):
    """Records of the target reached the source through a third site, and no link notes their
    offsets at the target.
    """


@dataclass(slots=True)
class _Notes:
    link: StoredLink = field(default_factory=StoredLink)
    translations: dict[TopicPartition, Translation] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        self.translations.clear()
        self.link.apply(key, value)


class OppositeLinks:
    """The opposite links of one link; call `refresh` before reading. An old map only makes answers
    smaller.
    """

    def __init__(self, client: KafkaClient, *, is_target: Callable[[str], bool], clock: Clock) -> None:
        """`is_target` decides whether an alias is, or may be, that of this link's target."""
        self._is_target = is_target
        self._notes = FollowedNotes(client, prefix=TOPIC_PREFIX, make=_Notes, clock=clock)

    async def refresh(self, topics: Mapping[str, UUID]) -> None:
        """Read what is new in the notes among the source's topics. Raises Unreachable when the
        source does not answer.
        """
        await self._notes.refresh(topics)

    def of(self, key: TopicPartition, binding: Binding) -> Translation | None:
        """The opposite link of our partition, None where there is none. UnknownPlace."""
        for notes in self._into(binding):
            theirs = next(one for one in notes.link.bindings.values() if one.target_id == binding.source_id)
            if theirs.source_id == binding.target_id:
                place = TopicPartition(theirs.topic, key.partition)
                if place not in notes.translations:
                    notes.translations[place] = notes.link.translation(place)
                return notes.translations[place]
        for origin in sorted({origin for notes in self._into(binding) for origin in notes.link.origins}):
            if self._is_target(origin):
                raise UnknownPlace(f"records of {origin} came to topic {binding.topic} through another site")
        return None

    def _into(self, binding: Binding) -> Iterator[_Notes]:
        """The links that write into our source's topic."""
        for notes in self._notes.all():
            if any(one.target_id == binding.source_id for one in notes.link.bindings.values()):
                yield notes
