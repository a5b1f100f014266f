"""The partitions that a scripted member of a group holds: reads of them, commits, and the history
of both. The reads are invented (the offsets after the committed one), because the coordinator keeps
only offsets.

Caller: tests/support/clients/scripted_members.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from tests.support.histories.coordinator_calls import ConnectionLost, CoordinatorCalls, Sent
from tests.support.histories.group_history import Commit, Given, Ownership

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
VERSIONS: Final = {OFFSET_COMMIT: 9, OFFSET_FETCH: 8}
RECORDS_A_READ = 3
COMMIT_ANSWER_S = 20.0


@dataclass(slots=True)
class History:
    """The observations of all members of a group."""

    ownerships: list[Ownership] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SentCommit:
    """A commit on its way."""

    sent: Sent
    offsets: Mapping[int, int]
    began_s: float


class Holdings:
    """The partitions of one member, its positions in them, and its commits."""

    def __init__(self, calls: CoordinatorCalls, history: History, *, name: str, group: str, topic: str) -> None:
        self._calls, self._history, self._name, self._group, self._topic = calls, history, name, group, topic
        self.owned: dict[int, Ownership] = {}
        self._positions: dict[int, int] = {}

    def begin(self, partitions: Iterable[int]) -> None:
        """Take these over, from their committed offsets."""
        taken = sorted(partitions)
        if not taken:
            return
        began_s = time.monotonic()
        positions = self.committed(taken)
        for partition in taken:
            one = Ownership(member=self._name, partition=partition, began_s=began_s)
            self.owned[partition] = one
            self._positions[partition] = max(positions[partition], 0)
            self._history.ownerships.append(one)

    def give_up(self, partitions: Iterable[int], *, is_lost: bool = False) -> None:
        """These have ceased to be the member's; `is_lost` when the coordinator may have given them
        away before.
        """
        for partition in tuple(partitions):
            one = self.owned.pop(partition)
            one.ended_s, one.is_lost = time.monotonic(), is_lost

    def read(self) -> None:
        """The next few offsets of each partition."""
        for partition, one in self.owned.items():
            position = self._positions[partition]
            one.offsets.extend(range(position, position + RECORDS_A_READ))
            self._positions[partition] = position + RECORDS_A_READ

    def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """The coordinator's offsets of these partitions, -1 for none."""
        topics = [{"name": self._topic, "partition_indexes": partitions}]
        values = {"groups": [{"group_id": self._group, "topics": topics}], "require_stable": True}
        answer = self._calls.ask(
            OFFSET_FETCH, VERSIONS[OFFSET_FETCH], values, lambda found: ErrorCode(found.groups[0].error_code)
        )
        (topic,) = answer.groups[0].topics
        assert not any(at.error_code for at in topic.partitions), topic
        return {at.partition_index: at.committed_offset for at in topic.partitions}

    def send_commit(self, member_id: str, generation: int) -> SentCommit | None:
        """Send a commit of the positions. Returns None without anything to commit. Raises
        ConnectionLost.
        """
        offsets = {partition: one.offsets[-1] + 1 for partition, one in self.owned.items() if one.offsets}
        if not offsets:
            return None
        partitions = [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            for partition, offset in offsets.items()
        ]
        values = {
            "group_id": self._group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "topics": [{"name": self._topic, "partitions": partitions}],
        }
        began_s = time.monotonic()
        sent = self._calls.send(OFFSET_COMMIT, VERSIONS[OFFSET_COMMIT], values, timeout_s=COMMIT_ANSWER_S)
        return SentCommit(sent=sent, offsets=offsets, began_s=began_s)

    def settle_commit(self, commit: SentCommit) -> ErrorCode:
        """Wait for the answer; an acknowledged one goes into the history. `network_exception` when
        its outcome is not known.
        """
        try:
            answer = commit.sent.answer()
        except ConnectionLost:
            return ErrorCode.network_exception
        errors = {at.partition_index: ErrorCode(at.error_code) for at in answer.topics[0].partitions}
        ended_s = time.monotonic()
        self._history.commits += [
            Commit(
                member=self._name,
                partition=partition,
                offset=offset,
                began_s=commit.began_s,
                ended_s=ended_s,
            )
            for partition, offset in commit.offsets.items()
            if errors[partition] is ErrorCode.none
        ]
        return next((error for error in errors.values() if error), ErrorCode.none)
