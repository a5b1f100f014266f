"""The partitions that this broker holds, and what the effects of their machines lead to here.

Every command to a `Partition` goes through `act`: it is the only place that moves the high
watermark of a log and reports changes to the purgatory. Appends and reads are plain calls: their
checks stay true until they return.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import mypyc_attr

from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.replication.core.partition_effects import (
    Effect,
    Effects,
    FirstFetchAwaited,
    HighWatermarkMoved,
    IsrProposed,
    LeadershipBegan,
    LeadershipLost,
    LogGrew,
    MirrorableEndMoved,
    StandbyCaughtUp,
    StandbyGivenUp,
    Wake,
)
from broker.replication.core.wake_ups import Change, DelayedOperation
from broker.replication.hosted_partition import HostedPartition
from broker.replication.purgatory import Purgatory
from broker.replication.replica_listeners import ReplicaListeners
from broker.replication.truncated_records import TruncatedRecords
from runtime.clock import Clock
from runtime.logs import state_change_logger
from wire.protocol.ids import PartitionKey

state_change = state_change_logger()

TURN_MS_MAX: Final = 2.0
"""Time (ms) for which work over many partitions may occupy the event loop without a break."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HostedPartitions:
    """All partitions of this broker; `act` carries out their effects."""

    def __init__(
        self,
        clock: Clock,
        logs: LogStore,
        *,
        purgatory: Purgatory,
        cuts: TruncatedRecords,
        listeners: ReplicaListeners,
    ) -> None:
        self.clock = clock
        self.logs = logs
        self.purgatory = purgatory
        self.cuts = cuts
        self.listeners = listeners
        self.hosted: dict[PartitionKey, HostedPartition] = {}
        self.offline: set[PartitionKey] = set()
        """Partitions that the image puts here and whose log directory is lost, or whose log cannot
        be opened.
        """
        self.degradations = 0
        self.checked_holds: dict[PartitionKey, HostedPartition] = {}
        """The partitions of sync links whose hold changes with time (`standbys.py` checks them)."""

    def __iter__(self) -> Iterator[HostedPartition]:
        # a copy: an image may add or delete partitions while a caller awaits between two, or while
        # the thread of the metrics server reads them
        return iter(tuple(self.hosted.values()))

    def __len__(self) -> int:
        return len(self.hosted)

    def find(self, topic: str, index: int) -> HostedPartition | None:
        """The partition, None when it is not on this broker."""
        return self.hosted.get((topic, index))

    def storage_failed(self, error: StorageError) -> None:
        """A caller met this error in a log: when it was the disk, its log directory goes offline
        with all its partitions.
        """
        self.logs.note_failure(error)

    # --- effects

    def act(self, hosted: HostedPartition, effects: Effects, *, appended_bytes: int = 0) -> None:
        """Act on what a command to the partition's machine led to. `appended_bytes` is the size of
        the records of an append.
        """
        purgatory, appended_at = self.purgatory, -1
        # asked once: while nothing waits for the partition, no effect makes anything wait
        is_awaited_here = purgatory.concerns(hosted.key)
        for effect in effects:
            if isinstance(effect, LogGrew):
                appended_at = effect.former
                if is_awaited_here:
                    purgatory.changed(hosted.key, Change.LOG_GREW, appended_bytes, former_end=appended_at)
            elif isinstance(effect, HighWatermarkMoved):
                # the log's own mark first: a waiter that wakes up reads it there
                hosted.log.advance_high_watermark(effect.offset)
                if not is_awaited_here:
                    continue
                grown_bytes = 0
                # Computed only when a fetch waits, because the sum needs a walk over the segments.
                if purgatory.is_awaited(DelayedOperation.CONSUMER_FETCH, hosted.key):
                    grown_bytes = appended_bytes if effect.former == appended_at else _bytes_within(hosted, effect)
                # 0 would mean another kind of change, which ends waits
                purgatory.changed(hosted.key, Change.HIGH_WATERMARK, max(grown_bytes, 1))
            elif isinstance(effect, MirrorableEndMoved):
                hold = hosted.state.hold
                if hold is not None and hosted.key not in self.checked_holds:
                    hold.begin_checks(now_ms=self.clock.monotonic_ms())
                    self.checked_holds[hosted.key] = hosted
                if not is_awaited_here:
                    continue
                is_awaited = purgatory.is_awaited(DelayedOperation.MIRROR_FETCH, hosted.key)
                grown_bytes = _bytes_within(hosted, effect) if is_awaited else 0
                purgatory.changed(hosted.key, Change.MIRRORABLE_END, max(grown_bytes, 1))
            elif isinstance(effect, Wake):
                purgatory.changed(hosted.key, effect.change)
            else:
                self._act_rarely(hosted, effect)

    def _act_rarely(self, hosted: HostedPartition, effect: Effect) -> None:
        match effect:
            case FirstFetchAwaited():
                self.purgatory.wake_followers(effect.replicas)
            case IsrProposed():
                self.listeners.isr_proposed(hosted)
            case LeadershipBegan() | LeadershipLost():
                # Guards belong to requests under one leadership: from here on another leader may
                # append markers.
                hosted.guards.withdraw_all()
            case StandbyGivenUp():
                self.degradations += 1
                state_change.warning(
                    "acknowledgements no longer wait for the standby",
                    topic=hosted.topic,
                    partition=hosted.index,
                    acknowledged=effect.acknowledged,
                    high_watermark=effect.high_watermark,
                )
            case StandbyCaughtUp():
                state_change.info(
                    "standby has caught up",
                    topic=hosted.topic,
                    partition=hosted.index,
                    offset=effect.acknowledged,
                )

    def changed(self, hosted: HostedPartition, change: Change) -> None:
        """Something changed that the partition's machine does not know."""
        self.purgatory.changed(hosted.key, change)


def _bytes_within(hosted: HostedPartition, moved: HighWatermarkMoved | MirrorableEndMoved) -> int:
    return hosted.log.bytes_between(max(moved.former, hosted.log.log_start_offset), moved.offset)
