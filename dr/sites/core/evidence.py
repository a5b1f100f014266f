"""The known state of both sites of a link at one time: the input of every decision in this package.

Made by the shell from the site agents' answers, the target first and the source after it, so that a
healthy target is never ahead of the source in one piece of evidence. Nothing here decides;
`dr/failover/core/playbook.py` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from dr.sites.core.access_rules import AccessRules
from dr.sites.core.log_columns import LogsInColumns, PartitionOrders, logs_of
from dr.sites.core.mirror_reports import failing_sentences, mirror_silent_ms
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import UnprotectedTopic
from wire.batches.log_histories import EpochStart
from wire.control.broker_pb2 import PartitionColumns, PartitionDescription, TruncatedLog
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import DescribeGroupsReply
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.rules.links import other_site, supersedes

NOT_ASKED = -1
"""Enforced epoch of a broker that is registered but did not answer."""


class GroupPartition(NamedTuple):
    """One partition of one group; sorts by group, topic, index."""

    group: str
    topic: str
    partition: int


class TransactionalProducer(NamedTuple):
    """The producer of a transactional id at a site; `is_carried`: a mirror reported it."""

    producer_id: int
    producer_epoch: int
    is_carried: bool


class SiteGroups(Struct, frozen=True, kw_only=True):
    """The groups of a link at one site. `problems`: why entries may be missing; `synced_at_ms`: see
    the proto.
    """

    offsets: Mapping[GroupPartition, int] = field(default_factory=dict)
    with_members: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    synced_at_ms: int = UNKNOWN
    committing_transactions: int = 0
    """Transactions that are decided, but not marked in every log yet: their offsets and markers are
    still to come.
    """
    transaction_problems: tuple[str, ...] = ()
    mirror_problems: tuple[str, ...] = ()
    """Daemons of the link's mirror that cannot carry groups' offsets, in sentences."""
    producers: Mapping[str, TransactionalProducer] | None = None
    """Producers by transactional id; None if a broker of an earlier release does not report
    them.
    """


class ReplicaTruncation(Struct, frozen=True, kw_only=True):
    """The records that one replica has lost to its leader's history since its broker started;
    `at_ms` is the last time (Unix ms).
    """

    site: str
    topic: str
    partition: int
    node_id: int
    records: int
    bytes: int
    kept_bytes: int
    at_ms: int

    @property
    def sentence(self) -> str:
        """Describe the truncation for the operator."""
        if self.kept_bytes == self.bytes:
            kept = "all of them are kept in a file"
        elif self.kept_bytes:
            kept = f"{self.kept_bytes} of {self.bytes} bytes are kept in a file"
        else:
            kept = "none of them are kept"
        return (
            f"{self.topic}-{self.partition}: broker {self.node_id} of {self.site} truncated {self.records} "
            f"records of its replica; {kept}"
        )


class Promotion(Struct, frozen=True, kw_only=True):
    """An earlier failover, from its account of loss: the site that it made active, and the end of
    the history that this site continued.
    """

    epoch: int
    to_site: str
    leader_epoch_floor: int
    """The lowest leader epoch of the promoted site's leaders; 0 if the account does not contain
    it.
    """
    kept_below: Mapping[TopicPartition, int]
    """Partitions that the account does not know are left out."""
    accounted_at_ms: int = UNKNOWN
    is_planned: bool = False
    """True for a switchover that fenced the former active site."""


class SiteEvidence(Struct, frozen=True, kw_only=True):
    """One site's answer: its copy of the link record, the epoch that its brokers enforce, and its
    logs; groups on request.
    """

    site: str
    seen_at_ms: int
    record: LinkRecord
    enforced_epochs: Mapping[int, int] = field(default_factory=dict)
    unfenced_brokers: tuple[int, ...] = ()
    """Brokers that have not applied the stored fence, although they have its epoch."""
    partitions: Mapping[TopicPartition, PartitionPosition] = field(default_factory=dict)
    leaderless: frozenset[TopicPartition] = frozenset()
    cuts: tuple[ReplicaTruncation, ...] = ()
    is_confirmed: bool = True
    arbiter_problem: str = ""
    """The reason why the site does not reach the arbiter of a link with a lease."""
    groups: SiteGroups | None = None
    peer_seen_at_ms: int = UNKNOWN
    """The time at which the other site last reported its topics to this one."""
    unprotected: tuple[UnprotectedTopic, ...] = ()
    """The topics of the other site that this site knows to be missing or incomplete here."""
    promotions: tuple[Promotion, ...] = ()
    """The promotions from the accounts that the site keeps, oldest first."""
    mirror_age_ms: int = UNKNOWN
    """Time (ms) since the link's mirror reported to the site, as its target, that everything is
    carried; UNKNOWN: never.
    """
    mirror_round_ms: int = 0
    """The time between the reports of the mirror's slowest daemon; 0: not measured."""
    mirror_problems: tuple[str, ...] = ()
    """The problems of the mirror's daemons, in sentences: the groups that they cannot carry."""
    resting_mirror_age_ms: int = UNKNOWN
    """Time (ms) since an idle mirror reported to the site while the site was active; UNKNOWN:
    never.
    """
    access: AccessRules = field(default_factory=AccessRules)
    """ACLs, SCRAM users and quotas: the site's own under a fence, and what the mirror has carried
    here.
    """
    deposed: tuple[str, ...] = ()
    """For a site that is active under this link, its other links under which it is passive for the
    same topics.
    """

    @property
    def accounted_epochs(self) -> frozenset[int]:
        """Epochs for which the site stores an account."""
        return frozenset(promotion.epoch for promotion in self.promotions)

    @property
    def has_mirror(self) -> bool:
        """True if a mirror into the site has reported recently, even if only a failure."""
        return self.carries_all or bool(self.mirror_problems)

    @property
    def carries_all(self) -> bool:
        """True if a mirror into the site has reported recently that everything is carried; the
        allowed age is longer for a mirror with long rounds.
        """
        return 0 <= self.mirror_age_ms <= mirror_silent_ms(self.mirror_round_ms)

    @property
    def unprotected_partitions(self) -> frozenset[TopicPartition]:
        """The partitions of which the site keeps nothing, even if it has topics with their
        names.
        """
        return frozenset(
            TopicPartition(topic.topic, partition) for topic in self.unprotected for partition in topic.partitions
        )

    @property
    def copies(self) -> Mapping[TopicPartition, PartitionPosition]:
        """The partitions that are copies of the other site's."""
        missing = self.unprotected_partitions
        if not missing:
            return self.partitions
        return {key: position for key, position in self.partitions.items() if key not in missing}

    @property
    def lagging_brokers(self) -> tuple[int, ...]:
        """Live brokers that do not enforce the stored epoch."""
        return tuple(sorted(node for node, epoch in self.enforced_epochs.items() if epoch < self.record.epoch))

    @property
    def writable(self) -> tuple[TopicPartition, ...]:
        """Partitions that accept client writes, sorted."""
        return tuple(sorted(key for key, position in self.partitions.items() if position.is_writable))

    @property
    def is_fenced(self) -> bool:
        """True when the fence is stored here, every live broker enforces it and none takes a
        write.
        """
        is_stored = self.record.phase == LinkPhase.FENCED
        return is_stored and not (self.lagging_brokers or self.unfenced_brokers or self.has_writable)

    @property
    def has_writable(self) -> bool:
        """True if a partition accepts client writes."""
        if isinstance(self.partitions, LogsInColumns):
            return self.partitions.has_writable
        return any(position.is_writable for position in self.partitions.values())


