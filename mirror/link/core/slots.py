"""Divides a link among several daemons: each partition belongs to a slot, and all daemons have
equally many slots.

A partition's slot follows from its name, so that each new topic and partition has an owner at once,
without a request; partitions of one topic follow each other round the slots. When daemons join or
leave, as few slots move as possible: each daemon keeps what it has up to its share.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import cycle

from clients.core.slots import stable_slot
from wire.protocol.ids import TopicPartition
from wire.protocol.json_documents import parse_json
from wire.rules.sync_reports import MIRROR_SLOTS

SLOTS = MIRROR_SLOTS


class Strategy(enum.Enum):
    """The way in which slots are assigned: so that few move, or as the classic consumer does, which
    looks only at the present members.
    """

    STICKY = "sticky"
    RANGE = "range"
    ROUND_ROBIN = "roundrobin"


def slot_of(key: TopicPartition) -> int:
    """The slot of a partition."""
    return stable_slot(key, SLOTS)


def share_slots(
    members: Collection[str], held: Mapping[str, Collection[int]], strategy: Strategy = Strategy.STICKY
) -> dict[str, frozenset[int]]:
    """Distribute all slots over the members, evenly. `held` are the slots that each claims; claims
    may overlap, and only STICKY looks at them.
    """
    if not members:
        return {}
    if strategy is Strategy.RANGE:
        return _ranges(sorted(members))
    if strategy is Strategy.ROUND_ROBIN:
        names = sorted(members)
        return {name: frozenset(range(number, SLOTS, len(names))) for number, name in enumerate(names)}
    return _sticky(members, held)


def _ranges(names: Sequence[str]) -> dict[str, frozenset[int]]:
    """Give each member neighbouring slots; the first members get one more if the number does not
    divide evenly.
    """
    fair, extra = divmod(SLOTS, len(names))
    begins = [number * fair + min(number, extra) for number in range(len(names) + 1)]
    return {name: frozenset(range(begins[number], begins[number + 1])) for number, name in enumerate(names)}


def _sticky(members: Collection[str], held: Mapping[str, Collection[int]]) -> dict[str, frozenset[int]]:
    fair, extra = divmod(SLOTS, len(members))
    # Members with the most slots keep the remainder, so that fewer slots move.
    by_size = sorted(members, key=lambda member: (-len(held.get(member, ())), member))
    quotas = {member: fair + (number < extra) for number, member in enumerate(by_size)}
    shares: dict[str, set[int]] = {member: set() for member in members}
    free = set(range(SLOTS))
    for member in by_size:
        kept = _spread(sorted(free.intersection(held.get(member, ()))), quotas[member])
        shares[member].update(kept)
        free.difference_update(kept)
    # Slots are dealt out in turn, because neighbouring slots hold the partitions of one topic,
    # which should go to different members.
    turns = cycle(by_size)
    for slot in sorted(free):
        member = next(member for member in turns if len(shares[member]) < quotas[member])
        shares[member].add(slot)
    return {member: frozenset(slots) for member, slots in shares.items()}


def _spread(slots: Sequence[int], count: int) -> list[int]:
    """Return this many of the slots, evenly spaced."""
    if count >= len(slots):
        return list(slots)
    return [slots[number * len(slots) // count] for number in range(count)]


def encode_slots(slots: Iterable[int], **beside: object) -> bytes:
    """Slots in a group's metadata or assignment, with further fields."""
    return json.dumps({"slots": sorted(slots), **beside}, separators=(",", ":")).encode()


def decode_slots(data: bytes) -> frozenset[int]:
    """The slots; none if this release cannot read the text."""
    try:
        return frozenset(int(slot) for slot in parse_json(data)["slots"]) & frozenset(range(SLOTS))
    except (ValueError, KeyError, TypeError):
        return frozenset()
