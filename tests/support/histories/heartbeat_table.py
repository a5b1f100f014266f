"""How the coordinator of a KIP-848 group responds to the heartbeats of one member in any order: a
client that unsubscribes and subscribes again has several requests in flight.

`answers` sends every sequence of three requests in every scene of a member to a broker, ours or
Apache Kafka's, and returns the responses by readable names, so that two brokers are compared by
comparing two dicts. Each request of a sequence carries the epoch that the member had when the
sequence began, as requests do that a client sends before it reads a response.

Two things are written so that they are the same at brokers that differ in them without an effect on
a client. Epochs count from the first epoch of a group. A response that names no assignment leaves
the member with the partitions of the last one that did, and the table has the number of these.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync

FIND_COORDINATOR, CREATE_TOPICS, CONSUMER_HEARTBEAT = 10, 19, 68
JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
TOPIC: Final = "heartbeat-table"
OTHER_TOPIC: Final = "heartbeat-table-other"
PARTITIONS: Final = 4
MINUTE: Final = i32Timedelta.parse(timedelta(minutes=1))
UNCHANGED: Final = i32Timedelta.parse(timedelta(milliseconds=-1))
UNKNOWN_EPOCH: Final = 99
REQUESTS_OF_A_SEQUENCE: Final = 3
CONNECTIONS: Final = 4


@dataclass
class Group:
    """A group as its clients see it: the number of partitions in the last assignment of each
    member id.
    """

    client: RawClient
    group_id: str = field(default_factory=lambda: f"g-{uuid.uuid4()}")
    partitions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """One member as the client sees it; `owned` are partitions by topic id, as a request lists
    them.
    """

    group: Group
    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    owned: tuple[Mapping[str, Any], ...] = ()

    def heartbeat(self, epoch: int, **fields: Any) -> Any:
        """Send one ConsumerGroupHeartbeat and return the response. The request is sent again while
        the coordinator loads the group's log.
        """
        values = {
            "group_id": self.group.group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self.instance_id,
            "rebalance_timeout": UNCHANGED,
            "topic_partitions": None,
            **fields,
        }
        call = self.group.client.call
        response = call(CONSUMER_HEARTBEAT, 1, values)
        while response.error_code in (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available):
            response = call(CONSUMER_HEARTBEAT, 1, values)
        if response.error_code is ErrorCode.none and response.assignment is not None:
            count = sum(len(topic.partitions) for topic in response.assignment.topic_partitions)
            self.group.partitions[self.member_id] = count
        return response

    def join(self) -> Any:
        """Send the first heartbeat."""
        return self.heartbeat(JOINING, topic_partitions=(), rebalance_timeout=MINUTE, subscribed_topic_names=(TOPIC,))

    def after(self, response: Any) -> Member:
        """The member with the epoch and the partitions of a response."""
        assert response.error_code is ErrorCode.none, response
        if response.assignment is None:
            return replace(self, epoch=response.member_epoch)
        owned = tuple(
            {"topic_id": topic.topic_id, "partitions": topic.partitions}
            for topic in response.assignment.topic_partitions
        )
        return replace(self, epoch=response.member_epoch, owned=owned)


# --- scenes: the group and the member when a sequence begins


def _unknown(member: Member) -> Member:
    return replace(member, epoch=UNKNOWN_EPOCH)


def _joined(member: Member) -> Member:
    return member.after(member.join())


def _stable(member: Member) -> Member:
    joined = _joined(member)
    return joined.after(joined.heartbeat(joined.epoch, topic_partitions=joined.owned))


def _of_second_epoch(member: Member) -> Member:
    """The member has changed its subscription."""
    joined = _stable(member)
    topics = (TOPIC, OTHER_TOPIC)
    changed = joined.heartbeat(joined.epoch, subscribed_topic_names=topics, topic_partitions=joined.owned)
    moved = joined.after(changed)
    return moved.after(moved.heartbeat(moved.epoch, topic_partitions=moved.owned))


def _revoking(member: Member) -> Member:
    """Another member has joined: this one has to revoke half of its partitions."""
    stable = _stable(member)
    replace(stable, member_id=str(uuid.uuid4()), instance_id=None).join()
    stable.heartbeat(stable.epoch)
    return stable


def _one_of_two(member: Member) -> Member:
    """Another member owns the other half."""
    revoking = _revoking(member)
    revoked = revoking.after(revoking.heartbeat(revoking.epoch, topic_partitions=()))
    return revoked.after(revoked.heartbeat(revoked.epoch, topic_partitions=()))


def _away(member: Member) -> Member:
    """A static member has left for a while."""
    stable = _stable(member)
    assert stable.heartbeat(LEAVING_FOR_A_WHILE).error_code is ErrorCode.none
    return stable


Scene: TypeAlias = Callable[[Member], Member]
Request: TypeAlias = Callable[[Member], Any]

SCENES: Final[Mapping[str, Scene]] = {
    "unknown": _unknown,
    "joined": _joined,
    "stable": _stable,
    "of a second epoch": _of_second_epoch,
    "revoking": _revoking,
    "one of two": _one_of_two,
}
STATIC_SCENES: Final[Mapping[str, Scene]] = {
    "stable": _stable,
    "away": _away,
    "of a second epoch": _of_second_epoch,
}

REQUESTS: Final[Mapping[str, Request]] = {
    "join": Member.join,
    "heartbeat": lambda member: member.heartbeat(member.epoch),
    "heartbeat with partitions": lambda member: member.heartbeat(member.epoch, topic_partitions=member.owned),
    "leave": lambda member: member.heartbeat(LEAVING),
    "leave for a while": lambda member: member.heartbeat(LEAVING_FOR_A_WHILE),
}
STATIC_REQUESTS: Final[Mapping[str, Request]] = {
    **REQUESTS,
    "join of a successor": lambda member: replace(member, member_id=f"{member.member_id}-2").join(),
}


# --- sequences


class _Sequence(NamedTuple):
    """Requests to send in a scene."""

    name: str
    scene: Scene
    requests: tuple[Request, ...]
    instance_id: str | None


def answers(port: int) -> dict[str, list[str]]:
    """Per sequence, named by its scene and its requests: the responses, each an error's name, or
    the member's epoch and the number of its partitions.
    """
    with RawClient(port) as client:
        first_epoch = _first_epoch(client)
    sequences = [
        *_sequences("dynamic", SCENES, REQUESTS, None),
        *_sequences("static", STATIC_SCENES, STATIC_REQUESTS, "instance"),
    ]

    def run(part: list[_Sequence]) -> dict[str, list[str]]:
        with RawClient(port) as client:
            return {sequence.name: _run(client, sequence, first_epoch) for sequence in part}

    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for part in pool.map(run, (sequences[first::CONNECTIONS] for first in range(CONNECTIONS))):
            found |= part
    return found


def _sequences(
    kind: str, scenes: Mapping[str, Scene], requests: Mapping[str, Request], instance_id: str | None
) -> Iterator[_Sequence]:
    for scene, make in scenes.items():
        for names in itertools.product(requests, repeat=REQUESTS_OF_A_SEQUENCE):
            sent = tuple(requests[name] for name in names)
            yield _Sequence(f"{kind}, {scene} | {', '.join(names)}", make, sent, instance_id)


def _run(client: RawClient, sequence: _Sequence, first_epoch: int) -> list[str]:
    member = sequence.scene(Member(Group(client), str(uuid.uuid4()), sequence.instance_id))
    return [_text(member.group, request(member), first_epoch) for request in sequence.requests]


def _text(group: Group, response: Any, first_epoch: int) -> str:
    if response.error_code is not ErrorCode.none:
        return str(response.error_code.name)
    if response.member_epoch < 0:
        return f"left with {response.member_epoch}"
    return f"epoch {response.member_epoch - first_epoch}, {group.partitions[response.member_id]} partitions"


def _first_epoch(client: RawClient) -> int:
    """Create the topics, and return the epoch of the first member of a new group."""
    topics = [
        {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in (TOPIC, OTHER_TOPIC)
    ]
    client.call(CREATE_TOPICS, 7, {"topics": topics, "validate_only": False, "timeout": MINUTE})
    epochs: list[int] = []

    def is_assigned() -> bool:
        # the first request of this kind makes the broker create the log of the groups
        client.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [TOPIC]})
        member = Member(Group(client), str(uuid.uuid4()))
        epochs.append(member.join().member_epoch)
        return member.group.partitions == {member.member_id: PARTITIONS}

    eventually_sync(is_assigned)
    return epochs[-1]
