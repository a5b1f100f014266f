"""The group coordinator of a broker: a shard for each partition of `__consumer_offsets` that it leads, and who may ask them.

Leadership comes with images (`on_image`): a partition newly led is replayed before it answers, one that is lost is dropped. A shard whose
append failed is dropped and replayed too, because nobody knows whether the append is in the log. Offsets of empty groups expire in the
background. Handlers call the verbs; what cannot be done here or now is a CoordinatorRefusal with the code for the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from broker.config import BrokerSettings
from broker.core.cluster_image import ClusterImage, difference, group_partition
from broker.core.group_messages import (
    CodeReply,
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    EvictMembers,
    ExpireOffsets,
    ForgetTopics,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    MirrorOffsets,
    PartitionsReply,
    Reply,
    SyncGroup,
    SyncReply,
)
from broker.core.group_offsets import Offsets
from broker.core.group_states import Group
from broker.core.group_turn import GroupLimits
from broker.group_routing import GroupRouting
from broker.group_shard import CoordinatorRefusal, GroupShard, InternalLog
from broker.hosted_partition import PartitionFailure
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from wire.record_batch import InvalidBatch

log = get_logger(__name__)
state_change = state_change_logger()

LOADS_AT_ONCE_MAX: Final = 4
RELOAD_DELAY_MS: Final = 500
GROUPS_PER_TURN: Final = 256

ReplyT = TypeVar("ReplyT", bound=Reply)
_Work = Coroutine[Any, Any, None]


def group_limits(settings: BrokerSettings) -> GroupLimits:
    """The machine's bounds from the broker's settings."""
    return GroupLimits(
        session_timeout_ms_min=settings.group_session_timeout_ms_min,
        session_timeout_ms_max=settings.group_session_timeout_ms_max,
        size_max=settings.group_size_max,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        offset_metadata_bytes_max=settings.offset_metadata_bytes_max,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
    )


class GroupCoordinator:
    """See the module. Made inside the running loop."""

    def __init__(
        self,
        limits: GroupLimits,
        internal_log: InternalLog,
        routing: GroupRouting,
        clock: Clock,
        *,
        expiry_interval_ms: float = 600_000,
    ) -> None:
        self._limits = limits
        self._log = internal_log
        self._routing = routing
        self._clock = clock
        self._expiry_interval_ms = expiry_interval_ms
        self._shards: dict[int, GroupShard] = {}
        self._loads = asyncio.Semaphore(LOADS_AT_ONCE_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    # --- leadership

    def start(self) -> None:
        """Begin to let offsets expire."""
        self._spawn(self._expire_again_and_again())

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Take over a new image (an `ImageListener`)."""
        self.refresh_leadership()
        change = difference(before, after)
        gone = frozenset(deleted.name for deleted in change.deleted)
        if gone:
            self._forget_topics(gone)
        if change.changed_links:
            for shard in tuple(self._shards.values()):
                self._evict_moved_groups(shard)

    def refresh_leadership(self) -> None:
        """Load partitions that are led here now, drop those that are not any more."""
        if self._is_stopped:
            return
        wanted = {
            partition: epoch
            for partition in range(self._routing.partition_count())
            if (epoch := self._log.leader_epoch(partition)) is not None
        }
        for partition, shard in tuple(self._shards.items()):
            if wanted.get(partition) != shard.leader_epoch:
                self._drop(shard, ErrorCode.not_coordinator)
        for partition, epoch in wanted.items():
            if partition not in self._shards:
                self._begin(partition, epoch)

    def _evict_moved_groups(self, shard: GroupShard) -> None:
        """Groups that another site coordinates now lose their members here."""
        for group in shard.groups if shard.is_loaded else ():
            if (group.members or group.pending) and self._routing.is_elsewhere(group.group_id):
                shard.submit(EvictMembers(group_id=group.group_id))

    def _forget_topics(self, topics: frozenset[str]) -> None:
        for shard in tuple(self._shards.values()):
            for group in shard.groups if shard.is_loaded else ():
                shard.submit(ForgetTopics(group_id=group.group_id, topics=topics))

    def _begin(self, partition: int, leader_epoch: int) -> None:
        shard = self._shards[partition] = GroupShard(
            partition,
            leader_epoch,
            limits=self._limits,
            internal_log=self._log,
            clock=self._clock,
            on_failure=self._shard_failed,
        )
        self._spawn(self._load(shard))

    async def _load(self, shard: GroupShard) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            async with self._loads:
                if shard.is_ended:
                    return
                record_count = await shard.load()
        except (PartitionFailure, InvalidBatch) as error:
            log.warning("group partition cannot be loaded", partition=shard.partition, reason=str(error))
            if not shard.is_ended:
                shard.end(ErrorCode.coordinator_not_available)
                self._shard_failed(shard)
            return
        if shard.is_ended:
            shard.end(ErrorCode.not_coordinator)
            return
        state_change.info(
            "group partition loaded",
            partition=shard.partition,
            leader_epoch=shard.leader_epoch,
            records=record_count,
            elapsed_ms=round(self._clock.monotonic_ms() - started_ms, 1),
        )
        self._evict_moved_groups(shard)

    def _shard_failed(self, shard: GroupShard) -> None:
        self._drop(shard, ErrorCode.coordinator_not_available)
        if not self._is_stopped:
            self._spawn(self._refresh_later())

    async def _refresh_later(self) -> None:
        await asyncio.sleep(RELOAD_DELAY_MS / 1000)
        self.refresh_leadership()

    def _drop(self, shard: GroupShard, code: ErrorCode) -> None:
        if self._shards.get(shard.partition) is shard:
            del self._shards[shard.partition]
            state_change.info("group partition dropped", partition=shard.partition, leader_epoch=shard.leader_epoch)
        if not shard.is_ended:
            shard.end(code)

    def _spawn(self, work: _Work) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Write what is decided, answer everybody who waits, leave no timer behind."""
        self._is_stopped = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for shard in tuple(self._shards.values()):
            await shard.settled()
            self._drop(shard, ErrorCode.not_coordinator)

    # --- members

    async def join(self, command: JoinGroup) -> JoinReply:
        """JoinGroup; answers when the generation is formed."""
        return await self._ask_member(command, JoinReply)

    async def sync(self, command: SyncGroup) -> SyncReply:
        """SyncGroup; answers when the leader's assignment is committed."""
        return await self._ask_member(command, SyncReply)

    async def heartbeat(self, command: Heartbeat) -> CodeReply:
        """Heartbeat."""
        return await self._ask_member(command, CodeReply)

    async def leave(self, command: LeaveGroup) -> LeaveReply:
        """LeaveGroup."""
        return await self._ask_member(command, LeaveReply)

    async def _ask_member(self, command: Command, reply_type: type[ReplyT]) -> ReplyT:
        if not command.group_id:
            raise CoordinatorRefusal(ErrorCode.invalid_group_id)
        return await self._ask(self._client_shard(command.group_id), command, reply_type)

    # --- offsets

    async def commit(self, command: CommitOffsets) -> PartitionsReply:
        """OffsetCommit of a client; answers when the offsets are committed."""
        error = self._routing.commit_error(command.group_id)
        if error is not ErrorCode.none:
            raise CoordinatorRefusal(error)
        return await self._ask(self._shard(command.group_id), command, PartitionsReply)

    async def commit_mirrored(self, command: MirrorOffsets, *, link: str, link_epoch: int) -> PartitionsReply:
        """MirrorOffsetCommit: only while this site is passive for the group, at the link's epoch."""
        error = self._routing.mirror_error(command.group_id, link=link, link_epoch=link_epoch)
        if error is not ErrorCode.none:
            raise CoordinatorRefusal(error)
        return await self._ask(self._shard(command.group_id), command, PartitionsReply)

    async def delete_offsets(self, command: DeleteOffsets) -> PartitionsReply:
        """OffsetDelete."""
        return await self._ask_member(command, PartitionsReply)

    def offsets_of(self, group_id: str, *, is_own_tool: bool) -> Offsets:
        """Committed offsets of the group."""
        return self._readable_shard(group_id, is_own_tool=is_own_tool).groups.offsets_of(group_id)

    # --- groups

    async def delete_group(self, command: DeleteGroup) -> CodeReply:
        """DeleteGroups, for one group."""
        return await self._ask_member(command, CodeReply)

    def describe(self, group_id: str, *, is_own_tool: bool) -> Group | None:
        """The group, None when there is none."""
        return self._readable_shard(group_id, is_own_tool=is_own_tool).groups.get(group_id)

    def list_groups(self, *, is_own_tool: bool) -> Iterable[Group]:
        """Groups coordinated here; for clients without those that another site coordinates."""
        for shard in tuple(self._shards.values()):
            if shard.is_loaded:
                for group in shard.groups:
                    if is_own_tool or not self._routing.is_elsewhere(group.group_id):
                        yield group

    @property
    def is_loading(self) -> bool:
        """True while some partition is not loaded yet."""
        return any(not shard.is_loaded for shard in self._shards.values())

    @property
    def group_count(self) -> int:
        """Groups here, for the metrics (called from their thread)."""
        return sum(len(shard.groups) for shard in tuple(self._shards.values()))

    @property
    def offset_count(self) -> int:
        """Committed offsets here, for the metrics (called from their thread)."""
        return sum(shard.groups.offset_count for shard in tuple(self._shards.values()))

    @property
    def timer_count(self) -> int:
        """Timers that run."""
        return sum(len(shard.timers) for shard in self._shards.values())

    # --- finding the shard

    def _shard(self, group_id: str) -> GroupShard:
        count = self._routing.partition_count()
        shard = self._shards.get(group_partition(group_id, count)) if count else None
        if shard is None:
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        if not shard.is_loaded:
            raise CoordinatorRefusal(ErrorCode.coordinator_load_in_progress)
        return shard

    def _client_shard(self, group_id: str) -> GroupShard:
        if self._routing.is_elsewhere(group_id):
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        return self._shard(group_id)

    def _readable_shard(self, group_id: str, *, is_own_tool: bool) -> GroupShard:
        return self._shard(group_id) if is_own_tool else self._client_shard(group_id)

    async def _ask(self, shard: GroupShard, command: Command, reply_type: type[ReplyT]) -> ReplyT:
        reply = await shard.ask(command)
        if not isinstance(reply, reply_type):
            raise TypeError(f"{command!r} was answered with {reply!r}")
        return reply

    # --- expiry

    async def _expire_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self._expiry_interval_ms / 1000)
            await self.expire_offsets()

    async def expire_offsets(self) -> None:
        """Let every empty group forget what is older than the retention."""
        handled = 0
        for shard in tuple(self._shards.values()):
            for group in shard.groups if shard.is_loaded else ():
                if shard.is_ended:
                    break
                if not group.members:
                    shard.submit(ExpireOffsets(group_id=group.group_id))
                handled += 1
                if handled % GROUPS_PER_TURN == 0:
                    await asyncio.sleep(0)
