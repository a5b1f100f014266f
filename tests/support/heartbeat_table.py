"""How a coordinator of KIP-848 groups answers heartbeats, leaves and joins of one member that arrive
in any order: a client that unsubscribes and subscribes again has requests in flight meanwhile.

`answers` runs every sequence of three requests upon every state of the member against a broker,
ours or Apache Kafka's, so that two brokers are compared by comparing two dicts. A request names the
epoch that the member had when the sequence began, as a request does that was sent before the answer
to the one before it came.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync

CREATE_TOPICS, CONSUMER_HEARTBEAT = 19, 68
JOINING, LEAVING, PAUSING = 0, -1, -2
TOPIC: Final = "heartbeat-table"
OTHER_TOPIC: Final = "heartbeat-table-other"
PARTITIONS: Final = 4
MINUTE: Final = i32Timedelta.parse(timedelta(minutes=1))
AS_BEFORE: Final = i32Timedelta.parse(timedelta(milliseconds=-1))
LENGTH: Final = 3
WORKERS: Final = 4


@dataclass(frozen=True)
class Member:
    """One member as it knows itself: `owned` are partitions by topic id."""

    client: RawClient
    group: str
    name: str
    instance: str | None = None
    epoch: int = 0
    owned: Any = ()

    def ask(self, epoch: int, *, owned: Any = None, **said: Any) -> Any:
        """One ConsumerGroupHeartbeat."""
        values = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": epoch,
            "instance_id": self.instance,
            "rebalance_timeout": AS_BEFORE,
            "topic_partitions": owned,
            **said,
        }
        answer = self.client.call(CONSUMER_HEARTBEAT, 1, values)
        # the coordinator may load its partition of the log just now
        while answer.error_code in (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available):
            answer = self.client.call(CONSUMER_HEARTBEAT, 1, values)
        return answer

    def join(self, topics: tuple[str, ...] = (TOPIC,)) -> Any:
        """The first heartbeat."""
        return self.ask(JOINING, owned=(), rebalance_timeout=MINUTE, subscribed_topic_names=topics)

    def after(self, answer: Any) -> Member:
        """The member once it has taken an answer."""
        assert answer.error_code is ErrorCode.none, answer
        owned = self.owned if answer.assignment is None else answer.assignment.topic_partitions
        return replace(self, epoch=answer.member_epoch, owned=_as_request(owned))


def _as_request(owned: Any) -> tuple[dict[str, Any], ...]:
    given = (
        one if isinstance(one, Mapping) else {"topic_id": one.topic_id, "partitions": one.partitions} for one in owned
    )
    return tuple(dict(one) for one in given)


def _unknown(member: Member) -> Member:
    return replace(member, epoch=1)


def _joined(member: Member) -> Member:
    return member.after(member.join())


def _settled(member: Member) -> Member:
    joined = _joined(member)
    return joined.after(joined.ask(joined.epoch, owned=joined.owned))


def _of_second_epoch(member: Member) -> Member:
    """It has changed its subscription."""
    joined = _settled(member)
    news = joined.ask(joined.epoch, subscribed_topic_names=(TOPIC, OTHER_TOPIC), owned=joined.owned)
    moved = joined.after(news)
    return moved.after(moved.ask(moved.epoch, owned=moved.owned))


def _giving_up(member: Member) -> Member:
    """Another member has come: this one is to give up half of its partitions."""
    settled = _settled(member)
    replace(settled, name=str(uuid.uuid4()), instance=None).join()
    settled.ask(settled.epoch)
    return settled


def _of_two(member: Member) -> Member:
    """Another member has the other half."""
    half = _giving_up(member)
    given = half.ask(half.epoch, owned=())
    assert given.error_code is ErrorCode.none, given
    return half.after(half.ask(half.epoch if given.member_epoch == half.epoch else given.member_epoch, owned=()))


def _paused(member: Member) -> Member:
    settled = _settled(member)
    assert settled.ask(PAUSING).error_code is ErrorCode.none
    return settled


SCENES: Final[Mapping[str, Callable[[Member], Member]]] = {
    "unknown": _unknown,
    "joined": _joined,
    "settled": _settled,
    "of a second epoch": _of_second_epoch,
    "giving up": _giving_up,
    "one of two": _of_two,
}
STATIC_SCENES: Final = {"settled": _settled, "paused": _paused, "of a second epoch": _of_second_epoch}

REQUESTS: Final[Mapping[str, Callable[[Member], Any]]] = {
    "join": lambda member: member.join(),
    "beat": lambda member: member.ask(member.epoch),
    "beat and own": lambda member: member.ask(member.epoch, owned=member.owned),
    "leave": lambda member: member.ask(LEAVING),
    "pause": lambda member: member.ask(PAUSING),
}
SUCCESSOR: Final = {"join of a successor": lambda member: replace(member, name=f"{member.name}-2").join()}


def answers(port: int) -> dict[str, str]:
    """The scene with the requests of each sequence, and what each of them was answered."""
    with RawClient(port, timeout_s=60) as client:
        _make_topics(client)
    cases = [
        (kind, scene, make, names)
        for kind, scenes, requests in (
            ("dynamic", SCENES, REQUESTS),
            ("static", STATIC_SCENES, {**REQUESTS, **SUCCESSOR}),
        )
        for scene, make in scenes.items()
        for names in itertools.product(requests, repeat=LENGTH)
    ]

    def asked(part: list[tuple[str, str, Callable[[Member], Member], tuple[str, ...]]]) -> dict[str, str]:
        with RawClient(port, timeout_s=60) as client:
            return {
                f"{kind}, {scene} | {', '.join(names)}": _sequence(client, make, names, is_static=kind == "static")
                for kind, scene, make, names in part
            }

    found: dict[str, str] = {}
    with ThreadPoolExecutor(WORKERS) as workers:
        for part in workers.map(asked, (cases[first::WORKERS] for first in range(WORKERS))):
            found |= part
    return found


def _sequence(client: RawClient, make: Callable[[Member], Member], names: tuple[str, ...], *, is_static: bool) -> str:
    fresh = Member(client, f"g-{uuid.uuid4()}", str(uuid.uuid4()), "i" if is_static else None)
    member = make(fresh)
    requests = {**REQUESTS, **SUCCESSOR}
    return ", ".join(_text(requests[name](member)) for name in names)


def _text(answer: Any) -> str:
    if answer.error_code is not ErrorCode.none:
        return str(answer.error_code.name)
    if answer.assignment is None:
        return f"epoch {answer.member_epoch}"
    count = sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)
    return f"epoch {answer.member_epoch} with {count}"


def _make_topics(client: RawClient) -> None:
    topics = [
        {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
        for name in (TOPIC, OTHER_TOPIC)
    ]
    client.call(CREATE_TOPICS, 7, {"topics": topics, "validate_only": False, "timeout": MINUTE})

    def is_served() -> bool:
        member = Member(client, f"g-{uuid.uuid4()}", str(uuid.uuid4()))
        answer = member.join()
        given = answer.assignment.topic_partitions if answer.error_code is ErrorCode.none else ()
        return sum(len(topic.partitions) for topic in given) == PARTITIONS

    eventually_sync(is_served)
