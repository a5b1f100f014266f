"""A translate link's notes of groups whose offsets agreed at both ends, as records of a compacted
topic at its target.

The mirror wrote the target's offset itself, or found that it refers to the same record. While the
target's offset is the stored one, the group has not moved there since: if the source's is lower
now, the group was reset at the source. Keys and values are JSON; null removes a key. A link in the
other direction reads the notes too, and does not carry back what came from its own target.

| key | value |
| --- | --- |
| `{"group":...,"topic":name at the target,"partition":n}` | `{"from":alias of the source,"source":offset there,"target":offset here}` |
"""

from __future__ import annotations

import json
from typing import NamedTuple

from mirror.translate.notes.core.stored_map import StoredRecord
from wire.protocol.ids import TopicPartition
from wire.protocol.json_documents import parse_json


class GroupNote(NamedTuple):
    """A group's position at both ends, and the alias of the source."""

    source_alias: str
    source_offset: int
    target_offset: int


class StoredGroups:
    """The content of the topic, by group and partition of the target."""

    def __init__(self) -> None:
        self.notes: dict[tuple[str, TopicPartition], GroupNote] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """The next record of the topic. Raises one of NO_NOTE, and changes nothing, if it is not
        one of our notes.
        """
        if key is None:
            raise ValueError("a record without a key")
        name = parse_json(key)
        place = str(name["group"]), TopicPartition(str(name["topic"]), int(name["partition"]))
        content = None if value is None else parse_json(value)
        note = None
        if content is not None:
            note = GroupNote(str(content["from"]), int(content["source"]), int(content["target"]))
        self.put(place, note)

    def put(self, place: tuple[str, TopicPartition], note: GroupNote | None) -> None:
        """Replace the note on a group in a partition of the target; None removes it."""
        if note is None:
            self.notes.pop(place, None)
        else:
            self.notes[place] = note


def note_record(group: str, key: TopicPartition, note: GroupNote | None) -> StoredRecord:
    """The record of a note, or the tombstone that removes it."""
    name = json.dumps({"group": group, "topic": key.topic, "partition": key.partition}, separators=(",", ":"))
    if note is None:
        return name.encode(), None
    content = {"from": note.source_alias, "source": note.source_offset, "target": note.target_offset}
    return name.encode(), json.dumps(content, separators=(",", ":")).encode()
