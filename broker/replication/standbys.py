"""The standbys of sync links: which partitions here wait for one, its reports, and giving it up.

`core/standby_hold.py` decides; a partition's hold is made and ended by `Partition.change`, with the
terms from here.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.replication.core.lag_bounded_hold import LagBoundedHold
from broker.replication.core.retention_holds import StandbyEnds
from broker.replication.core.standby_hold import StandbyHold
from broker.replication.core.standby_terms import StandbyTerms
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import HostedPartitions
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import NO_NODE, PartitionKey
from wire.rules.links import LinkEpoch, SyncPolicy, link_epoch, sync_policy

# FENCED too: records that wait when the fence is set must not become visible only at the old site
_SOURCE_ROLES = (LinkRole.ACTIVE, LinkRole.FENCED, LinkRole.UNCONFIRMED)


class Standbys:
    """The standbys of the sync links that this broker's partitions belong to."""

    def __init__(self, partitions: HostedPartitions) -> None:
        self._partitions = partitions
        self._held: dict[PartitionKey, HostedPartition] = {}
        self._unreported: dict[PartitionKey, HostedPartition] = {}
        """The partitions whose hold goes on only with a report: it has had none, or was given
        up.
        """
        self._marked_links: dict[str, LinkEpoch] = {}
        """The links whose brokers here are marked at the arbiter, by name."""
        self.ends = StandbyEnds()

    def terms(self, link: LinkRecord | None, role: LinkRole) -> StandbyTerms | None:
        """Terms on which the link's leaders in this role wait for its standby; None for no wait."""
        if link is None or role not in _SOURCE_ROLES:
            return None
        policy = sync_policy(link)
        if policy is SyncPolicy.NONE:
            return None
        # without a permit another site may be active: no more records may become visible only here
        is_without_permit = role is LinkRole.UNCONFIRMED
        return StandbyTerms(
            may_degrade=policy is not SyncPolicy.BLOCK and not is_without_permit,
            timeout_ms=link.sync_timeout_ms,
            lag_bound_ms=link.sync_bound_ms if policy is SyncPolicy.BOUND else 0,
            begins_released=bool(link.sync_policy_to_restore),
            needs_mark=bool(link.lease_ms),
            is_marked=self._marked_links.get(link.name) == link_epoch(link),
            needs_former=is_without_permit,
        )

    def note(self, hosted: HostedPartition) -> None:
        """The partition's hold may have begun or ended."""
        if hosted.state.hold is None:
            self._forget_hold(hosted)
        else:
            self._held[hosted.key] = self._partitions.checked_holds[hosted.key] = hosted
            self._note_reports(hosted)

    def forget(self, hosted: HostedPartition) -> None:
        """The partition is deleted here."""
        self._forget_hold(hosted)
        self.ends.forget(hosted.key)

    def _forget_hold(self, hosted: HostedPartition) -> None:
        self._held.pop(hosted.key, None)
        self._unreported.pop(hosted.key, None)
        self._partitions.checked_holds.pop(hosted.key, None)

    def _note_reports(self, hosted: HostedPartition) -> None:
        if hosted.state.hold is not None and hosted.state.hold.wants_report:
            self._unreported[hosted.key] = hosted
        else:
            self._unreported.pop(hosted.key, None)

    def wants_reports(self, image: ClusterImage, link: str) -> bool:
        """True if a partition of the link waits here for a report of its standby, also one that has
        nothing new.
        """
        return any(link in image.links_of(hosted.topic) for hosted in self._unreported.values())

    def mark_out_of_sync(self, image: ClusterImage, link: str, *, is_marked: bool) -> None:
        """Set or clear the arbiter's mark for the link: while it is set, acknowledgements need not
        wait for a silent standby.
        """
        self._marked_links.pop(link, None)
        if is_marked and link in image.links:
            self._marked_links[link] = link_epoch(image.links[link])
        for _, hold in self._holds_of(image, link):
            hold.note_mark(is_marked=is_marked)

    def wants_mark(self, image: ClusterImage, link: str) -> bool:
        """True while acknowledgements of the link wait for a mark of `mark_out_of_sync` alone, or
        depend on it: an arbiter that has lost its data has to get it again.
        """
        if link in self._marked_links and self.is_behind(image, link):
            return True
        checked = self._partitions.checked_holds.values()
        return any(hold.wants_mark for _, hold in self._holds_of(image, link, checked))

    def is_behind(self, image: ClusterImage, link: str) -> bool:
        """True while the link's standby lacks something that was shown here, or may lack it. A
        marked broker counts the partitions without a leader, too: it may have led them before.
        """
        if any(hold.is_behind(hosted.state.high_watermark) for hosted, hold in self._holds_of(image, link)):
            return True
        return link in self._marked_links and any(
            partition.leader == NO_NODE
            for topic in image.topics.values()
            if link in image.links_of(topic.name)
            for partition in topic.partitions.values()
        )

    def _holds_of(
        self, image: ClusterImage, link: str, among: Iterable[HostedPartition] | None = None
    ) -> list[tuple[HostedPartition, StandbyHold]]:
        among = self._held.values() if among is None else among
        held = [(one, one.state.hold) for one in tuple(among) if link in image.links_of(one.topic)]
        return [(hosted, hold) for hosted, hold in held if hold is not None]

    def record(self, image: ClusterImage, topic: str, reports: Iterable[tuple[int, int]], *, link: str) -> ErrorCode:
        """A mirror of the link reports that the standby has everything of these partitions below
        these offsets; why one of them is refused, or `none`. Partitions that are not led here are
        skipped: the mirror reports to their new leaders.
        """
        carrier, now_ms = image.link_of(topic), self._partitions.clock.monotonic_ms()
        is_carried = carrier is not None and link in image.links_of(topic)
        # the hold is of the topic's most restrictive link; others report for retention alone
        is_of_hold = carrier is not None and carrier.name == link
        error = ErrorCode.none
        for index, acknowledged in reports:
            hosted = self._partitions.find(topic, index)
            if hosted is None or not hosted.state.is_leader:
                continue
            # a standby cannot have what the mirror was never given: such a report is of another log
            if not is_carried or acknowledged > hosted.state.mirrorable_end:
                error = ErrorCode.invalid_request
                continue
            high_watermark = hosted.state.high_watermark
            self.ends.note(hosted.key, acknowledged, image.links[link], high_watermark=high_watermark, now_ms=now_ms)
            if is_of_hold and hosted.state.hold is not None:
                self._partitions.act(hosted, hosted.state.record_standby(acknowledged, now_ms=now_ms))
                self._note_reports(hosted)
                if hosted.state.needs_standby_checks:
                    self._partitions.checked_holds[hosted.key] = hosted
        return error

    def check(self) -> None:
        """Give up waiting for standbys that have been silent for longer than their links allow."""
        checked, now_ms = self._partitions.checked_holds, self._partitions.clock.monotonic_ms()
        for hosted in tuple(checked.values()):
            self._partitions.act(hosted, hosted.state.check_standby(now_ms=now_ms))
            self._note_reports(hosted)
            # of ten thousand partitions of a sync link few have records that the standby lacks
            if not hosted.state.needs_standby_checks:
                checked.pop(hosted.key, None)

    def holds(self) -> list[StandbyHold]:
        """The hold of each partition led here that waits for a standby, or would if it were not
        degraded.
        """
        return [hosted.state.hold for hosted in tuple(self._held.values()) if hosted.state.hold is not None]

    def lag_bounded_holds(self) -> list[LagBoundedHold]:
        """The holds of links with the sync policy `bound`."""
        return [hold for hold in self.holds() if isinstance(hold, LagBoundedHold)]