class Evidence(Struct, frozen=True, kw_only=True):
    """Both sites of a link, observed for a failover to `target_site`; None if the site did not
    answer.
    """

    link: str
    target_site: str
    target: SiteEvidence | None
    source: SiteEvidence | None
    target_problem: str = ""
    source_problem: str = ""

    @property
    def governing(self) -> LinkRecord:
        """The copy of the link record that wins. ValueError when neither site answered."""
        records = [site.record for site in (self.target, self.source) if site is not None]
        if not records:
            raise ValueError(f"no site of link {self.link!r} answered")
        winner = records[0]
        for record in records[1:]:
            if supersedes(record, winner):
                winner = record
        return winner

    @property
    def epoch(self) -> int:
        """The epoch that governs; 0 when neither site answered."""
        return self.governing.epoch if self.target is not None or self.source is not None else 0

    @property
    def source_site(self) -> str:
        """The name of the other site; empty when neither site answered."""
        return other_site(self.governing, self.target_site) if self.epoch else ""

    @property
    def cuts(self) -> tuple[ReplicaTruncation, ...]:
        """The truncations of replicas inside the sites that answered."""
        return tuple(cut for site in (self.source, self.target) if site is not None for cut in site.cuts)

    @property
    def highest_leader_epoch(self) -> int:
        """The highest leader epoch at either site, in a leadership or in a log; -1 if there is
        none.
        """
        sites = [site for site in (self.target, self.source) if site is not None]
        return max((highest_leader_epoch(site.partitions) for site in sites), default=-1)


