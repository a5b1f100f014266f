"""Where a translate link's mirror has seen a group stand alike at both ends, in the records of a
compacted topic at its target.

Either it wrote the offset at the target itself, or found it to be the same place. While the
target's offset is the noted one, nobody has moved the group there since: if the source's is lower
now, the group was reset at the source. Keys and values are JSON; null takes a key away. A link in
the other direction reads them too: what came from its own target is no news to carry there.

| key | value |
| --- | --- |
| `{"group":...,"topic":name at the target,"partition":n}` | `{"from":alias of the source,"source":offset there,"target":offset here}` |
"""

from __future__ import annotations

import json
from typing import NamedTuple

from mirror.link.core.partitions import PartitionKey
from mirror.translate.core.stored_map import StoredRecord
from wire.protocol.json_documents import parse_json


class GroupNote(NamedTuple):
    """One place at both ends, and the alias of the source."""

    source_alias: str
    source_offset: int
    target_offset: int


class StoredGroups:
    """Everything that the topic holds, by group and partition of the target."""

    def __init__(self) -> None:
        self.notes: dict[tuple[str, PartitionKey], GroupNote] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """The next record of the topic. ValueError when it is none of ours."""
        if key is None:
            raise ValueError("a record without a key")
        name = parse_json(key)
        place = name["group"], PartitionKey(name["topic"], name["partition"])
        if value is None:
            self.notes.pop(place, None)
        else:
            content = parse_json(value)
            self.notes[place] = GroupNote(content["from"], content["source"], content["target"])


def note_record(group: str, key: PartitionKey, note: GroupNote | None) -> StoredRecord:
    """The record of a note, or what takes it away."""
    name = json.dumps({"group": group, "topic": key.topic, "partition": key.partition}, separators=(",", ":"))
    if note is None:
        return name.encode(), None
    content = {"from": note.source_alias, "source": note.source_offset, "target": note.target_offset}
    return name.encode(), json.dumps(content, separators=(",", ":")).encode()
