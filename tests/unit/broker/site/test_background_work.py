"""A broker's work in the background continues after an unexpected failure, and no request waits for
ever because of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError
from msgspec.structs import replace

from broker.coordination.timer_queue import TimerQueue
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.core.wake_ups import Change, DelayedOperation
from broker.replication.offline_reports import OfflineReplicaReports
from broker.replication.purgatory import Purgatory
from broker.settings.config_store import ZooKeeperConfigStore
from broker.site.control_service import BrokerControlService
from broker.site.membership import Membership
from runtime.clock import SystemClock
from runtime.zookeeper.nodes import NodeStat
from runtime.zookeeper.sessions import SessionState
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.clients import ControllerUnavailable
from wire.znodes import layout as znodes
from wire.znodes.broker_znodes import BrokerRegistration
from wire.znodes.config_znodes import encode_topic_config


class Lost:
    """Replicas of which one has no log directory any more."""

    def __init__(self) -> None:
        self.offline = {("t", 0): None}


class MoodyController:
    """Fails in the ways that the test lists, then takes every report."""

    def __init__(self, *moods: BaseException) -> None:
        self._moods = iter(moods)
        self.taken: list[pb.ReportOfflineReplicasRequest] = []

    async def report_offline_replicas(self, request: pb.ReportOfflineReplicasRequest) -> pb.ReportOfflineReplicasReply:
        for mood in self._moods:
            raise mood
        self.taken.append(request)
        return pb.ReportOfflineReplicasReply()


@pytest.mark.parametrize("mood", [ControllerUnavailable("away"), ValueError("a defect"), asyncio.CancelledError()])
async def test_lost_replicas_are_reported_again_after_whatever_kept_the_report_from_the_controller(
    mood: BaseException,
) -> None:
    controller: Any = MoodyController(mood)
    lost: Any = Lost()
    reports = OfflineReplicaReports(lost, controller, node_id=1, broker_epoch=lambda: 7)
    reports.start()
    try:
        await eventually(lambda: controller.taken)
        assert [(named.topic, named.partition) for named in controller.taken[0].partitions] == [("t", 0)]
    finally:
        await reports.stop()


class Waiting:
    """A request that waits; its `changed`, its `complete`, or neither of them fails."""

    def __init__(self, endings: list[str], name: str, *, fails_in: str = "") -> None:
        self._endings = endings
        self._name = name
        self._fails_in = fails_in

    def changed(self, key: Hashable, grown_bytes: int) -> bool:
        if self._fails_in == "changed":
            raise ValueError("a defect")
        return True

    def complete(self) -> None:
        if self._fails_in == "complete":
            raise ValueError("a defect")
        self._endings.append(self._name)


@pytest.mark.parametrize("fails_in", ["changed", "complete"])
@pytest.mark.parametrize("way", ["notified", "out of time", "stopped"])
async def test_a_waiting_request_that_fails_does_not_keep_the_others_waiting(fails_in: str, way: str) -> None:
    endings: list[str] = []
    purgatory = Purgatory(SystemClock())
    timeout_ms = 1 if way == "out of time" else 3_600_000
    purgatory.wait(
        Waiting(endings, "broken", fails_in=fails_in), DelayedOperation.PRODUCE, keys=["p"], timeout_ms=timeout_ms
    )
    purgatory.wait(Waiting(endings, "neighbour"), DelayedOperation.PRODUCE, keys=["p"], timeout_ms=timeout_ms)
    purgatory.wait(Waiting(endings, "elsewhere"), DelayedOperation.PRODUCE, keys=["q"], timeout_ms=timeout_ms)
    if way == "notified":
        purgatory.changed("p", Change.HIGH_WATERMARK)
        purgatory.changed("q", Change.HIGH_WATERMARK)
    elif way == "stopped":
        purgatory.stop(DelayedOperation.PRODUCE)
    await eventually(lambda: {*endings} >= {"neighbour", "elsewhere"})
    purgatory.close()


async def test_a_timer_that_fails_does_not_keep_the_others_from_firing(clock: ManualClock) -> None:
    fired: list[str] = []

    def fire(key: str) -> None:
        if key == "broken":
            raise ValueError("a defect")
        fired.append(key)

    timers = TimerQueue(clock, fire)
    for key in ("broken", "sound"):
        timers.start(key, 10)
    clock.advance(10)
    timers.run_due()
    assert fired == ["sound"]


class Registrations:
    """The part of a ZooKeeper session that a broker's registration and configs use; `get_or_none`
    fails as often as the test says.
    """

    def __init__(self) -> None:
        self.session_id = 1
        self.owners: dict[str, int] = {}
        self.data: dict[str, bytes] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.listeners: list[Callable[[SessionState], None]] = []
        self.watches: dict[str, Any] = {}

    async def ensure_path(self, path: str) -> None:
        """The path exists already."""

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self.listeners.append(listener)

    async def create(self, path: str, value: bytes, *, is_ephemeral: bool) -> str:
        assert is_ephemeral
        if path in self.owners:
            raise NodeExistsError
        self.owners[path], self.data[path] = self.session_id, value
        return path

    async def exists(self, path: str, *, watch: Any = None) -> NodeStat | None:
        owner = self.owners.get(path)
        found = (
            None if owner is None else NodeStat(version=0, czxid=owner, mzxid=0, created_at_ms=0, ephemeral_owner=owner)
        )
        await self.gate.wait()
        return found

    async def get_or_none(self, path: str, *, watch: Any) -> tuple[bytes, NodeStat] | None:
        self.watches[path] = watch
        if path not in self.data:
            return None
        return self.data[path], NodeStat(version=0, czxid=0, mzxid=0, created_at_ms=0, ephemeral_owner=0)

    async def get(self, path: str) -> tuple[bytes, NodeStat]:
        if path not in self.data:
            raise NoNodeError
        return self.data[path], NodeStat(version=0, czxid=0, mzxid=0, created_at_ms=0, ephemeral_owner=0)

    def expire(self) -> None:
        """Ends the session with its nodes, and begins another one."""
        self.owners.clear()
        self.session_id += 1
        for state in (SessionState.LOST, SessionState.CONNECTED):
            for listener in self.listeners:
                listener(state)


class NoReplicas:
    """The replicas of a broker without partitions."""

    def __init__(self) -> None:
        self.assigned = self.standbys = self

    async def apply(self, *_: object) -> list[object]:
        return []


class Settings:
    """The settings that a broker's registration reads."""

    node_id = 1
    zookeeper_session_timeout_ms = 4_000


