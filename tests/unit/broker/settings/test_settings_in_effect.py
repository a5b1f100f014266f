"""Settings of a broker under their names in its file, and their effect on its parts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.log.cleaning.cleaner import CleaningPlan, CleaningResult, clean
from broker.log.directories import checkpoints
from broker.log.directories.checkpoints import read_offsets
from broker.log.directories.log_directory import LogDirectory
from broker.log.directories.log_store import LogStore
from broker.main import Broker
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.network.connection_limits import HostAddresses
from broker.replication.core.retention_holds import StandbyEnds
from broker.replication.following.replica_fetcher import ReplicaFetcher
from broker.replication.housekeeping import Housekeeping
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.core.topic_configs import LogConfig
from broker.settings.loading import load_broker_settings
from runtime.addresses import HostPort
from runtime.clock import SystemClock
from runtime.disk import RealDisk
from runtime.grpc_server import GrpcServer
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, data_records, fill
from tests.support.eventually import eventually
from tests.support.lone_brokers.lone_broker import LoneMembership
from tests.support.memory.quiet_replicas import QuietReplicas
from tests.unit.broker.replication.following.test_replica_fetcher import LEADER, follower, no_news
from wire.client.connection import ConnectionOptions
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, LinkRecord, PartitionState, TopicInfo
from wire.protocol.ids import TopicPartition
from wire.rules.links import link_epoch

GIVEN = {"node.id": "1", "listeners": "CLIENT://127.0.0.1:0", "zookeeper.connect": "none:1"}
ID = bytes(range(16))
KEY = TopicPartition("t", 0)


async def broker_with(path: Path, **properties: str) -> Broker:
    """A broker that is not started; properties with underscores for dots."""
    given = {key.replace("_", "."): value for key, value in properties.items()}
    settings = load_broker_settings({**GIVEN, "log.dirs": str(path / "log"), **given})
    return Broker(settings, GrpcServer("127.0.0.1", 0), LoneMembership(path / "configs"))


def opened(path: Path) -> LogStore:
    logs = LogStore([str(path / "log")], RealDisk(), now_ms=lambda: NOW_MS)
    logs.open(node_id=1, cluster_id="c")
    logs.load(lambda _: LogConfig())
    return logs


@asynccontextmanager
async def keeping_house(
    path: Path, logs: LogStore, *, links: Sequence[LinkRecord] = (), **properties: str
) -> AsyncIterator[SimpleNamespace]:
    """Housekeeping over these logs, at a broker that leads all of them; the value's `current` are
    the settings in force, `standby_ends` what standbys have.
    """
    given = {key.replace("_", "."): value for key, value in properties.items()}
    configs: Any = SimpleNamespace(current=load_broker_settings({**GIVEN, "log.dirs": str(path / "log"), **given}))
    led = [PartitionState(partition=0, leader=1)]
    image = apply_batch(
        ClusterImage(site="a", node_id=1, confirmed_epochs={link.name: link_epoch(link) for link in links}),
        ControlBatch(
            is_full=True,
            brokers=[BrokerInfo(node_id=1)],
            topics=[TopicInfo(name="t", topic_id=ID, partitions=led)],
            links=links,
        ),
    )
    configs.standby_ends = StandbyEnds()
    replicas: Any = SimpleNamespace(
        standbys=SimpleNamespace(check=lambda: None, ends=configs.standby_ends),
        cuts=TruncatedRecords(RealDisk(), bytes_max=0),
    )
    cluster: Any = SimpleNamespace(image=image)
    housekeeping = Housekeeping(configs, logs, replicas, cluster, on_expired=lambda _: None, clock=SystemClock())
    housekeeping.start()
    try:
        yield configs
    finally:
        await housekeeping.stop()
        logs.abandon()


def compactable(logs: LogStore) -> None:
    log = logs.open_or_create("t", 0, topic_id=ID, config=LogConfig(is_compacted=True, is_deleted=False))
    for number in range(5):
        records = batch([(b"k", b"%d" % number)], timestamp_ms=NOW_MS)
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log.roll_if_due(NOW_MS + 10**13)
    log.advance_high_watermark(log.log_end_offset)
    log.flush_now()


async def test_a_broker_without_a_cleaner_compacts_nothing(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    compactable(logs)
    log = logs.get("t", 0)
    assert log is not None
    often = {"log_cleaner_backoff_ms": "1", "replica_high_watermark_checkpoint_interval_ms": "20"}
    path = f"{tmp_path}/log/{checkpoints.HIGH_WATERMARKS}"
    async with keeping_house(tmp_path, logs, log_cleaner_enable="false", **often) as configs:
        # the cleaner's turns come far more often than the checkpoint's
        await eventually(lambda: KEY in read_offsets(RealDisk(), path))
        assert len(data_records(log)) == 5
        configs.current = configs.current.model_copy(update={"is_log_cleaner_enabled": True})
        await eventually(lambda: len(data_records(log)) == 1)


async def test_recovery_points_and_high_watermarks_are_written_at_their_intervals(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    log = logs.open_or_create("t", 0, topic_id=ID, config=LogConfig())
    fill(log, 5)
    log.flush_now()
    log.advance_high_watermark(10)
    paths = [f"{tmp_path}/log/{name}" for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS)]
    often = {
        "log_flush_offset_checkpoint_interval_ms": "5",
        "replica_high_watermark_checkpoint_interval_ms": "10000000",
    }
    async with keeping_house(tmp_path, logs, **often):
        await eventually(lambda: all(read_offsets(RealDisk(), path) == {KEY: 10} for path in paths))


async def test_producers_are_forgotten_after_their_time(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    log = logs.open_or_create("t", 0, topic_id=ID, config=LogConfig(retention_ms=-1))
    now = [NOW_MS]
    logs._now_ms = lambda: now[0]
    records = batch([b"v"], timestamp_ms=NOW_MS, producer_id=7, sequence=0)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    often = {"log_retention_check_interval_ms": "1", "producer_id_expiration_ms": "5000"}
    passes = 0

    async with keeping_house(tmp_path, logs, **often):
        maintain = logs.maintain

        async def counted(*arguments: Any, **options: Any) -> list[str]:
            nonlocal passes
            done = await maintain(*arguments, **options)
            passes += 1
            return done

        logs.maintain = counted  # type: ignore[method-assign]
        now[0] = NOW_MS + 4999
        await eventually(lambda: passes > 3)
        assert log.producers.last_offsets()
        now[0] = NOW_MS + 5001
        await eventually(lambda: not log.producers.last_offsets())


@pytest.mark.parametrize("turned_off", [{"antipode.link.hold.max.ms": "0"}, {"antipode.link.hold.max.bytes": "0"}])
async def test_records_that_a_standby_lacks_are_kept_until_the_hold_is_over(
    tmp_path: Path, turned_off: dict[str, str]
) -> None:
    logs = opened(tmp_path)
    log = logs.open_or_create("t", 0, topic_id=ID, config=LogConfig(retention_ms=1))
    log.append_as_leader(batch([b"v"], timestamp_ms=NOW_MS - 1_000), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(1)
    link = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1, topic_whitelist=["t"])
    often = {"log_retention_check_interval_ms": "1"}
    async with keeping_house(tmp_path, logs, links=[link], **often) as configs:
        await eventually(lambda: logs.held.logs == 1)
        assert log.log_start_offset == 0
        given = {"log.dirs": str(tmp_path / "log"), "log.retention.check.interval.ms": "1", **turned_off}
        configs.current = load_broker_settings({**GIVEN, **given})
        await eventually(lambda: log.log_start_offset == 1)


async def test_records_that_the_standby_has_go_by_retention(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    log = logs.open_or_create("t", 0, topic_id=ID, config=LogConfig(retention_ms=1))
    log.append_as_leader(batch([b"v"], timestamp_ms=NOW_MS - 1_000), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(1)
    link = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1, topic_whitelist=["t"])
    async with keeping_house(tmp_path, logs, links=[link], log_retention_check_interval_ms="1") as configs:
        await eventually(lambda: logs.held.logs == 1)
        configs.standby_ends.note(("t", 0), 1, link, high_watermark=1, now_ms=0)
        await eventually(lambda: log.log_start_offset == 1)
        await eventually(lambda: logs.held.logs == 0)
        assert logs.given_up_bytes == 0


async def test_the_cleaners_pace_is_shared_by_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await broker_with(tmp_path, log_cleaner_threads="4", log_cleaner_io_max_bytes_per_second="1000")
    plans = []

    async def note(plan: CleaningPlan) -> CleaningResult:
        plans.append(plan)
        return clean(plan, RealDisk())

    monkeypatch.setattr(broker.storage.cleaner, "clean", note)
    logs = broker.storage.logs
    logs.open(node_id=1, cluster_id="c")
    compactable(logs)
    assert len(await logs.compact()) == 1
    assert [plan.bytes_per_second_max for plan in plans] == [250]
    logs.abandon()


async def test_as_many_logs_are_cleaned_at_a_time_as_the_cleaner_has_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await broker_with(tmp_path, log_cleaner_threads="3")
    logs, running, most = broker.storage.logs, 0, 0
    all_begun = asyncio.Event()

    async def note(plan: CleaningPlan) -> CleaningResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            all_begun.set()
        await all_begun.wait()
        running -= 1
        return clean(plan, RealDisk())

    monkeypatch.setattr(broker.storage.cleaner, "clean", note)
    logs.open(node_id=1, cluster_id="c")
    for number in range(5):
        log = logs.open_or_create("t", number, topic_id=ID, config=LogConfig(is_compacted=True, is_deleted=False))
        for _ in range(2):
            log.append_as_leader(batch([(b"k", b"v")], timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
        log.roll_if_due(NOW_MS + 10**13)
        log.advance_high_watermark(log.log_end_offset)
        log.flush_now()
    assert len(await logs.compact()) == 5
    assert most == 3
    logs.abandon()


async def test_as_many_logs_are_opened_at_a_time_as_recovery_has_threads_for_each_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = opened(tmp_path)
    for number in range(6):
        before.open_or_create("t", number, topic_id=ID, config=LogConfig())
    before.close()
    broker = await broker_with(tmp_path, num_recovery_threads_per_data_dir="3")
    together, open_log = threading.Barrier(3), LogDirectory.open_log

    def meet(directory: LogDirectory, *arguments: Any, **options: Any) -> Any:
        # fewer threads than three would wait here for ever
        together.wait(timeout=60)
        return open_log(directory, *arguments, **options)

    monkeypatch.setattr(LogDirectory, "open_log", meet)
    broker.storage.logs.open(node_id=1, cluster_id="c")
    await asyncio.to_thread(broker.storage.logs.load, lambda _: LogConfig())
    assert len(broker.storage.logs) == 6
    assert broker.storage.logs._threads == 3
    broker.storage.logs.abandon()


def test_bounds_of_connections_are_the_files() -> None:
    properties = {
        "max.connection.creation.rate": "7",
        "max.connections": "9",
        "max.connections.per.ip": "3",
        "max.connections.per.ip.overrides": "127.0.0.1:5",
        "socket.request.max.bytes": "2000",
        "connections.max.idle.ms": "8000",
        "socket.send.buffer.bytes": "16384",
        "socket.receive.buffer.bytes": "32768",
    }
    limits = HostAddresses().limits(load_broker_settings({**GIVEN, "log.dirs": "/x", **properties}))
    assert limits.connection_creation_rate_max == 7
    assert (limits.connections_max, limits.connections_per_address_max, limits.request_bytes_max) == (9, 3, 2000)
    assert (limits.idle_ms_max, limits.send_buffer_bytes, limits.receive_buffer_bytes) == (8000, 16384, 32768)


async def test_a_followers_requests_carry_the_files_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []
    timeouts: list[tuple[float, float]] = []

    async def connect(*given: Any) -> Any:
        timeouts.extend(
            (one.connect_timeout_ms, one.request_timeout_ms) for one in given if isinstance(one, ConnectionOptions)
        )
        return SimpleNamespace(is_open=True, close=lambda _: None)

    async def fetch(_: Any, request: Any) -> Any:
        asked.append(request)
        return await no_news()

    monkeypatch.setattr("broker.replication.following.source_session.open_connection", connect)
    monkeypatch.setattr("broker.replication.following.source_session.request_fetch", fetch)
    properties = {
        "replica.fetch.max.bytes": "11111",
        "replica.fetch.min.bytes": "22",
        "replica.fetch.response.max.bytes": "333333",
        "replica.fetch.wait.max.ms": "44",
        "replica.socket.timeout.ms": "5555",
    }
    replicas: Any = QuietReplicas()
    fetcher = ReplicaFetcher(
        LEADER,
        replicas,
        load_broker_settings({**GIVEN, "log.dirs": "/x", **properties}),
        SystemClock(),
        find_address=lambda _: HostPort("127.0.0.1", 1),
        broker_epoch=lambda: 1,
        on_lost=lambda _: None,
    )
    try:
        fetcher.follow([follower(tmp_path, "t")])
        await eventually(lambda: bool(asked))
    finally:
        await fetcher.stop()
    assert timeouts == [(5555, 5555)]
    first = asked[0]
    assert (first.min_bytes, first.max_bytes, first.max_wait_ms) == (22, 333333, 44)
    assert first.topics[0].partitions[0].partition_max_bytes == 11111


def damage(segment: Path) -> None:
    """Flip a bit of the first batch's body."""
    content = bytearray(segment.read_bytes())
    content[65] ^= 1
    segment.write_bytes(content)


async def test_logs_are_read_from_the_disk_as_often_and_as_fast_as_allowed(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    log = logs.open_or_create("t", 0, topic_id=ID, config=LogConfig())
    fill(log, 10)
    log.advance_high_watermark(log.log_end_offset)
    damage(Path(log.segments.first.path))
    often = {"antipode.log.scrub.interval.ms": "1"}
    off = {"antipode.log.scrub.max.bytes.per.second": "0"}
    async with keeping_house(tmp_path, logs, **often, **off) as configs:
        on = {"antipode.log.scrub.max.bytes.per.second": "1000000"}
        given = {**GIVEN, "log.dirs": str(tmp_path / "log"), **often, **on}
        assert log.corrupt_batches == ()
        configs.current = load_broker_settings(given)
        await eventually(lambda: len(log.corrupt_batches) == 1)