def highest_leader_epoch(logs: Mapping[TopicPartition, PartitionPosition]) -> int:
    """The highest leader epoch of these partitions, in a leadership or in a log; -1 if there is
    none.
    """
    if isinstance(logs, LogsInColumns):
        return max((*logs.column("leader_epoch"), *logs.column("last_log_epoch")), default=-1)
    return max((max(position.leader_epoch, position.last_log_epoch) for position in logs.values()), default=-1)


def positions_of(descriptions: Iterable[PartitionDescription]) -> dict[TopicPartition, PartitionPosition]:
    """Positions by partition from what brokers described."""
    return {
        TopicPartition(item.topic, item.partition): PartitionPosition(
            leader_epoch=item.leader_epoch,
            last_log_epoch=item.last_log_epoch,
            log_start_offset=item.log_start_offset,
            log_end_offset=item.log_end_offset,
            is_writable=item.is_writable,
            source_high_watermark=item.source_high_watermark,
            source_seen_at_ms=item.source_seen_at_ms,
            high_watermark=item.high_watermark,
            max_timestamp_ms=item.max_timestamp_ms,
            epochs=tuple(EpochStart(entry.epoch, entry.start_offset) for entry in item.epochs),
            has_markers=item.has_markers,
            thinned_to=item.thinned_to,
        )
        for item in descriptions
    }


def described_logs(
    partitions: Iterable[PartitionDescription], columns: Sequence[PartitionColumns], orders: PartitionOrders
) -> Mapping[TopicPartition, PartitionPosition]:
    """Positions by partition from what brokers described, in columns or, brokers of an earlier
    release, one by one. MalformedColumns.
    """
    positions = positions_of(partitions)
    if not columns:
        return positions
    logs = logs_of(columns, orders)
    return {**positions, **logs} if positions else logs


def truncations_of(site: str, reported: Iterable[TruncatedLog]) -> tuple[ReplicaTruncation, ...]:
    """Truncations that the site's brokers report, by partition and broker."""
    found = [
        ReplicaTruncation(
            site=site,
            topic=one.topic,
            partition=one.partition,
            node_id=one.node_id,
            records=one.records,
            bytes=one.bytes,
            kept_bytes=one.kept_bytes,
            at_ms=one.last_at_ms,
        )
        for one in reported
    ]
    return tuple(sorted(found, key=lambda cut: (cut.topic, cut.partition, cut.node_id)))


def site_groups(reply: DescribeGroupsReply) -> SiteGroups:
    """Convert the answer of a site's agent."""
    return SiteGroups(
        offsets={
            GroupPartition(group.group, item.topic, item.partition): item.offset
            for group in reply.groups
            for item in group.offsets
        },
        with_members=frozenset(group.group for group in reply.groups if group.has_members),
        problems=tuple(reply.problems),
        synced_at_ms=reply.synced_at_ms or UNKNOWN,
        committing_transactions=reply.committing_transactions,
        transaction_problems=tuple(reply.transaction_problems),
        mirror_problems=failing_sentences(reply.failing),
        producers=_producers(reply),
    )


def _producers(reply: DescribeGroupsReply) -> Mapping[str, TransactionalProducer] | None:
    if not reply.HasField("transactional_producers"):
        return None
    return {
        known.transactional_id: TransactionalProducer(known.producer_id, known.producer_epoch, known.is_carried)
        for known in reply.transactional_producers.producers
    }
