"""Partitions that a reassignment removed from a broker while it was away, over logs on a disk: the
broker deletes their logs when it returns, unless its log directory is newer than the removal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.log.directories.log_store import LogStore
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metrics import BrokerMetrics
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.loading import load_broker_settings
from broker.site.control_service import BrokerControlService
from runtime.disk import RealDisk
from tests.support.clock import ManualClock
from tests.support.disks.log_batches import batch
from wire.control.broker_pb2 import ControlBatch, RemovedReplicas
from wire.control.cluster_pb2 import BrokerInfo, PartitionState, TopicInfo

TOPIC_ID = bytes(range(16))
FIRST, REMOVED_AT, SECOND, LATER = 10, 15, 20, 30


class Crashed(Exception):
    """The process died at this point."""


class Returning:
    """A process of broker 1 over its log directory, under one registration."""

    def __init__(self, directory: Path, registration: int) -> None:
        self.directory = directory
        self.registration = registration
        clock = ManualClock()
        settings = load_broker_settings(
            {"node.id": "1", "listeners": "CLIENT://:0", "log.dirs": str(directory), "zookeeper.connect": "none:1"}
        )
        self.cluster = Cluster(ClusterImage(site="a", node_id=1))
        self.logs = LogStore([str(directory)], RealDisk(), now_ms=clock.now_ms)
        self.logs.open(node_id=1, cluster_id="c")
        cuts = TruncatedRecords(RealDisk(), bytes_max=0)
        self.replicas = Replicas(settings, clock, self.logs, BrokerMetrics(), cuts=cuts)
        self.control = BrokerControlService(
            1,
            self.cluster,
            self.replicas,
            broker_epoch=lambda: registration,
            describe_groups=None,  # type: ignore[arg-type]
            handover=None,  # type: ignore[arg-type]
        )
        self.logs.load(lambda _: self.replicas.assigned.log_config(SimpleNamespace(name="", configs={})))  # type: ignore[arg-type]

    async def take(self, *nodes: int, removed_at: int | None = None, epoch: int = 1) -> None:
        """Take a whole image in which these brokers have the partition."""
        state = PartitionState(
            partition=0, leader=nodes[0], leader_epoch=epoch, partition_epoch=epoch, replicas=nodes, isr=nodes
        )
        named = [RemovedReplicas(topic_id=TOPIC_ID, partitions=[0], registrations_zxid=removed_at or 0)]
        request = ControlBatch(
            is_full=True,
            controller_epoch=1,
            broker_epoch=self.registration,
            brokers=[BrokerInfo(node_id=1, broker_epoch=self.registration)],
            topics=[TopicInfo(name="t", topic_id=TOPIC_ID, partitions=[state])],
            removed_replicas=[] if removed_at is None else named,
        )
        await self.control.Apply(request, None)  # type: ignore[arg-type]

    def write(self) -> None:
        hosted = self.replicas.find("t", 0)
        assert hosted is not None
        self.replicas.append(hosted, batch(), acks=1)
        hosted.log.flush_now()

    def folders(self) -> list[str]:
        """What became of the partition's log: the ends of the names of its folders."""
        names = (path.name for path in self.directory.iterdir() if path.is_dir())
        return sorted(name.rpartition("-")[2] for name in names)

    def name_back(self) -> None:
        """A person gives the log that was set aside its name again."""
        for folder in self.directory.glob("t-0.*-stray"):
            folder.rename(self.directory / "t-0")

    async def end(self) -> list[str]:
        """Rename what is to be renamed, and die; `folders` after that."""
        await self.logs.remove_due()
        self.logs.abandon()
        return self.folders()


async def held(directory: Path, *, epoch: int = 1, registration: int = FIRST) -> None:
    """A process has the partition, with a record, and dies."""
    broker = Returning(directory, registration)
    await broker.take(1, epoch=epoch)
    broker.write()
    assert await broker.end() == ["0"]


async def test_a_broker_that_returns_deletes_the_log_of_a_partition_that_was_removed_meanwhile(tmp_path: Path) -> None:
    await held(tmp_path)
    broker = Returning(tmp_path, SECOND)
    await broker.take(2, removed_at=REMOVED_AT, epoch=2)
    assert await broker.end() == ["delete"]


async def test_older_data_of_zookeeper_makes_a_broker_delete_no_log_that_came_later(tmp_path: Path) -> None:
    """The partition was removed and came back; then ZooKeeper has the data of between."""
    await held(tmp_path)
    broker = Returning(tmp_path, SECOND)
    await broker.take(2, removed_at=REMOVED_AT, epoch=2)
    await broker.take(1, epoch=3)
    broker.write()
    assert "0" in await broker.end()
    # a restored ZooKeeper may give registrations lower numbers than the lost one
    for registration in (SECOND - 1, LATER):
        broker = Returning(tmp_path, registration)
        assert broker.logs.get("t", 0) is not None
        await broker.take(2, removed_at=REMOVED_AT, epoch=2)
        assert "stray" in await broker.end()
        broker.name_back()


async def test_a_removal_without_a_name_or_a_directory_without_a_record_deletes_nothing(tmp_path: Path) -> None:
    await held(tmp_path / "unnamed")
    broker = Returning(tmp_path / "unnamed", SECOND)
    await broker.take(2, epoch=2)
    assert await broker.end() == ["stray"]
    for content in (None, b"", b"0\n1\nmany\n"):
        directory = tmp_path / f"unknown{content!r:.5}"
        await held(directory)
        record = directory / "antipode-handled-registration-checkpoint"
        if content is None:
            record.unlink()
        else:
            record.write_bytes(content)
        broker = Returning(directory, SECOND)
        await broker.take(2, removed_at=REMOVED_AT, epoch=2)
        assert await broker.end() == ["stray"]


async def test_a_broker_that_only_lost_its_session_deletes_the_log_under_the_new_registration(tmp_path: Path) -> None:
    broker = Returning(tmp_path, FIRST)
    await broker.take(1)
    broker.write()
    broker.registration = SECOND
    await broker.take(2, removed_at=REMOVED_AT, epoch=2)
    assert broker.replicas.find("t", 0) is None
    assert await broker.end() == ["delete"]


@pytest.mark.parametrize("step", ["delete", "put_aside", "sync", "note_registration"])
@pytest.mark.parametrize("is_done", [False, True])
async def test_a_process_that_dies_before_or_after_any_step_leaves_the_rest_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, *, is_done: bool
) -> None:
    await held(tmp_path)
    broker = Returning(tmp_path, SECOND)
    owner = {
        "delete": broker.logs,
        "put_aside": broker.logs._deletions,
        "sync": broker.logs.directories[0],
        "note_registration": broker.logs.directories[0].claim,
    }[step]
    monkeypatch.setattr(owner, step, dying(getattr(owner, step), is_done=is_done))
    with pytest.raises(Crashed):
        await broker.take(2, removed_at=REMOVED_AT, epoch=2)
    broker.logs.abandon()
    # the controller names the removal again to the next registration
    broker = Returning(tmp_path, LATER)
    await broker.take(2, removed_at=REMOVED_AT, epoch=2)
    await broker.end()
    assert broker.folders() in (["delete"], [])


def dying(original: Callable[..., object], *, is_done: bool) -> Callable[..., object]:
    """The step, during which the process dies."""

    async def step_and_die(*arguments: object) -> None:
        if is_done:
            await original(*arguments)  # type: ignore[misc]
        raise Crashed

    def die(*arguments: object) -> None:
        if is_done:
            original(*arguments)
        raise Crashed

    return step_and_die if original.__name__ == "put_aside" else die