PATH = znodes.broker_path(1)
REGISTRATION = BrokerRegistration(node_id=1, endpoints=(), grpc_address="127.0.0.1:1", timestamp_ms=0)


@pytest.fixture
async def registrations() -> Registrations:
    return Registrations()


@pytest.fixture
async def membership(registrations: Registrations) -> AsyncIterator[Membership]:
    zookeeper: Any = registrations
    settings: Any = Settings()
    membership = Membership(settings, zookeeper, SystemClock())
    await membership.register(REGISTRATION)
    yield membership
    registrations.data.clear()
    registrations.owners.clear()
    registrations.gate.set()
    await membership.unregister()


async def test_a_session_that_ends_while_the_broker_registers_in_it_is_followed_by_another_registration(
    registrations: Registrations, membership: Membership
) -> None:
    registrations.gate.clear()
    registrations.expire()
    await eventually(lambda: registrations.owners.get(PATH) == 2)
    registrations.gate.set()  # the answer that this session knew is on its way
    registrations.expire()
    await eventually(lambda: registrations.owners.get(PATH) == 3 and membership.broker_epoch == 3)


async def test_a_broker_registers_again_although_a_listener_failed(
    registrations: Registrations, membership: Membership
) -> None:
    moods = iter([True])

    def on_registered(_: int) -> None:
        if next(moods, False):
            del registrations.owners[PATH]
            raise ValueError("a defect")

    membership.on_registered = on_registered
    registrations.expire()
    await eventually(lambda: PATH in registrations.owners)


async def test_a_controller_node_that_cannot_be_understood_names_no_controller(
    registrations: Registrations, membership: Membership
) -> None:
    registrations.data[znodes.CONTROLLER] = b"not a controller"
    assert await membership.controller_address() == ""


