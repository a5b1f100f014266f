"""The group coordinator of a broker: a shard for each partition of `__consumer_offsets` that it
leads, and the rules for who may use them.

Leadership comes with images (`on_image`, `broker/coordination/shard_leadership.py`). Offsets of
empty groups expire in the background. Handlers call its methods; a request that cannot be served
here or now raises CoordinatorRefusal with the code for the client.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.coordination.shard_leadership import ShardLeadership
from broker.coordination.state_shard import CoordinatorRefusal, InternalLog
from broker.groups.core import group_handover
from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerGroup, TopicShapes
from broker.groups.core.consumer_protocol.consumer_groups import HeartbeatReply, MemberHeartbeat
from broker.groups.core.group_messages import (
    CodeReply,
    Command,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    EndProducerTransaction,
    EvictMembers,
    ExpireOffsets,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    MemberRecord,
    MirrorOffsets,
    PartitionsReply,
    Reply,
    SyncGroup,
    SyncReply,
    TakeMembers,
)
from broker.groups.core.group_offsets import Offsets
from broker.groups.core.group_states import Group, GroupState
from broker.groups.core.group_turn import GroupLimits
from broker.groups.deleted_topics import DeletedTopics
from broker.groups.group_routing import GroupRouting
from broker.groups.group_shard import GroupShard
from broker.metadata.core.cluster_image import ClusterImage, group_partition
from broker.metadata.core.image_difference import difference
from broker.settings.core.group_configs import HEARTBEAT_INTERVAL, GroupBounds, in_force
from runtime.clock import Clock
from wire.batches.group_records import OFFSETS_TOPIC
from wire.protocol.ids import TopicPartition

GROUPS_PER_TURN: Final = 256


ReplyT = TypeVar("ReplyT", bound=Reply)


class GroupCoordinator:
    """The coordinator of all groups whose partitions this broker leads. Made inside the running
    loop.
    """

    def __init__(
        self,
        limits: GroupLimits,
        internal_log: InternalLog,
        routing: GroupRouting,
        clock: Clock,
        *,
        may_answer: Callable[[], bool] = lambda: True,
        expiry_interval_ms: float = 600_000,
    ) -> None:
        self._limits = limits
        self._log = internal_log
        self._routing = routing
        self._clock = clock
        self._expiry_interval_ms = expiry_interval_ms
        self._led: ShardLeadership[GroupShard] = ShardLeadership(
            OFFSETS_TOPIC,
            internal_log,
            clock,
            partition_count=routing.partition_count,
            make=self._made,
            on_loaded=self._loaded,
            may_answer=may_answer,
        )
        self._deleted_topics = DeletedTopics()

    # --- leadership

    def start(self) -> None:
        """Begin to let offsets expire."""
        self._led.keep("expiry of offsets", self._expire_again_and_again)

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Apply a new image (an `ImageListener`)."""
        self.refresh_leadership()
        change = difference(before, after)
        gone = frozenset(deleted.name for deleted in change.deleted)
        self._deleted_topics.note(self._led.shards, gone)
        for shard in self._led if gone else ():
            self._deleted_topics.forget(shard)
        if change.changed_links:
            for shard in self._led:
                self._evict_moved_groups(shard)

    def refresh_leadership(self) -> None:
        """Load partitions that this broker has begun to lead, and drop partitions that it has
        ceased to lead.
        """
        self._led.refresh()
        self._deleted_topics.keep_only(self._led.shards)

    def _loaded(self, shard: GroupShard) -> None:
        self._deleted_topics.forget(shard)
        self._evict_moved_groups(shard)

    def _made(self, partition: int, leader_epoch: int) -> GroupShard:
        return GroupShard(
            partition,
            leader_epoch,
            limits=self._limits,
            internal_log=self._log,
            clock=self._clock,
            on_failure=self._led.shard_failed,
            topics=self._routing.topic_shapes,
            configs_of=self._routing.group_configs,
        )

    def _evict_moved_groups(self, shard: GroupShard) -> None:
        """Remove the members of groups that another site coordinates now."""
        for group in shard.groups if shard.is_loaded else ():
            has_consumers = shard.groups.consumers(group.group_id) is not None
            if (group.members or group.pending or has_consumers) and self._routing.is_elsewhere(group.group_id):
                shard.submit(EvictMembers(group_id=group.group_id))

    async def stop(self) -> None:
        """Write the decided records, answer all waiting callers, and stop all timers."""
        await self._led.stop()

    # --- members

    async def join(self, command: JoinGroup) -> JoinReply:
        """JoinGroup; answers when the generation is formed. Refused under a fence: the group is
        about to move.
        """
        if self._routing.is_fenced(command.group_id):
            raise CoordinatorRefusal(ErrorCode.coordinator_load_in_progress)
        return await self._ask_member(replace(command, topics=self._routing.topic_shapes()), JoinReply)

    async def sync(self, command: SyncGroup) -> SyncReply:
        """SyncGroup; answers when the leader's assignment is committed."""
        return await self._ask_member(replace(command, topics=self._routing.topic_shapes()), SyncReply)

    async def heartbeat(self, command: Heartbeat) -> CodeReply:
        """Heartbeat."""
        return await self._ask_member(command, CodeReply)

    async def leave(self, command: LeaveGroup) -> LeaveReply:
        """LeaveGroup."""
        return await self._ask_member(replace(command, topics=self._routing.topic_shapes()), LeaveReply)

    async def consumer_heartbeat(self, group_id: str, said: MemberHeartbeat) -> HeartbeatReply:
        """ConsumerGroupHeartbeat."""
        command = ConsumerHeartbeat(group_id=group_id, said=said, topics=self._routing.topic_shapes())
        return await self._ask_member(command, HeartbeatReply)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Heartbeat interval of the group's KIP-848 members, in ms: the group's own config, or the
        broker's.
        """
        return in_force(self._routing.group_configs(group_id), HEARTBEAT_INTERVAL, self._limits.group_bounds)

    @property
    def group_bounds(self) -> GroupBounds:
        """The bounds for configs of single groups."""
        return self._limits.group_bounds

    @property
    def assignors(self) -> Sequence[str]:
        """The assignors that members of KIP-848 groups may choose; the first one serves groups
        whose members choose none.
        """
        return self._limits.consumer_assignors

    async def _ask_member(self, command: Command, reply_type: type[ReplyT]) -> ReplyT:
        if not command.group_id:
            raise CoordinatorRefusal(ErrorCode.invalid_group_id)
        return await self._ask(self._client_shard(command.group_id), command, reply_type)

    def member_records(self, group: Group) -> tuple[MemberRecord, ...]:
        """The records that restore the group's members at another site."""
        consumers = self._shard(group.group_id).groups.consumers(group.group_id)
        return group_handover.member_records(group, consumers)

    async def take_members(self, command: TakeMembers, *, link: str, link_epoch: int) -> CodeReply:
        """Store the members of a group that the link's other site coordinated; allowed only between
        a promotion at that epoch and its confirmation. Raises CoordinatorRefusal; NOT_COORDINATOR
        if another broker coordinates the group.
        """
        error = self._routing.handover_error(command.group_id, link=link, link_epoch=link_epoch)
        if error is not ErrorCode.none:
            raise CoordinatorRefusal(error)
        return await self._ask(self._shard(command.group_id), command, CodeReply)

    # --- offsets

    def commit(self, command: CommitOffsets) -> asyncio.Future[Reply]:
        """OffsetCommit of a client; returns a PartitionsReply when the offsets are committed.
        CoordinatorRefusal, at once or later.
        """
        error = self._routing.commit_error(command.group_id)
        if error is not ErrorCode.none:
            raise CoordinatorRefusal(error)
        return self._shard(command.group_id).begin(command)

    def may_acknowledge(self, group_id: str) -> bool:
        """False once this site may not acknowledge anything of the group, even if it was already
        written.
        """
        return self._routing.may_acknowledge(group_id)

    async def commit_mirrored(self, command: MirrorOffsets, *, link: str, link_epoch: int) -> PartitionsReply:
        """MirrorOffsetCommit: allowed only while this site is passive for the group, at the link's
        epoch.
        """
        error = self._routing.mirror_error(command.group_id, link=link, link_epoch=link_epoch)
        if error is not ErrorCode.none:
            raise CoordinatorRefusal(error)
        marked = replace(command, carried_by=self.mirror_mark(link, link_epoch))
        return await self._ask(self._shard(command.group_id), marked, PartitionsReply)

    def mirror_mark(self, link: str, link_epoch: int) -> str:
        """The `carried_by` of offsets that mirrors of this link write here at this epoch."""
        return self._routing.mirror_mark(link, link_epoch)

    async def delete_offsets(self, command: DeleteOffsets) -> PartitionsReply:
        """OffsetDelete."""
        return await self._ask_member(command, PartitionsReply)

    async def commit_in_transaction(self, shard: GroupShard, command: CommitTransactionOffsets) -> PartitionsReply:
        """TxnOffsetCommit, admitted by this shard; returns when the offsets are in the log. They
        count with the transaction.
        """
        error = self._routing.commit_error(command.group_id)
        if error is not ErrorCode.none:
            raise CoordinatorRefusal(error)
        reply = await self._ask(shard, command, PartitionsReply)
        if not self.may_acknowledge(command.group_id):
            raise CoordinatorRefusal(ErrorCode.coordinator_load_in_progress)
        return reply

    def admission(self, group_id: str) -> GroupShard:
        """The shard that admits offsets of transactions for the group. CoordinatorRefusal."""
        return self._client_shard(group_id)

    async def end_transaction(self, partition: int, command: EndProducerTransaction) -> None:
        """A transaction marker for a partition of `__consumer_offsets`; returns when it is
        committed. CoordinatorRefusal.
        """
        await self._led.loaded(partition).end_transaction(command)

    def partition_of(self, group_id: str) -> int:
        """The group's partition of `__consumer_offsets`. CoordinatorRefusal while there is none."""
        count = self._routing.partition_count()
        if not count:
            raise CoordinatorRefusal(ErrorCode.coordinator_not_available)
        return group_partition(group_id, count)

    def has_pending_offset(self, group_id: str, partition: TopicPartition) -> bool:
        """True while an open transaction may still change the offset."""
        return self._shard(group_id).groups.has_pending_offset(group_id, partition)

    def offsets_of(self, group_id: str, *, is_own_tool: bool) -> Offsets:
        """Committed offsets of the group."""
        return self._readable_shard(group_id, is_own_tool=is_own_tool).groups.offsets_of(group_id)

    # --- groups

    async def delete_group(self, command: DeleteGroup) -> CodeReply:
        """DeleteGroups, for one group."""
        return await self._ask(self._client_shard(command.group_id), command, CodeReply)

    def describe(self, group_id: str, *, is_own_tool: bool) -> Group | None:
        """The group; None if it does not exist."""
        return self._readable_shard(group_id, is_own_tool=is_own_tool).groups.get(group_id)

    def topic_shapes(self) -> TopicShapes:
        """Id and partition count of every topic that clients can see."""
        return self._routing.topic_shapes()

    def describe_consumers(self, group_id: str, *, is_own_tool: bool) -> ConsumerGroup | None:
        """The group in its KIP-848 form; None if it uses another protocol."""
        return self._readable_shard(group_id, is_own_tool=is_own_tool).groups.consumers(group_id)

    def list_groups(self, *, is_own_tool: bool) -> Iterable[Group]:
        """Groups coordinated here; clients do not get those that another site coordinates."""
        for shard in self._led:
            if shard.is_loaded:
                for group in shard.groups:
                    if is_own_tool or not self._routing.is_elsewhere(group.group_id):
                        yield group

    def has_members(self, group: Group) -> bool:
        """True while the group has members of either protocol."""
        consumers = self._shard(group.group_id).groups.consumers(group.group_id)
        return bool(group.members) or (consumers is not None and bool(consumers.members))

    @property
    def loaded_partitions(self) -> list[int]:
        """Partitions of `__consumer_offsets` whose groups are loaded here."""
        return self._led.loaded_partitions

    async def settled(self) -> None:
        """Wait until every accepted commit is in the log or has failed."""
        await asyncio.gather(*(shard.settled() for shard in self._led))

    @property
    def is_loading(self) -> bool:
        """True while some partition is not loaded yet."""
        return self._led.is_loading

    @property
    def group_count(self) -> int:
        """Number of groups here, for the metrics (called from their thread)."""
        return sum(len(shard.groups) for shard in self._led)

    def count_by_state(self) -> Counter[GroupState]:
        """The number of classic groups in each state. The metrics thread calls this."""
        return Counter(
            group.state
            for shard in self._led
            for group in shard.groups
            if shard.groups.consumers(group.group_id) is None
        )

    @property
    def offset_count(self) -> int:
        """Number of committed offsets here, for the metrics (called from their thread)."""
        return sum(shard.groups.offset_count for shard in self._led)

    @property
    def timer_count(self) -> int:
        """Timers that run."""
        return sum(len(shard.timers) for shard in self._led)

    # --- finding the shard

    def _shard(self, group_id: str) -> GroupShard:
        count = self._routing.partition_count()
        if not count:
            raise CoordinatorRefusal(ErrorCode.not_coordinator)
        return self._led.loaded(group_partition(group_id, count))

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
        """Remove offsets that are older than the retention time and whose topic the group no longer
        subscribes to.
        """
        handled = 0
        for shard in self._led:
            for group in shard.groups if shard.is_loaded else ():
                if shard.is_ended:
                    break
                counted_from_ms = self._routing.expiry_counted_from_ms(group.group_id)
                if counted_from_ms is not None:
                    shard.submit(ExpireOffsets(group_id=group.group_id, counted_from_ms=counted_from_ms))
                handled += 1
                if handled % GROUPS_PER_TURN == 0:
                    await asyncio.sleep(0)
