"""The clients that may commit and read a group's offsets: every state of a group x every way to
name a member x version, asked of a broker.

`answers` runs the table against any broker (ours or Apache Kafka's) and returns the error of each
request by a readable name, so that two brokers are compared by comparing two dicts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from wire.batches.consumer_protocol import Subscription, encode_subscription

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP = 8, 9, 10, 11, 13, 14
CREATE_TOPICS, INIT_PRODUCER_ID, ADD_OFFSETS, TXN_OFFSET_COMMIT, CONSUMER_HEARTBEAT = 19, 22, 25, 28, 68
METADATA: Final = 3
TOPIC: Final = "commit-table"
SESSION: Final = i32Timedelta.parse(timedelta(seconds=45))
MINUTE: Final = i32Timedelta.parse(timedelta(minutes=1))
TEN_MINUTES: Final = i32Timedelta.parse(timedelta(minutes=10))
STRANGER: Final = "stranger"


class Scene(NamedTuple):
    """A group in some state; its member, if any, and that one's generation or epoch."""

    group: str
    member: str
    generation: int
    instance: str | None = None


def answers(port: int) -> dict[str, str]:
    """The name of each request and of the error that answers it."""
    with RawClient(port, timeout_s=60) as client:
        _make_topic(client)
        requests = _requests(client)
        found: dict[str, str] = {}
        for name, make in SCENES.items():
            for request, ask in requests.items():
                for said, scene in _identities(make(client)):
                    # a commit that is taken makes the group
                    asked = scene._replace(group=_new_group()) if make is _no_group else scene
                    found[f"{name} | {request} | {said}"] = ask(asked).name
        return found


def _identities(scene: Scene) -> Iterator[tuple[str, Scene]]:
    """The scene's group with the data that a client may send about itself."""
    members = {"own member": scene.member, "stranger": STRANGER, "no member": ""}
    generations = {"generation + 1": scene.generation + 1, "generation -1": -1}
    generations["own generation" if scene.generation >= 0 else "generation 0"] = max(scene.generation, 0)
    if scene.generation > 0:
        generations["generation - 1"] = scene.generation - 1
    instances = {"": None, ", instance x": "x", **({", own instance": scene.instance} if scene.instance else {})}
    for member, member_id in members.items():
        if member == "own member" and not member_id:
            continue
        for generation, number in generations.items():
            for instance, instance_id in instances.items():
                yield f"{member}, {generation}{instance}", Scene(scene.group, member_id, number, instance_id)


# --- groups


def _make_topic(client: RawClient) -> None:
    topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    client.call(CREATE_TOPICS, 7, {"topics": [topic], "validate_only": False, "timeout": MINUTE})

    def is_ready() -> bool:
        found = client.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["ready"]})
        return found.coordinators[0].error_code is ErrorCode.none and _fetched(client, "ready") is ErrorCode.none

    eventually_sync(is_ready)


def _fetched(client: RawClient, group: str) -> ErrorCode:
    return _fetch(client, Scene(group, "", -1), version=8)


def _new_group() -> str:
    return f"g-{uuid.uuid4()}"


def _no_group(_client: RawClient) -> Scene:
    return Scene(_new_group(), "", -1)


def _simple(client: RawClient) -> Scene:
    scene = Scene(_new_group(), "", -1)
    assert _commit(client, scene, version=8) is ErrorCode.none
    return scene


def _joined(client: RawClient, group: str, instance: str | None = None) -> Scene:
    metadata = encode_subscription(Subscription(1, (TOPIC,), {}))
    wanted = {
        "group_id": group,
        "session_timeout": SESSION,
        "rebalance_timeout": MINUTE,
        "member_id": "",
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
        "reason": None,
    }
    answer = client.call(JOIN_GROUP, 8, wanted)
    if answer.error_code is ErrorCode.member_id_required:
        answer = client.call(JOIN_GROUP, 8, {**wanted, "member_id": answer.member_id})
    assert answer.error_code is ErrorCode.none, answer
    return Scene(group, answer.member_id, answer.generation_id, instance)


def _completing(client: RawClient) -> Scene:
    return _joined(client, _new_group())


def _synced(client: RawClient, scene: Scene) -> Scene:
    wanted = {
        "group_id": scene.group,
        "generation_id": scene.generation,
        "member_id": scene.member,
        "group_instance_id": scene.instance,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    }
    assert client.call(SYNC_GROUP, 5, wanted).error_code is ErrorCode.none
    return scene


def _stable(client: RawClient) -> Scene:
    return _synced(client, _joined(client, _new_group()))


def _static(client: RawClient) -> Scene:
    return _synced(client, _joined(client, _new_group(), "i"))


def _left(client: RawClient) -> Scene:
    scene = _stable(client)
    member = {"member_id": scene.member, "group_instance_id": None, "reason": None}
    assert client.call(LEAVE_GROUP, 5, {"group_id": scene.group, "members": [member]}).error_code is ErrorCode.none
    return scene


