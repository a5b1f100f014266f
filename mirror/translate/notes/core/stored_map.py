"""Records of the topic in which a translate link keeps its state at its target: producer ids,
topics, positions, offset maps.

| key | value |
| --- | --- |
| `{"kind":"producer","origin":alias}` | producer id under which the link writes records that were
first written at that site |
| `{"kind":"writer","origin":alias,"id":n}` | a transactional producer of the link, for records that
were first written at that site |
| `{"kind":"claim","writer":transactional id,"id":n,"epoch":n}` | the slots that a mirror writes
under that epoch |
| `{"kind":"owner"}` | which daemon carries a link that is not shared (`core/link_lease.py`) |
| `{"kind":"topic","topic":source name}` | both names and both ids |
| `{"kind":"position","topic":...,"partition":n}` | next source offset and its leader epoch,
target's end, sequences |
| `{"kind":"runs","topic":...,"partition":n,"chunk":n}` | runs `[source offset, target offset,
count]` of the offset map |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from mirror.translate.core.offset_map import OffsetMap, Run
from mirror.translate.core.translation import Position, Translation
from mirror.translate.notes.core.claims import Claim, ClaimName
from wire.protocol.ids import TopicPartition
from wire.protocol.json_documents import parse_json

StoredRecord = tuple[bytes, bytes | None]

NO_NOTE: Final = (ValueError, LookupError, TypeError)
"""The errors of a record that is not a note of a mirror: the topic is open to other clients."""

# `_key` writes its fields in the order of its arguments, and the kind is always the first.
_CLAIM = b'{"kind":"claim",'


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The topic of the target that carries a topic of the source; both by id, so that a recreated
    topic is noticed.
    """

    topic: str
    source_id: UUID
    target: str
    target_id: UUID


@dataclass(slots=True)
class StoredLink:
    """The topic's contents, by the last value of each key."""

    producers: dict[str, int] = field(default_factory=dict)
    # Origins whose last record names another producer id than the first, which is the one in use:
    # compaction would keep the wrong one.
    unsettled: set[str] = field(default_factory=set)
    writers: set[int] = field(default_factory=set)
    claims: dict[ClaimName, Claim] = field(default_factory=dict)
    origins: set[str] = field(default_factory=set)
    bindings: dict[str, Binding] = field(default_factory=dict)
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    chunks: dict[TopicPartition, dict[int, list[Run]]] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """The next record of the topic. Raises one of NO_NOTE, and changes nothing, if it is not
        one of our notes.
        """
        if key is None:
            raise ValueError("a record without a key")
        name = parse_json(key)
        content = None if value is None else parse_json(value)
        match name["kind"]:
            case "producer":
                # The first producer id in the topic is used: a second mirror that started at the
                # same moment uses it too.
                if content is not None:
                    self._take_producer(str(name["origin"]), int(content["id"]))
            case "writer":
                origin, producer_id = str(name["origin"]), int(name["id"])
                self.writers.add(producer_id)
                self.origins.add(origin)
            case "claim":
                claimed = ClaimName(str(name["writer"]), int(name["id"]), int(name["epoch"]))
                _put(self.claims, claimed, None if content is None else _claim(claimed, content))
            case "owner":
                pass  # `link_lease.py` reads these; earlier releases ignore them.
            case "topic":
                topic = str(name["topic"])
                _put(self.bindings, topic, None if content is None else _binding(topic, content))
            case "position":
                place = TopicPartition(str(name["topic"]), int(name["partition"]))
                _put(self.positions, place, None if content is None else _position(content))
            case "runs":
                place, chunk = TopicPartition(str(name["topic"]), int(name["partition"])), int(name["chunk"])
                runs = None if content is None else [Run(*map(int, run)) for run in content["runs"]]
                _put(self.chunks.setdefault(place, {}), chunk, runs)
            case kind:
                raise ValueError(f"a record of kind {kind!r}")

    def _take_producer(self, origin: str, producer_id: int) -> None:
        self.origins.add(origin)
        if self.producers.setdefault(origin, producer_id) == producer_id:
            self.unsettled.discard(origin)
        else:
            self.unsettled.add(origin)

    def translation(self, key: TopicPartition) -> Translation:
        """The partition's machine as it was stored; a new one when nothing was."""
        offset_map = OffsetMap.from_chunks(list(self.chunks.get(key, {}).items()))
        return Translation(self.positions.get(key), offset_map)


