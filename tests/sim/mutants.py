"""Deliberate defects, one decision of the product undone each: the simulation has to notice every
one of them.

A mutant replaces something at run time and puts it back. Its entry has a name, a seed that notices
it, and the number of seeds from the first one on within which one must notice it. That number is a
multiple of the seeds that are needed now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from unittest.mock import patch

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.handlers.records.waiting_produce import WaitingProduce
from broker.log.core.leader_epochs import EpochEnd
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.replication import assigned_replicas
from broker.replication.core.partition import Partition
from broker.replication.core.partition_effects import Effects, HighWatermarkMoved
from broker.replication.following import follower_append as following
from broker.replication.following.core.follower import Position
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.isr_proposals import IsrProposals
from broker.replication.role_lines import RoleLines
from broker.replication.standbys import Standbys
from broker.site import control_service
from controller.core import elections
from controller.core.brokers import membership
from controller.core.draft import Draft
from controller.core.elections import Election
from controller.core.partitions import isr_changes
from controller.core.state import facts
from controller.stored.cluster_writer import ClusterWriter
from runtime.zookeeper.nodes import SetNode
from tests.sim import disk
from tests.sim.disk import MemoryLog
from tests.sim.seed_run import Kind

Original = Callable[..., Any]
Substitute = Callable[[Original], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`owner.name` is replaced by what `substitute` makes of it."""

    title: str
    owner: Any
    name: str
    substitute: Substitute
    known_seed: int
    seeds_max: int = 200
    kind: Kind = Kind.REPLICATION
    is_long: bool = False
    """True if the history of the known seed takes several seconds of CPU: `make chaos` plays it."""

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """While this lasts the product is broken."""
        with patch.object(self.owner, self.name, self.substitute(getattr(self.owner, self.name))):
            yield


def _derived(method: str, substitute: Substitute) -> Substitute:
    """The class with this method replaced in a derived class: compiled code calls a method of its
    own class, whatever is patched there.
    """
    return lambda kind: type("Mutant", (cast("type", kind),), {method: substitute(getattr(kind, method))})


def _truncates_to_the_high_watermark(_: Original) -> Original:
    def truncation_offset(*, log_end_offset: int, high_watermark: int, **__: Any) -> int:
        return min(high_watermark, log_end_offset)

    return truncation_offset


def _truncates_at_each_new_leader(changes: Original) -> Any:
    class Truncating:
        """Changes each replica alone."""

        def __init__(self, partitions: HostedPartitions, standbys: Standbys, lines: RoleLines) -> None:
            self._changes, self._partitions = changes(partitions, standbys, lines), partitions
            self.position = 0

        def change_many(self, _topic: str, _partitions: Any, *, first: int, **_: Any) -> int:
            self.position = first
            return first

        def are_hosted(self, topic: TopicImage, *, node_id: int) -> bool:
            found: bool = self._changes.are_hosted(topic, node_id=node_id)
            return found

        def change(self, hosted: HostedPartition, partition: PartitionImage, topic: Any, *, now_ms: float) -> None:
            former = hosted.state.leader_epoch
            self._changes.change(hosted, partition, topic, now_ms=now_ms)
            if hosted.state.is_follower and hosted.state.leader_epoch != former:
                end = hosted.state.high_watermark
                following.truncate_replica(self._partitions, hosted, end, reason="mutant", now_ms=0, kept_bytes=0)

    return Truncating


def _returns(value: Any) -> Substitute:
    return lambda _: lambda *__, **___: value


def _forgets_divergence(_: Original) -> Original:
    """KIP-279 undone: the largest epoch not above is taken for the one asked for."""

    def epoch_end_offset(self: MemoryLog, epoch: int) -> EpochEnd:
        return EpochEnd(epoch, self.log_end_offset)

    return epoch_end_offset


