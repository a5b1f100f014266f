"""The classic consumer's watches with a ZooKeeper that loses a request."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from clients.classic.classic_settings import ZooKeeperConsumerOptions
from clients.classic.core.classic_group import sound_members, threads_by_topic
from clients.classic.group_snapshots import GroupSnapshots
from clients.classic.zookeeper_consumer import ZooKeeperConsumer
from runtime.zookeeper.sessions import SessionState
from tests.support.eventually import eventually
from wire.znodes.consumer_znodes import ConsumerRegistration, encode_registration, ids_path
from wire.znodes.layout import BROKER_IDS, TOPICS

GROUP = "g"


class LossyZooKeeper:
    """A ZooKeeper without znodes; it loses the nth request for children, with its watch."""

    state = SessionState.CONNECTED

    def __init__(self, lost: int) -> None:
        self.watched: dict[str, int] = {}
        self._lost = lost
        self._asked = 0

    async def children(self, path: str, *, watch: Any = None) -> list[str]:
        self._asked += 1
        if self._asked == self._lost:
            raise ConnectionLoss
        if watch is not None:
            self.watched[path] = self.watched.get(path, 0) + 1
        return []

    async def ensure_path(self, path: str) -> None:
        """The path exists already."""


@pytest.mark.parametrize("group", ["", "a/b", "a b", ".", "..", "\u00e9"])
def test_a_group_that_cannot_be_a_node_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match="is not usable: accepted are letters"):
        ZooKeeperConsumerOptions(group_id=group)


@pytest.mark.parametrize("lost", range(4))
async def test_a_watch_whose_question_was_lost_is_set_by_the_next_attempt(lost: int) -> None:
    """HC-12, RB-04."""
    zookeeper = LossyZooKeeper(lost)
    options = ZooKeeperConsumerOptions(group_id=GROUP, rebalance_backoff_ms=0)
    consumer = ZooKeeperConsumer(zookeeper, options)  # type: ignore[arg-type]
    await consumer.rebalance()
    await consumer.rebalance()
    assert zookeeper.watched == {ids_path(GROUP): 1, BROKER_IDS: 1}


class GroupNodes:
    """The registrations of a group."""

    def __init__(self, **registrations: bytes) -> None:
        self.registrations = registrations

    async def children(self, path: str, *, watch: Any = None) -> list[str]:
        return ["t"] if path == TOPICS else sorted(self.registrations)

    async def get_or_none(self, path: str) -> tuple[bytes, Any]:
        return self.registrations[path.rpartition("/")[2]], SimpleNamespace(czxid=1)

    async def ensure_path(self, path: str) -> None:
        """The path exists already."""


def registration(pattern: str, expression: str) -> bytes:
    return encode_registration(ConsumerRegistration(subscription={expression: 1}, pattern=pattern, timestamp_ms=0))


@pytest.mark.parametrize(
    "odd", [b"no registration", registration("white_list", "("), registration("black_list", "a{99999999999999}")]
)
async def test_an_unreadable_member_does_not_end_the_others(odd: bytes) -> None:
    zookeeper: Any = GroupNodes(sound=registration("white_list", "t"), odd=odd)
    found, topics = await GroupSnapshots(zookeeper, GROUP, on_change=lambda: None).members()
    sound, _ = sound_members(found, topics, strategy="range")
    assert threads_by_topic(sound, topics) == {"t": ["sound-0"]}


async def test_a_filter_of_its_own_that_is_no_regular_expression_is_refused_at_once() -> None:
    consumer = ZooKeeperConsumer(LossyZooKeeper(-1), ZooKeeperConsumerOptions(group_id=GROUP))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="regular expression"):
        await consumer.create_streams({"(": 1}, pattern="white_list")


class Alone:
    """A ZooKeeper in which a member registers, reads its group and finds no broker."""

    state = SessionState.CONNECTED
    session_id = 1

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}

    def on_session(self, _: Any) -> None:
        """Its state never changes."""

    async def create(self, path: str, value: bytes, *, is_ephemeral: bool) -> str:
        assert is_ephemeral
        self.nodes[path] = value
        return path

    async def delete(self, path: str) -> None:
        del self.nodes[path]

    async def children(self, path: str, *, watch: Any = None) -> list[str]:
        return [node.rpartition("/")[2] for node in self.nodes if node.rpartition("/")[0] == path]

    async def get_or_none(self, path: str) -> tuple[bytes, Any]:
        return self.nodes[path], SimpleNamespace(czxid=1)

    async def exists(self, _: str) -> None:
        """The znode is deleted, and still reported."""

    async def ensure_path(self, path: str) -> None:
        """The path exists already."""

    async def stop(self) -> None:
        """The session ends."""


async def test_a_defect_in_a_part_of_the_consumer_ends_its_streams_and_its_membership(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zookeeper = Alone()
    options = ZooKeeperConsumerOptions(group_id=GROUP, auto_commit_interval_ms=1)
    consumer = ZooKeeperConsumer(zookeeper, options)  # type: ignore[arg-type]

    def broken() -> Any:
        raise KeyError("a defect")

    try:
        (stream,) = await consumer.create_streams({"t": 1})
        monkeypatch.setattr(consumer, "positions", broken)
        with pytest.raises(KeyError):
            await asyncio.wait_for(stream.chunk(), 30)
        await eventually(lambda: not zookeeper.nodes)
    finally:
        monkeypatch.undo()
        await consumer.close()


@pytest.mark.parametrize("is_auto_commit", [True, False])
async def test_a_member_registers_before_it_shares_out_partitions_and_commits_by_itself_only_if_asked_to(
    monkeypatch: pytest.MonkeyPatch, is_auto_commit: bool
) -> None:
    """HC-08: the order of a start, and no commit task when automatic commits are off."""
    zookeeper = Alone()
    options = ZooKeeperConsumerOptions(group_id=GROUP, is_auto_commit=is_auto_commit)
    consumer = ZooKeeperConsumer(zookeeper, options)  # type: ignore[arg-type]
    steps: list[str] = []

    def noting(part: object, name: str) -> None:
        step: Any = getattr(part, name)

        async def note(*arguments: Any) -> Any:
            steps.append(name)
            return await step(*arguments)

        monkeypatch.setattr(part, name, note)

    noting(consumer._nodes, "register")
    for name in ("rebalance", "_watch", "_commit_now_and_then"):
        noting(consumer, name)
    try:
        await consumer.create_streams({"t": 1})
        await eventually(lambda: "_watch" in steps)
        await asyncio.sleep(0)
        assert steps[:2] == ["register", "rebalance"]
        assert ("_commit_now_and_then" in steps) is is_auto_commit
    finally:
        await consumer.close()
