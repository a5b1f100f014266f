"""This broker's report on the groups of a link: committed offsets, and the mirror's own reports.

It also counts the transactions that are committed without all their markers: their offsets are
still to come. The site agent asks during failovers: a planned one waits until the standby has every
offset, an unplanned one names the age of the offsets that the standby has. Reports are in memory
only; a mirror reports again after its next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.sync_reports import ReceivedReports
from broker.metadata.core.cluster_image import ClusterImage
from broker.site.access_digests import SiteAccess
from broker.transactions.core.transaction_states import TransactionState
from broker.transactions.transaction_coordinator import TransactionCoordinator
from runtime.clock import Clock
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control import broker_pb2 as pb
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.links import carries_group, carries_topic
from wire.rules.sync_reports import NEVER, SyncReport


class GroupReports:
    """Describes the groups of a link that this broker coordinates."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        clock: Clock,
        access: SiteAccess,
    ) -> None:
        self._image = image
        self._groups = groups
        self._transactions = transactions
        self._clock = clock
        self._access = access
        self._received: dict[str, ReceivedReports] = {}
        self._link_epochs: dict[str, int] = {}

    def note_report(self, link: str, report: SyncReport, *, link_epoch: int) -> None:
        """A daemon of the link's mirror has said this, at that epoch."""
        received = self._received.setdefault(link, ReceivedReports())
        if self._link_epochs.get(link) != link_epoch:
            received.forget_reports()
        self._link_epochs[link] = link_epoch
        received.take(report, self._clock.monotonic_ms(), unix_ms=self._clock.now_ms())

    async def describe(self, link: str, *, is_brief: bool = False) -> pb.DescribeGroupOffsetsReply:
        """Groups that the link carries, with their offsets of topics that it carries; of an unknown
        link none.

        Waits until commits and decisions of transactions that were accepted before the question are
        in the log, unless `is_brief` asks only for the mirror's last reports.
        """
        if is_brief:
            return self._sync_status(link)
        await self._transactions.settled()
        await self._groups.settled()
        image = self._image()
        record = image.links.get(link)
        reply = self._sync_status(link)
        reply.transactional_producers.CopyFrom(self._producers(record))
        reply.partitions.extend(self._groups.loaded_partitions)
        reply.partition_count = _partition_count(image, OFFSETS_TOPIC)
        reply.transaction_partitions.extend(self._transactions.loaded_partitions)
        reply.transaction_partition_count = _partition_count(image, TRANSACTIONS_TOPIC)
        if record is None:
            return reply
        if (digests := self._access.fenced_digests(record)) is not None:
            reply.fenced_access.CopyFrom(pb.AccessDigests(by_part=digests))
        reply.committing_transactions = sum(
            transaction.state is TransactionState.PREPARE_COMMIT and _is_carried(record, transaction.partitions)
            for transaction in self._transactions.list_transactions()
        )
        try:
            reply.groups.extend(self._carried_groups(record))
        except CoordinatorRefusal:  # the process was paused: other brokers may coordinate by now
            reply.ClearField("partitions")
        return reply

    def _carried_groups(self, link: LinkRecord) -> list[pb.GroupOffsets]:
        """The groups that the link carries, with their offsets. CoordinatorRefusal."""
        found = []
        for group in self._groups.list_groups(is_own_tool=True):
            if carries_group(link, group.group_id):
                offsets = self._groups.offsets_of(group.group_id, is_own_tool=True)
                carried = [
                    pb.GroupOffset(topic=partition.topic, partition=partition.partition, offset=value.offset)
                    for partition, value in offsets.items()
                    if carries_topic(link, partition.topic)
                ]
                has_members = self._groups.has_members(group)
                found.append(pb.GroupOffsets(group=group.group_id, has_members=has_members, offsets=carried))
        return found

    def _producers(self, link: LinkRecord | None) -> pb.TransactionalProducers:
        """The producer of each transactional id; none where each site coordinates for itself."""
        if link is None or not link.is_routed:
            return pb.TransactionalProducers()
        return pb.TransactionalProducers(
            producers=[
                pb.TransactionalProducer(
                    transactional_id=known.transactional_id,
                    producer_id=known.producer_id,
                    producer_epoch=known.producer_epoch,
                    is_carried=known.is_carried,
                )
                for known in self._transactions.list_transactions()
            ]
        )

    def _sync_status(self, link: str) -> pb.DescribeGroupOffsetsReply:
        """The reports of the mirror's daemons; of another epoch than the link's current one only
        their progress.
        """
        received = self._received.get(link, ReceivedReports())
        record = self._image().links.get(link)
        is_current = record is not None and record.epoch == self._link_epochs.get(link)
        now_ms = self._clock.monotonic_ms()
        reports = received.counting_reports(now_ms) if is_current else ()
        ages_ms = received.ages_ms(now_ms)
        youngest_ms = min((age_ms for age_ms in ages_ms if age_ms != NEVER), default=None)
        return pb.DescribeGroupOffsetsReply(
            synced_at_ms=0 if youngest_ms is None else self._clock.now_ms() - youngest_ms,
            synced_ms_ago=ages_ms,
            resting_ms_ago=received.resting_ms_ago(now_ms) if is_current else NEVER,
            report_round_ms=received.round_ms if is_current else 0,
            access_synced_ms_ago=received.access_synced_ms_ago(now_ms),
            words=[
                pb.SyncReport(
                    daemon=report.daemon,
                    slots=sorted(report.slots),
                    problems=report.problems,
                    received_ms_ago=round(report.received_ms_ago),
                    carried_access=None if report.access is None else pb.AccessDigests(by_part=report.access.digests),
                )
                for report in reports
            ],
        )


def _partition_count(image: ClusterImage, name: str) -> int:
    topic = image.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def _is_carried(link: LinkRecord, partitions: Iterable[TopicPartition]) -> bool:
    return any(at.topic == OFFSETS_TOPIC or carries_topic(link, at.topic) for at in partitions)