async def test_broker_configs_are_read_again_after_a_failure_to_take_them(registrations: Registrations) -> None:
    zookeeper: Any = registrations
    store, taken = ZooKeeperConfigStore(zookeeper, 1), list[Mapping[str, str]]()
    moods = iter([False, True])

    def take(for_all: Mapping[str, str], _: Mapping[str, str]) -> None:
        if next(moods, False):
            raise ValueError("a defect")
        taken.append(for_all)

    await store.follow(take)
    path = znodes.broker_config_path("")
    registrations.data[path] = encode_topic_config({"log.retention.ms": "1"})
    registrations.watches[path](None)
    await eventually(lambda: taken[-1] == {"log.retention.ms": "1"})
    await store.stop()


class SlowConfigs:
    """Two nodes of broker configs; the answer about one broker's own is held back once the test
    says so.
    """

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.watches: dict[str, Any] = {}
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ensure_path(self, path: str) -> None:
        """The path exists already."""

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """The session stays."""

    async def get_or_none(self, path: str, *, watch: Any = None) -> tuple[bytes, NodeStat] | None:
        if watch is not None:
            self.watches[path] = watch
        found = self.data.get(path)
        if path == znodes.broker_config_path("1") and not self.may_answer.is_set():
            self.asked.set()
            await self.may_answer.wait()
        stat = NodeStat(version=0, czxid=0, mzxid=0, created_at_ms=0, ephemeral_owner=0)
        return None if found is None else (found, stat)

    async def create(self, path: str, value: bytes, *, make_path: bool) -> None:
        assert path not in self.data
        self.data[path] = value
        self.may_answer.set()  # from here on both readings continue, the one that began before the change last


async def test_a_reading_that_began_before_a_change_does_not_take_the_change_back() -> None:
    configs = SlowConfigs()
    zookeeper: Any = configs
    store, taken = ZooKeeperConfigStore(zookeeper, 1), list[dict[str, str]]()
    await store.follow(lambda for_all, _: taken.append(dict(for_all)))
    configs.may_answer.clear()
    configs.watches[znodes.broker_config_path("")](None)
    await configs.asked.wait()
    await store.change("", lambda stored: {**stored, "log.retention.ms": "5"})
    assert taken[-1] == {"log.retention.ms": "5"}
    for _ in range(10):
        await asyncio.sleep(0)  # lets every other task finish
    assert taken[-1] == {"log.retention.ms": "5"}
    await store.stop()


async def test_an_image_that_fails_one_listener_reaches_the_others_and_the_controller_learns_of_it() -> None:
    cluster = Cluster(ClusterImage(site="a", node_id=1))
    parts: Any = (1, cluster, NoReplicas())
    service = BrokerControlService(
        *parts, broker_epoch=lambda: 7, describe_groups=NotImplemented, handover=NotImplemented
    )
    received: list[ClusterImage] = []

    async def broken(_: ClusterImage, __: ClusterImage) -> None:
        raise ValueError("a defect")

    async def sound(_: ClusterImage, after: ClusterImage) -> None:
        received.append(after)

    service.on_image(broken)
    service.on_image(sound)
    with pytest.raises(ValueError, match="a defect"):
        await service.Apply(ControlBatch(is_full=True, broker_epoch=7), NotImplemented)
    assert received == [cluster.image]


async def test_an_image_is_in_force_although_a_waiter_fails() -> None:
    cluster = Cluster(ClusterImage(site="a", node_id=1))
    waits = [
        asyncio.ensure_future(
            cluster.wait_for(lambda image: bool(image.full_version > 0 and image.topics["t"]), timeout_ms=60_000)
        ),
        asyncio.ensure_future(cluster.wait_for(lambda image: image.full_version > 0, timeout_ms=60_000)),
    ]
    await asyncio.sleep(0)
    cluster.replace(replace(cluster.image, full_version=1))
    odd, sound = await asyncio.gather(*waits, return_exceptions=True)
    assert isinstance(odd, KeyError)
    assert sound is True
