"""What the links that write into this link's source have noted there: needed where both directions go by the same names.

Each of them keeps its offset map in a topic at our source (`offset_store.py`). The one whose binding has the same two topics as ours,
by their ids, is the opposite link of a topic; `core/both_ways.py` says what is done with its map. Records of our own target that came
by way of a third site (a ring) are known to be there but not where: of such topics no group's offset can be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from mirror.core.partitions import PartitionKey
from mirror.core.stored_map import Binding, StoredLink
from mirror.core.translation import Translation
from mirror.offset_store import TOPIC_PREFIX, read_topic
from runtime.clock import Clock
from wire.client import KafkaClient

READ_AGAIN_MS: Final = 100
"""How old may be what is known; an old map only makes answers smaller."""


class UnknownPlace(Exception):
    """Records of the target came to the source through another site; what they are at the target nobody has noted."""


@dataclass(slots=True)
class _Notes:
    topic_id: UUID
    read_to: int = 0
    link: StoredLink = field(default_factory=StoredLink)
    translations: dict[PartitionKey, Translation] = field(default_factory=dict)


class OppositeLinks:
    """One link's; `refresh` before asking."""

    def __init__(self, client: KafkaClient, *, is_target: Callable[[str], bool], clock: Clock) -> None:
        """`is_target` says whether an alias is, or may be, that of this link's target."""
        self._client = client
        self._is_target = is_target
        self._clock = clock
        self._notes: dict[str, _Notes] = {}
        self._read_at_ms = float("-inf")
        self._reading = asyncio.Lock()

    async def refresh(self, topics: Mapping[str, UUID]) -> None:
        """Read what is new in the notes among the source's topics. Unreachable when the source does not answer."""
        async with self._reading:
            began_ms = self._clock.monotonic_ms()
            if began_ms - self._read_at_ms < READ_AGAIN_MS:
                return
            names = sorted(name for name in topics if name.startswith(TOPIC_PREFIX))
            for name in self._notes.keys() - names:
                del self._notes[name]
            for name in names:
                await self._read(name, topics[name])
            self._read_at_ms = began_ms

    async def _read(self, name: str, topic_id: UUID) -> None:
        known = self._notes.get(name)
        notes = known if known is not None and known.topic_id == topic_id else _Notes(topic_id)
        end = await read_topic(self._client, name, notes.link.apply, first_offset=notes.read_to)
        if end < notes.read_to:  # its log was cut, or made anew at a cluster that gives topics no ids
            notes = _Notes(topic_id)
            end = await read_topic(self._client, name, notes.link.apply)
        if end != notes.read_to:
            notes.translations.clear()
        notes.read_to = end
        self._notes[name] = notes

    def of(self, key: PartitionKey, binding: Binding) -> Translation | None:
        """The opposite link of our partition, None where there is none. UnknownPlace."""
        for notes in self._into(binding):
            theirs = next(one for one in notes.link.bindings.values() if one.target_id == binding.source_id)
            if theirs.source_id == binding.target_id:
                place = PartitionKey(theirs.topic, key.partition)
                if place not in notes.translations:
                    notes.translations[place] = notes.link.translation(place)
                return notes.translations[place]
        for origin in sorted({origin for notes in self._into(binding) for origin in notes.link.origins}):
            if self._is_target(origin):
                raise UnknownPlace(f"records of {origin} came to topic {binding.topic} by way of another site")
        return None

    def _into(self, binding: Binding) -> Iterator[_Notes]:
        """The links that write into our source's topic."""
        for notes in self._notes.values():
            if any(one.target_id == binding.source_id for one in notes.link.bindings.values()):
                yield notes