def _expands_at_once(_: Original) -> Original:
    def expanded_isr(self: Partition, replica: int, _: Mapping[int, int], **__: Any) -> tuple[int, ...] | None:
        if self.proposed_isr is not None or not self.is_leader or replica not in self.followers or replica in self.isr:
            return None
        return tuple(node for node in self.replicas if node in self.isr or node == replica)

    return expanded_isr


def _counts_only_the_known(_: Original) -> Original:
    """The high watermark does not wait for replicas that are only proposed."""
    return lambda self, replica: replica in self.isr


def _counts_the_proposed_alone(_: Original) -> Original:
    """The high watermark already goes by the smaller set that is proposed."""
    return lambda self, replica: replica in (self.isr if self.proposed_isr is None else self.proposed_isr)


def _elects_anybody(_: Original) -> Original:
    def elect_offline(*, replicas: Any, live: Any, **__: Any) -> Any:
        for node in reversed(replicas):
            if node in live:
                return Election(leader=node, isr=(node,))
        return elections.NoLeader("no replica is alive")

    return elect_offline


def _keeps_the_epoch(lead: Original) -> Original:
    def same_epoch(self: Draft, partition: Any, leader: int, isr: tuple[int, ...], **options: Any) -> None:
        known = self.cluster.leaderships.get(partition)
        if known is None or leader < 0:
            lead(self, partition, leader, isr, **options)
            return
        leadership = replace(
            known,
            leader=leader,
            isr=isr,
            partition_epoch=known.partition_epoch + 1,
            known_zxid=0,
            controller_epoch=self.cluster.controller_epoch,
        )
        self.record(facts.LeadershipChanged(partition=partition, leadership=leadership))
        self.changed_partitions.add(partition)

    return same_epoch


def _writes_unguarded(_: Original) -> Original:
    async def write(self: ClusterWriter, steps: Any) -> None:
        loose = [replace(step, version=-1) if isinstance(step, SetNode) else step for step in steps]
        await self._zookeeper.transaction(loose)

    return write


def _drops_what_is_open(take: Original) -> Original:
    """The answer to an older proposal ends a newer one (a defect that the simulation found)."""

    def taken(self: IsrProposals, hosted: HostedPartition, sent: Any, answer: Any, **lines: Any) -> None:
        take(self, hosted, sent, answer, **lines)
        if hosted.state.proposed_isr is not None:
            self._open.pop(hosted.key, None)

    return taken


def _never_withdraws(_: Original) -> Original:
    return lambda _self: ()


def _high_watermark_by_the_fastest(_: Original) -> Original:
    def advance(self: Partition, effects: Effects) -> Effects:
        ends = [progress.log_end_offset for node, progress in self.followers.items() if self._counts(node)]
        candidate = min(max(ends, default=self.log_end_offset), self.log_end_offset)
        former = self.high_watermark
        if not self.is_leader or candidate <= former:
            return effects
        self.high_watermark = self.mirrorable_end = candidate
        return (*effects, HighWatermarkMoved(former, candidate))

    return advance


