"""Plans for the replicas of partitions: reads and writes Kafka's JSON, and proposes a balanced
plan. Pure.

A proposal moves as few replicas as possible. Replicas on the chosen brokers stay, and missing ones
go to the brokers with the fewest. Then replicas move from the fullest to the emptiest brokers until
their counts differ by at most one. If all brokers have racks, the replicas of a partition are
spread over as many racks as possible. Leaders (the first replicas) are spread in the same way.

Callers: cli/administration/reassign.py, cli/administration/elect.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from wire.protocol.ids import TopicPartition

VERSION = 1
ANY_DIRECTORY = "any"
"""In Kafka's plans: the broker chooses the log directory."""


class Replica(NamedTuple):
    """A partition's replica on one broker."""

    place: TopicPartition
    node_id: int

    def __str__(self) -> str:
        return f"{self.place} on broker {self.node_id}"


Plan = Mapping[TopicPartition, tuple[int, ...]]
"""Replicas by partition, the preferred leader first."""


class UnusablePlan(ValueError):
    """The text is not a plan; the message gives the reason."""


def parse_plan(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """A plan in the JSON of kafka-reassign-partitions.sh. UnusablePlan names what is wrong."""
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for entry in _entries(text):
        place, replicas = _entry(entry)
        if place in plan:
            raise UnusablePlan(f"{place} is named twice")
        plan[place] = replicas
    if not plan:
        raise UnusablePlan("it names no partition")
    return plan


def parse_directories(text: str) -> dict[Replica, str]:
    """The log directories that the plan asks for, without those that may be any. UnusablePlan as
    `parse_plan`.
    """
    directories: dict[Replica, str] = {}
    for entry in _entries(text):
        place, replicas = _entry(entry)
        paths = entry.get("log_dirs", [ANY_DIRECTORY] * len(replicas))
        if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
            raise UnusablePlan(f"{place} needs log_dirs as a list of texts; given: {json.dumps(paths)}")
        if len(paths) != len(replicas):
            raise UnusablePlan(
                f"{place} has {len(replicas)} replicas and {len(paths)} log_dirs; accepted: one for each"
            )
        for node_id, path in zip(replicas, paths, strict=True):
            if path != ANY_DIRECTORY:
                directories[Replica(place, node_id)] = path.rstrip("/") or path
    return directories


def _entries(text: str) -> list[Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UnusablePlan(f"it is no JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise UnusablePlan(
            'accepted is {"version": 1, "partitions": [{"topic": ..., "partition": ..., "replicas": [...]}]}'
        )
    if document.get("version", VERSION) != VERSION:
        raise UnusablePlan(f"version {document['version']} is not known; accepted: {VERSION}")
    return list(document["partitions"])


def _entry(entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    try:
        place = TopicPartition(str(entry["topic"]), int(entry["partition"]))
        replicas = tuple(int(node) for node in entry["replicas"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnusablePlan(f"{json.dumps(entry)} needs topic, partition and replicas ({error!r})") from error
    if not replicas or len(set(replicas)) != len(replicas):
        raise UnusablePlan(f"{place} needs replicas, each on another broker; given: {list(replicas)}")
    return place, replicas


def parse_partitions(text: str) -> list[TopicPartition]:
    """The partitions of the JSON of kafka-leader-election.sh, or of a plan. UnusablePlan names what
    is wrong.
    """
    try:
        entries = json.loads(text)["partitions"]
        return [TopicPartition(str(entry["topic"]), int(entry["partition"])) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise UnusablePlan(f'accepted is {{"partitions": [{{"topic": ..., "partition": ...}}]}} ({error!r})') from error


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as Kafka's tool writes it."""
    entries = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIRECTORY] * len(replicas),
        }
        for place, replicas in sorted(plan.items())
    ]
    return {"version": VERSION, "partitions": entries}


def propose(
    current: Plan,
    brokers: Collection[int],
    *,
    racks: Mapping[int, str],
    replication_factor: int | None = None,
    others: Iterable[tuple[int, ...]] = (),
) -> dict[TopicPartition, tuple[int, ...]]:
    """Propose replicas for the partitions when only `brokers` hold them; `others` are replicas that
    stay and count as load. Raises UnusablePlan when there are too few brokers.
    """
    return _Proposal(current, sorted(brokers), racks, others).make(replication_factor)


class _Proposal:
    def __init__(
        self, current: Plan, brokers: list[int], racks: Mapping[int, str], others: Iterable[tuple[int, ...]]
    ) -> None:
        self._current = current
        self._brokers = brokers
        self._racks = racks if all(racks.get(node) for node in brokers) else {}
        self._load: Counter[int] = Counter(dict.fromkeys(brokers, 0))
        for replicas in others:
            self._load.update(node for node in replicas if node in self._load)
        self._plan: dict[TopicPartition, list[int]] = {}

    def make(self, replication_factor: int | None) -> dict[TopicPartition, tuple[int, ...]]:
        wanted = {place: replication_factor or len(replicas) for place, replicas in self._current.items()}
        for place, count in wanted.items():
            if count > len(self._brokers):
                raise UnusablePlan(f"{place} needs {count} brokers; given: {', '.join(map(str, self._brokers))}")
        for place in sorted(wanted):
            kept = [node for node in self._current[place] if node in self._load][: wanted[place]]
            self._plan[place] = kept
            self._load.update(kept)
        for place in sorted(wanted):
            while len(self._plan[place]) < wanted[place]:
                self._add(place)
        self._level()
        self._spread_leaders()
        return {place: tuple(replicas) for place, replicas in self._plan.items()}

    def _crowding(self, replicas: list[int]) -> int:
        """The number of pairs of replicas that share a rack."""
        counts = Counter(self._racks.get(node, str(node)) for node in replicas)
        return sum(count * (count - 1) // 2 for count in counts.values())

    def _add(self, place: TopicPartition) -> None:
        replicas = self._plan[place]
        candidates = [node for node in self._brokers if node not in replicas]
        chosen = min(candidates, key=lambda node: (self._crowding([*replicas, node]), self._load[node], node))
        replicas.append(chosen)
        self._load[chosen] += 1

    def _level(self) -> None:
        """Move replicas from the fullest to the emptiest broker, one at a time, while this evens
        them out.
        """
        while True:
            emptiest = min(self._brokers, key=lambda node: (self._load[node], node))
            move = self._move_to(emptiest)
            if move is None:
                return
            place, position = move
            replicas = self._plan[place]
            self._load[replicas[position]] -= 1
            self._load[emptiest] += 1
            replicas[position] = emptiest

    def _move_to(self, emptiest: int) -> tuple[TopicPartition, int] | None:
        for fullest in sorted(self._brokers, key=lambda node: (-self._load[node], node)):
            if self._load[fullest] - self._load[emptiest] < 2:
                return None
            # a replica that is new on the broker has no data to move; a follower is cheaper to move
            # than a leader
            moves = [
                (fullest in self._current[place], -position, place)
                for place, replicas in self._plan.items()
                for position, node in enumerate(replicas)
                if node == fullest and emptiest not in replicas and self._may_replace(replicas, position, emptiest)
            ]
            if moves:
                _, position, place = min(moves)
                return place, -position
        return None

    def _may_replace(self, replicas: list[int], position: int, node: int) -> bool:
        return self._crowding([*replicas[:position], node, *replicas[position + 1 :]]) <= self._crowding(replicas)

    def _spread_leaders(self) -> None:
        """Repeat until nothing changes: a later partition may free the broker that an earlier one
        needed.
        """
        leading: Counter[int] = Counter(replicas[0] for replicas in self._plan.values())
        has_changed = True
        while has_changed:
            has_changed = False
            for place in sorted(self._plan):
                replicas = self._plan[place]
                best = min(replicas, key=lambda node: (leading[node], replicas.index(node)))
                if leading[replicas[0]] - leading[best] >= 2:
                    leading[replicas[0]] -= 1
                    leading[best] += 1
                    replicas.remove(best)
                    replicas.insert(0, best)
                    has_changed = True
