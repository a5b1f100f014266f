"""The state of the group machine: the groups of one partition of `__consumer_offsets` and their
offsets. `apply` is the only way to change it, for live records and for the replay of the log alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, assert_never

from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerFact, ConsumerGroup
from broker.groups.core.group_messages import (
    GroupChanged,
    GroupRecord,
    GroupRemoved,
    GroupStored,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
    TransactionEnded,
)
from broker.groups.core.group_offsets import Offsets, OffsetTable
from broker.groups.core.group_pending_offsets import PendingOffsets
from broker.groups.core.group_states import Group, GroupState
from runtime.invariants import InvariantBroken
from wire.batches.consumer_group_records import GROUP_KIND
from wire.batches.group_records import OffsetValue
from wire.protocol.ids import TopicPartition

STORY_LENGTH: Final = 64


class GroupTables:
    """The groups and offsets of one partition; `apply` changes them."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetTable()
        self._pending = PendingOffsets()
        self._consumers: dict[str, ConsumerGroup] = {}
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)

    # --- reading

    def get(self, group_id: str) -> Group | None:
        """The group; None if it does not exist."""
        return self._groups.get(group_id)

    def consumers(self, group_id: str) -> ConsumerGroup | None:
        """The group in its KIP-848 form; None if it uses another protocol."""
        return self._consumers.get(group_id)

    def __iter__(self) -> Iterator[Group]:
        """Iterate over all groups, also those that only hold offsets."""
        return iter(tuple(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)

    def names(self) -> tuple[str, ...]:
        """The names of all groups, also of those of which only open transactions have offsets."""
        return (*self._groups, *sorted(self._pending.groups() - self._groups.keys()))

    def offsets_of(self, group_id: str) -> Offsets:
        """Committed offsets of the group."""
        return self._offsets.of(group_id)

    def offset(self, group_id: str, partition: TopicPartition) -> OffsetValue | None:
        """The committed offset of one partition."""
        return self._offsets.of(group_id).get(partition)

    def has_pending_offset(self, group_id: str, partition: TopicPartition) -> bool:
        """True while an open transaction may still change the committed offset."""
        return self._pending.holds(group_id, partition)

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True while the producer's transaction of that epoch has offsets here."""
        return self._pending.epoch_of(producer_id) == producer_epoch

    @property
    def offset_count(self) -> int:
        """The number of all committed offsets."""
        return self._offsets.count()

    # --- applying

    def apply(self, record: GroupRecord) -> None:
        """Apply one record."""
        match record:
            case GroupStored() | GroupChanged():
                self._check_storable(record)
                self._groups[record.group.group_id] = record.group
            case GroupRemoved():
                self._groups.pop(record.group_id, None)
                self._keep_place(record.group_id)
            case ConsumerFact():
                self._apply_consumer_fact(record)
            case OffsetCommitted():
                self._pending.void(record.group_id, record.partition)
                self._put_offset(record)
            case OffsetRemoved():
                self._pending.void(record.group_id, record.partition)
                self._offsets.remove(record.group_id, record.partition)
            case OffsetPending():
                self._pending.put(record)
            case TransactionEnded():
                for committed in self._pending.end(record.producer_id, is_commit=record.is_commit):
                    self._put_offset(committed)
            case _:
                assert_never(record)

    def _apply_consumer_fact(self, fact: ConsumerFact) -> None:
        group_id = fact.key.group
        if fact.key.kind == GROUP_KIND and fact.value is None:
            self._consumers.pop(group_id, None)
            found = self._groups.get(group_id)
            if found is not None and found.is_simple and not self._offsets.of(group_id):
                del self._groups[group_id]
            return
        if fact.value is None and group_id not in self._consumers:
            return
        self._consumers.setdefault(group_id, ConsumerGroup(group_id)).put(fact.key, fact.value)
        self._keep_place(group_id)

    def _keep_place(self, group_id: str) -> None:
        """A group with offsets, or of the newer protocol, is listed even if it has no classic
        members.
        """
        if group_id not in self._groups and (group_id in self._consumers or self._offsets.of(group_id)):
            self._groups[group_id] = Group(group_id=group_id)

    def _put_offset(self, record: OffsetCommitted) -> None:
        self._offsets.put(record.group_id, record.partition, record.value)
        if record.group_id not in self._groups:
            self._groups[record.group_id] = Group(group_id=record.group_id)

    def _check_storable(self, record: GroupStored | GroupChanged) -> None:
        group = record.group
        if isinstance(record, GroupStored) and group.state not in (GroupState.EMPTY, GroupState.STABLE):
            raise InvariantBroken(f"{group.group_id} is stored in state {group.state.value}\n" + "\n".join(self._story))

    def settle_replay(self) -> None:
        """After a replay of the log: remove groups without members, generation and offsets."""
        for group_id, group in tuple(self._groups.items()):
            if group.is_simple and not self._offsets.of(group_id) and group_id not in self._consumers:
                del self._groups[group_id]

    def durable_state(self) -> tuple[Mapping[str, Group], Mapping[str, Offsets]]:
        """The state that a replay of the log must restore, for groups that are EMPTY or STABLE."""
        groups = {
            group_id: group.durable()
            for group_id, group in self._groups.items()
            if group.state in (GroupState.EMPTY, GroupState.STABLE)
        }
        return groups, {group_id: dict(self._offsets.of(group_id)) for group_id in self._offsets.groups()}

    # --- checking

    def check_invariants(self) -> None:
        """Raise InvariantBroken with the last decisions if the state violates an invariant."""
        problems = [
            f"{group_id}: {violation}" for group_id, group in self._groups.items() for violation in group.violations()
        ]
        problems += [f"{name}: {wrong}" for name, found in self._consumers.items() for wrong in found.violations()]
        problems += [f"{group_id} is listed as {name}" for name, group_id in self._misfiled()]
        problems += [
            f"{group_id}: offsets without a group"
            for group_id in self._offsets.groups()
            if group_id not in self._groups
        ]
        if problems:
            raise InvariantBroken("; ".join(problems) + "\nstory:\n" + "\n".join(self._story))

    def _misfiled(self) -> Iterable[tuple[str, str]]:
        return [(name, group.group_id) for name, group in self._groups.items() if name != group.group_id]