def _waits_for_nobody(_: Original) -> Original:
    """Acknowledged although the leadership was broken in between."""

    def changed(self: Any, key: Any, grown_bytes: int) -> bool:
        for missing, (hosted, offset) in tuple(self._missing.items()):
            if hosted.state.high_watermark >= offset or not hosted.state.is_leader:
                del self._missing[missing]
        return not self._missing

    return changed


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        title="a follower cuts its log at the high watermark instead of where histories part (KIP-101)",
        owner=following,
        name="truncation_offset",
        substitute=_truncates_to_the_high_watermark,
        known_seed=78,
        is_long=True,
    ),
    Mutant(
        title="a follower cuts its log at the high watermark for each new leader (before KIP-101)",
        owner=assigned_replicas,
        name="RoleChanges",
        substitute=_truncates_at_each_new_leader,
        known_seed=28,
    ),
    Mutant(
        title="a leader does not know where an older epoch ended (KIP-279)",
        owner=MemoryLog,
        name="epoch_end_offset",
        substitute=_forgets_divergence,
        known_seed=1,
    ),
    Mutant(
        title="a follower does not say of which epoch its last batch is (KIP-320)",
        owner=assigned_replicas,
        name="HostedPartition",
        substitute=_derived("last_record_epoch", lambda _: property(lambda _self: -1)),
        known_seed=1,
    ),
    Mutant(
        title="an answer of a former leader is appended",
        owner=Position,
        name="place",
        substitute=lambda _: property(lambda _self: None),
        known_seed=8,
    ),
    Mutant(
        title="a follower is proposed before it has caught up",
        owner=assigned_replicas,
        name="Partition",
        substitute=_derived("expanded_isr", _expands_at_once),
        known_seed=5,
    ),
    Mutant(
        title="the high watermark does not wait for proposed replicas (KIP-497)",
        owner=assigned_replicas,
        name="Partition",
        substitute=_derived("_counts", _counts_only_the_known),
        known_seed=59,
    ),
    Mutant(
        title="the high watermark goes by the smaller set before the controller has agreed",
        owner=assigned_replicas,
        name="Partition",
        substitute=_derived("_counts", _counts_the_proposed_alone),
        known_seed=4,
    ),
    Mutant(
        title="the high watermark moves with too few replicas in sync (KIP-966)",
        owner=assigned_replicas,
        name="Partition",
        substitute=_derived("has_enough_in_sync", lambda _: property(lambda _self: True)),
        known_seed=4,
    ),
    Mutant(
        title="the high watermark follows the fastest replica in sync",
        owner=assigned_replicas,
        name="Partition",
        substitute=_derived("_advance", _high_watermark_by_the_fastest),
        known_seed=1,
    ),
    Mutant(
        title="a batch of an older controller or an older registration is taken",
        owner=control_service,
        name="check_fence",
        substitute=_returns(None),
        known_seed=6,
    ),
    Mutant(
        title="a leader is elected outside the in-sync replicas",
        owner=elections,
        name="elect_offline",
        substitute=_elects_anybody,
        known_seed=5,
    ),
    Mutant(
        title="another leader comes without another leader epoch",
        owner=Draft,
        name="lead",
        substitute=_keeps_the_epoch,
        known_seed=1,
    ),
    Mutant(
        title="the controller writes without its guard and without versions",
        owner=ClusterWriter,
        name="write",
        substitute=_writes_unguarded,
        known_seed=70,
        seeds_max=600,
    ),
    Mutant(
        title="proposed in-sync replicas are taken unchecked",
        owner=isr_changes,
        name="_error_of",
        substitute=_returns(ErrorCode.none),
        known_seed=5,
    ),
    Mutant(
        title="a controller that takes over trusts replicas that have restarted since",
        owner=membership,
        name="distrust_restarted",
        substitute=_returns(None),
        known_seed=29,
    ),
    Mutant(
        title="sequences of idempotent producers are not checked",
        owner=disk,
        name="ProducerStates",
        substitute=_derived("_check", _returns(None)),
        known_seed=48,
    ),
    Mutant(
        title="a repeated batch is appended again",
        owner=disk,
        name="ProducerStates",
        substitute=_derived("_find_duplicate", _returns(None)),
        known_seed=2,
    ),
    Mutant(
        title="the answer to an older proposal ends a newer one",
        owner=IsrProposals,
        name="_take",
        substitute=_drops_what_is_open,
        known_seed=3,
    ),
    Mutant(
        title="a refused proposal is never withdrawn",
        owner=assigned_replicas,
        name="Partition",
        substitute=_derived("withdraw_proposal", _never_withdraws),
        known_seed=63,
    ),
    Mutant(
        title="a produce is acknowledged when its leadership ends",
        owner=WaitingProduce,
        name="changed",
        substitute=_waits_for_nobody,
        known_seed=12,
    ),
)