def producer_record(origin: str, producer_id: int) -> StoredRecord:
    """The record of the producer id under which the link writes records that were first written at
    `origin`.
    """
    return _key(kind="producer", origin=origin), _value(id=producer_id)


def writer_record(origin: str, producer_id: int) -> StoredRecord:
    """The record of the id of a transactional producer of the link, for records that were first
    written at `origin`.
    """
    return _key(kind="writer", origin=origin, id=producer_id), _value()


def is_claim(key: bytes | None) -> bool:
    """True if a record is a mirror's claim, by its key alone."""
    return key is not None and key.startswith(_CLAIM)


def claim_record(claim: Claim) -> StoredRecord:
    """A mirror's claim."""
    slots = None if claim.slots is None else sorted(claim.slots)
    return _claim_key(claim), _value(mirror=claim.mirror, slots=slots)


def claim_tombstone(claim: Claim) -> StoredRecord:
    """The record that removes a claim: its epoch is fenced."""
    return _claim_key(claim), None


def topic_record(binding: Binding) -> StoredRecord:
    """The binding of a topic."""
    return _key(kind="topic", topic=binding.topic), _value(
        source_id=str(binding.source_id), target=binding.target, target_id=str(binding.target_id)
    )


def partition_records(key: TopicPartition, translation: Translation, *, chunks: Iterable[int]) -> list[StoredRecord]:
    """A partition's position and these chunks of its map, to be written in one batch."""
    position = translation.position
    records: list[StoredRecord] = [_runs_record(key, number, translation.map.chunk(number)) for number in chunks]
    value = _value(
        source_next=position.source_next,
        source_epoch=position.source_epoch,
        target_next=position.target_next,
        sequences={str(producer): list(at) for producer, at in position.sequences.items()},
    )
    records.append((_key(kind="position", topic=key.topic, partition=key.partition), value))
    return records


def tombstones(key: TopicPartition, chunks: Iterable[int], *, with_position: bool = False) -> list[StoredRecord]:
    """The records that remove chunks, and the position with them when the partition begins anew."""
    gone: list[StoredRecord] = [(_runs_record(key, number, ())[0], None) for number in chunks]
    if with_position:
        gone.append((_key(kind="position", topic=key.topic, partition=key.partition), None))
    return gone


def _runs_record(key: TopicPartition, number: int, runs: Sequence[Run]) -> StoredRecord:
    name = _key(kind="runs", topic=key.topic, partition=key.partition, chunk=number)
    return name, _value(runs=[list(run) for run in runs])


def _claim_key(claim: Claim) -> bytes:
    return _key(
        kind="claim", writer=claim.name.transactional_id, id=claim.name.producer_id, epoch=claim.name.producer_epoch
    )


def _claim(name: ClaimName, content: Mapping[str, Any]) -> Claim:
    slots = content["slots"]
    return Claim(name=name, mirror=str(content["mirror"]), slots=None if slots is None else frozenset(map(int, slots)))


def _binding(topic: str, content: Mapping[str, Any]) -> Binding:
    return Binding(
        topic=topic,
        source_id=UUID(str(content["source_id"])),
        target=str(content["target"]),
        target_id=UUID(str(content["target_id"])),
    )


def _position(content: Mapping[str, Any]) -> Position:
    sequences = {int(producer): (int(at[0]), int(at[1])) for producer, at in dict(content["sequences"]).items()}
    return Position(int(content["source_next"]), int(content["source_epoch"]), int(content["target_next"]), sequences)


def _put(entries: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value


# Compaction compares the bytes of keys, so a key is always encoded in the same way.
def _key(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _value(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
