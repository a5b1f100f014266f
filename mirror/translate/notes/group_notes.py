"""Keeps the offsets at which groups were last seen to agree at both ends of a translate link
(layout: `core/group_notes.py`).

In memory, and in a topic at the target for the next daemon. If notes are lost because a daemon was
killed, a group's offset at the target differs from the noted one, and the group keeps that offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from mirror.translate.notes.core.group_notes import GroupNote, StoredGroups, note_record
from mirror.translate.notes.followed_notes import FollowedNotes
from mirror.translate.notes.offset_store import LinkTopic, keep_saved, read_topic
from runtime.clock import Clock
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition

GROUPS_TOPIC_PREFIX: Final = "antipode-group-offsets."

SAVE_INTERVAL_S: Final = 0.25


class GroupNotes:
    """The group notes of one link. Call `load` first; `keep_saved` runs as a worker."""

    def __init__(
        self, client: KafkaClient, link: str, *, source_alias: str, replication_factor: int, clock: Clock
    ) -> None:
        self._client = client
        self._store = LinkTopic(client, GROUPS_TOPIC_PREFIX + link, replication_factor=replication_factor)
        self._source_alias = source_alias
        self._clock = clock
        self._stored = StoredGroups()
        self._unsaved: set[tuple[str, TopicPartition]] = set()
        # A read at the same time as a write could miss notes that count as saved by its end.
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Read the notes, including those of other daemons of the link. Unreachable;
        OperationalFailure when the target refuses the topic.
        """
        await self._store.create()
        stored = StoredGroups()
        async with self._turn:
            await read_topic(self._client, self._store.topic, stored.apply)
            # Unsaved changes are newer than the topic. They include notes that were forgotten here
            # and that the topic still has.
            for noted_key in self._unsaved:
                stored.put(noted_key, self._stored.notes.get(noted_key))
            self._stored = stored

    def of(self, group: str, key: TopicPartition) -> GroupNote | None:
        """The note on the group in a partition of the target."""
        return self._stored.notes.get((group, key))

    def note(self, group: str, key: TopicPartition, *, source_offset: int, target_offset: int) -> None:
        """Note that the group has these two offsets."""
        note = GroupNote(self._source_alias, source_offset, target_offset)
        if self._stored.notes.get((group, key)) != note:
            self._stored.notes[group, key] = note
            self._unsaved.add((group, key))

    def forget(self, group: str, key: TopicPartition) -> None:
        """Forget the notes: the source has no offset of the group."""
        if self._stored.notes.pop((group, key), None) is not None:
            self._unsaved.add((group, key))

    def forget_topic(self, topic: str) -> None:
        """Forget the topic's notes: the target's topic was replaced by another one."""
        for group, key in [noted_key for noted_key in self._stored.notes if noted_key[1].topic == topic]:
            self.forget(group, key)

    async def save(self) -> None:
        """Write the changes. Unreachable: they will be written with the next save."""
        async with self._turn:
            # changes during the write go into the new set, and are written by the next save
            saving, self._unsaved = self._unsaved, set()
            if not saving:
                return
            records = ([note_record(*noted_key, self._stored.notes.get(noted_key))] for noted_key in sorted(saving))
            try:
                await self._store.save(records, now_ms=self._clock.now_ms())
            # Also after a cancellation: the write may not have arrived, and to repeat it does no
            # harm.
            except BaseException:
                self._unsaved |= saving
                raise

    async def keep_saved(self) -> None:
        """Save each interval until cancelled."""
        await keep_saved(self.save, interval_s=SAVE_INTERVAL_S, event="group positions cannot be stored at the target")


class OppositeGroupNotes:
    """Notes of links from our target at our source: groups' offsets that came from there. `refresh`
    before asking.
    """

    def __init__(self, client: KafkaClient, *, target_alias: str, clock: Clock) -> None:
        self._target_alias = target_alias
        self._notes = FollowedNotes(client, prefix=GROUPS_TOPIC_PREFIX, make=StoredGroups, clock=clock)

    async def refresh(self, topics: Mapping[str, UUID]) -> None:
        """Read what is new in the notes among the source's topics. Raises Unreachable when the
        source does not answer.
        """
        await self._notes.refresh(topics)

    def is_from_target(self, group: str, key: TopicPartition, offset: int) -> bool:
        """True if the source has the offset from our target, or agreed with it, and the group has
        not moved since.
        """
        for stored in self._notes.all():
            note = stored.notes.get((group, key))
            if note is not None and note.source_alias == self._target_alias and note.target_offset == offset:
                return True
        return False