def _beat(client: RawClient, scene: Scene, **more: Any) -> Any:
    wanted = {
        "group_id": scene.group,
        "member_id": scene.member,
        "member_epoch": scene.generation,
        "instance_id": scene.instance,
        "rack_id": None,
        "rebalance_timeout": MINUTE,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **more,
    }
    answer = client.call(CONSUMER_HEARTBEAT, 1, wanted)
    assert answer.error_code is ErrorCode.none, answer
    return answer


def _consumer(client: RawClient, instance: str | None = None) -> Scene:
    member = str(uuid.uuid4())
    scene = Scene(_new_group(), member, 0, instance)
    answer = _beat(client, scene, subscribed_topic_names=[TOPIC], topic_partitions=[])
    return scene._replace(generation=answer.member_epoch)


def _consumer_with_newer_topics(client: RawClient) -> Scene:
    """The member has its partitions since its first epoch, and is two epochs further now."""
    scene = _consumer(client)
    for names in ([TOPIC, "not-there"], [TOPIC]):
        answer = _beat(client, scene, subscribed_topic_names=names)
        scene = scene._replace(generation=answer.member_epoch)
    return scene


def _consumer_left(client: RawClient) -> Scene:
    scene = _consumer(client)
    _beat(client, scene._replace(generation=-1))
    return scene


SCENES: Final[dict[str, Callable[[RawClient], Scene]]] = {
    "no group": _no_group,
    "only offsets": _simple,
    "classic, empty": _left,
    "classic, completing": _completing,
    "classic, stable": _stable,
    "classic, static": _static,
    "consumer": _consumer,
    "consumer, static": lambda client: _consumer(client, "i"),
    "consumer, later epoch": _consumer_with_newer_topics,
    "consumer, empty": _consumer_left,
}


# --- requests


def _commit(client: RawClient, scene: Scene, *, version: int) -> ErrorCode:
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    wanted = {
        "group_id": scene.group,
        "generation_id_or_member_epoch": scene.generation,
        "member_id": scene.member,
        "group_instance_id": scene.instance,
        "topics": [{"name": TOPIC, "partitions": partitions}],
    }
    code: ErrorCode = client.call(OFFSET_COMMIT, version, wanted).topics[0].partitions[0].error_code
    return code


def _fetch(client: RawClient, scene: Scene, *, version: int, is_null: bool = False) -> ErrorCode:
    group: dict[str, Any] = {
        "group_id": scene.group,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
    }
    if version > 8:
        group |= {"member_id": None if is_null else scene.member, "member_epoch": scene.generation}
    answer = client.call(OFFSET_FETCH, version, {"groups": [group], "require_stable": False})
    code: ErrorCode = answer.groups[0].error_code
    return code


class _Transaction:
    """An open transaction, which takes in offsets of any number of groups."""

    def __init__(self, client: RawClient, *, version: int) -> None:
        self._client, self._version = client, version
        self._id = f"x-{uuid.uuid4()}"
        self._producer = self._begin()

    def _begin(self) -> Any:
        wanted = {
            "transactional_id": self._id,
            "transaction_timeout": TEN_MINUTES,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        found: list[Any] = []

        def is_made() -> bool:
            self._client.call(FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [self._id]})
            found.append(self._client.call(INIT_PRODUCER_ID, 4, wanted))
            return found[-1].error_code is ErrorCode.none

        eventually_sync(is_made)
        return found[-1]

    def commit(self, scene: Scene) -> ErrorCode:
        """TxnOffsetCommit."""
        named = {
            "transactional_id": self._id,
            "group_id": scene.group,
            "producer_id": self._producer.producer_id,
            "producer_epoch": self._producer.producer_epoch,
        }
        if self._version < 5:
            eventually_sync(lambda: self._client.call(ADD_OFFSETS, 3, named).error_code is ErrorCode.none)
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        wanted = {
            **named,
            "generation_id": scene.generation,
            "member_id": scene.member,
            "group_instance_id": scene.instance,
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }
        answer = self._client.call(TXN_OFFSET_COMMIT, self._version, wanted)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code


def _requests(client: RawClient) -> dict[str, Callable[[Scene], ErrorCode]]:
    return {
        "OffsetCommit 8": lambda scene: _commit(client, scene, version=8),
        "OffsetCommit 9": lambda scene: _commit(client, scene, version=9),
        "OffsetFetch 9": lambda scene: _fetch(client, scene, version=9),
        "OffsetFetch 9, null member": lambda scene: _fetch(client, scene, version=9, is_null=True),
        "TxnOffsetCommit 4": _Transaction(client, version=4).commit,
        "TxnOffsetCommit 5": _Transaction(client, version=5).commit,
    }
