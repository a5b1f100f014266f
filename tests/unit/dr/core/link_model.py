"""Two sites of a link in memory, with the rules of a site agent and of a broker's role. The
playbook is tested against this model.

A client writes where the role allows it, a mirror copies while it reaches both ends, an operator
carries out a playbook's steps one at a time so that a test can stop it between any two, or let two
operators take turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dr.failover.core.loss_counting import account
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.promotion import failed_over_from, kept_ends
from dr.failover.core.steps import Decision, FailoverPolicy, Step, StepEnded
from dr.sites.core.access_rules import AccessRules, access_loss
from dr.sites.core.evidence import Evidence, GroupPartition, SiteEvidence, SiteGroups, TransactionalProducer
from dr.sites.core.group_offsets import group_loss
from dr.sites.core.log_columns import PartitionOrders
from dr.sites.core.loss import LossAccount
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import UnprotectedTopic
from tests.unit.dr.core.positions_in_columns import in_columns
from wire.batches.log_histories import EpochStart
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.access_digests import ACLS
from wire.rules.links import SiteRole, other_site, role_of, supersedes, truncates_logs

KEY = TopicPartition("flights", 0)
PLACE = GroupPartition("board", *KEY)
STEPS_MAX = 500


def new_record(*, active: str = "a", epoch: int = 1) -> LinkRecord:
    """Link a-b as created."""
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        mode="exact",
        epoch=epoch,
        active_site=active,
        phase=LinkPhase.MIRRORING,
        is_routed=True,
        topic_whitelist=["flights"],
    )


@dataclass
class ModelPartition:
    """A log as (leader epoch, value) by offset."""

    leader_epoch: int = 0
    log: list[tuple[int, str]] = field(default_factory=list)
    heard_end: int = -1
    received_at_ms: int = -1

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        """The leader epochs of records, as a broker describes them."""
        found: list[EpochStart] = []
        for offset, (epoch, _) in enumerate(self.log):
            if not found or found[-1].epoch != epoch:
                found.append(EpochStart(epoch, offset))
        return tuple(found)


@dataclass
class ModelSite:
    """One site: its stored record, the epoch that it confirmed, its logs and its accounts."""

    name: str
    record: LinkRecord
    partitions: dict[TopicPartition, ModelPartition] = field(default_factory=lambda: {KEY: ModelPartition()})
    confirmed_epoch: int = 1
    accounts: dict[int, LossAccount] = field(default_factory=dict)
    is_up: bool = True
    may_be_fenced: bool = True
    unfenced_brokers: tuple[int, ...] = ()
    """Brokers that lead nothing and have not applied a stored fence; a run that stores it waits for
    them.
    """
    acknowledged: list[tuple[TopicPartition, int, str, int]] = field(default_factory=list)
    offsets: dict[GroupPartition, int] = field(default_factory=dict)
    group_problems: tuple[str, ...] = ()
    committing_transactions: int = 0
    producers: dict[str, TransactionalProducer] | None = field(default_factory=dict)
    access: str = "as of the beginning"
    """The site's ACLs."""
    carried_access: str | None = None
    """The other site's ACLs as the mirror last carried them; None: it carries none."""
    access_problems: dict[str, str] = field(default_factory=dict)
    synced_at_ms: int = -1
    mirror_age_ms: int = 0
    leaderless: set[TopicPartition] = field(default_factory=set)
    unprotected: tuple[UnprotectedTopic, ...] = ()
    arbiter_problem: str = ""
    problems: dict[Step, str] = field(default_factory=dict)
    """The reasons why the site refuses steps of a run that makes it active."""

    def adopt(self, record: LinkRecord) -> LinkRecord:
        """Adopts a record as SiteAgent.AdoptLink does."""
        if supersedes(record, self.record):
            self.record = LinkRecord.FromString(record.SerializeToString())
            if self.record.active_site == self.name:
                for partition in self.partitions.values():
                    partition.leader_epoch = max(partition.leader_epoch + 1, self.record.leader_epoch_floor)
        return self.record

    def is_writable(self) -> bool:
        """Whether a broker of the site would take writes, by the brokers' rule."""
        is_confirmed = self.confirmed_epoch >= self.record.epoch
        return self.is_up and is_confirmed and role_of(self.record, self.name) is SiteRole.ACTIVE

    def write(self, value: str, key: TopicPartition = KEY) -> bool:
        """One client write; True when acknowledged."""
        if not self.is_writable():
            return False
        partition = self.partitions[key]
        partition.log.append((partition.leader_epoch, value))
        self.acknowledged.append((key, len(partition.log) - 1, value, self.record.epoch))
        return True

    def commit(self, offset: int, place: GroupPartition = PLACE) -> bool:
        """One commit of a group; True when acknowledged."""
        if not self.is_writable():
            return False
        self.offsets[place] = offset
        return True

    def groups(self) -> SiteGroups:
        """Describes groups as SiteAgent.DescribeGroups does."""
        return SiteGroups(
            offsets=dict(self.offsets),
            problems=self.group_problems,
            synced_at_ms=self.synced_at_ms,
            committing_transactions=self.committing_transactions,
            producers=None if self.producers is None else dict(self.producers),
        )

    def evidence(self, now_ms: int) -> SiteEvidence:
        """The site's evidence, as the playbook's shell collects it."""
        return SiteEvidence(
            site=self.name,
            seen_at_ms=now_ms,
            record=LinkRecord.FromString(self.record.SerializeToString()),
            enforced_epochs={1: self.record.epoch},
            unfenced_brokers=self.unfenced_brokers,
            partitions=_in_columns_mostly(
                {
                    key: PartitionPosition(
                        leader_epoch=item.leader_epoch,
                        last_log_epoch=item.log[-1][0] if item.log else -1,
                        log_start_offset=0,
                        log_end_offset=len(item.log),
                        is_writable=self.is_writable(),
                        source_high_watermark=item.heard_end,
                        source_seen_at_ms=item.received_at_ms,
                        epochs=item.epochs,
                    )
                    for key, item in self.partitions.items()
                    if key not in self.leaderless
                },
                now_ms,
            ),
            leaderless=frozenset(self.leaderless),
            promotions=tuple(account.promotion for account in self.accounts.values()),
            mirror_age_ms=self.mirror_age_ms,
            is_confirmed=self.confirmed_epoch >= self.record.epoch,
            groups=self.groups(),
            access=AccessRules(
                fenced={ACLS: self.access} if self.record.phase == LinkPhase.FENCED else None,
                carried=None if self.carried_access is None else {ACLS: self.carried_access},
                synced_ms_ago=7_000,
                problems=self.access_problems,
            ),
            unprotected=self.unprotected,
            arbiter_problem=self.arbiter_problem,
            peer_seen_at_ms=now_ms,
        )


_orders = PartitionOrders()


def _in_columns_mostly(
    positions: Mapping[TopicPartition, PartitionPosition], now_ms: int
) -> Mapping[TopicPartition, PartitionPosition]:
    """A broker of an earlier release describes each partition alone."""
    return positions if now_ms % 4 == 1 else in_columns(positions, _orders)


class ModelLink:
    """Both sites, the mirror between them, and a clock."""

    def __init__(self) -> None:
        self.a = ModelSite("a", new_record())
        self.b = ModelSite("b", new_record())
        self.is_link_up = True
        self.carries_groups = True
        self.carries_producers = True
        self.carries_access = False
        self.now_ms = 1_000
        self.truncation_offset = 0
        """Where a failover to a time truncates every log."""
        self.truncation_problem = ""

    def site(self, name: str) -> ModelSite:
        """The site of this name."""
        return self.a if name == "a" else self.b

    def mirror(self, batch_max: int = 1000) -> None:
        """Copy what is missing, when the mirror reaches both sites at one epoch."""
        source = self.site(self.b.record.active_site)
        target = self.site(other_site(self.b.record, source.name))
        if not (self.is_link_up and source.is_up and target.is_up) or source.record.epoch != target.record.epoch:
            return
        for key, item in source.partitions.items():
            copy = target.partitions.setdefault(key, ModelPartition())
            if copy.log != item.log[: len(copy.log)] or key in source.leaderless | target.leaderless:
                continue
            copy.log.extend(item.log[len(copy.log) : len(copy.log) + batch_max])
            copy.heard_end, copy.received_at_ms = len(item.log), self.now_ms

    def carry_groups(self) -> None:
        """A round of the mirror's group sync: offsets are clamped to the end of the copy."""
        source = self.site(self.b.record.active_site)
        target = self.site(other_site(self.b.record, source.name))
        is_one_epoch = source.record.epoch == target.record.epoch
        if self.is_link_up and self.carries_groups and source.is_up and target.is_up and is_one_epoch:
            for place, offset in source.offsets.items():
                target.offsets[place] = min(offset, len(target.partitions[KEY].log))
            if self.carries_producers and source.producers is not None and target.producers is not None:
                target.producers |= {name: known._replace(is_carried=True) for name, known in source.producers.items()}
            if self.carries_access:
                target.carried_access = source.access
            target.synced_at_ms = self.now_ms

    def evidence(self, to_site: str) -> Evidence:
        """The evidence of both sites, first the target's, then the source's."""
        target, source = self.site(to_site), self.site("b" if to_site == "a" else "a")
        return Evidence(
            link="a-b",
            target_site=to_site,
            target=target.evidence(self.now_ms) if target.is_up else None,
            source=source.evidence(self.now_ms) if source.is_up else None,
            target_problem="" if target.is_up else "no answer",
            source_problem="" if source.is_up else "no answer",
        )


class Operator:
    """Runs a playbook against a model link; `steps` stops before every change so that a test may
    interfere or walk away.
    """

    def __init__(self, link: ModelLink, *, to_site: str = "b", policy: FailoverPolicy | None = None) -> None:
        self.link = link
        self.to_site = to_site
        self.playbook = FailoverPlaybook(to_site=to_site, policy=policy or FailoverPolicy(drain_timeout_ms=2_000))
        self.story: list[str] = []
        self.outcome: Decision | None = None

    def run(self) -> Decision:
        """Runs the playbook to its end; returns the last decision."""
        for _ in self.steps():
            pass
        assert self.outcome is not None
        return self.outcome

    def steps(self) -> Iterator[Step]:
        """Yields before each step is carried out."""
        for _ in range(STEPS_MAX):
            evidence = self.link.evidence(self.to_site)
            self.playbook.observe(evidence, self.link.now_ms)
            decision = self.playbook.decide(evidence, self.link.now_ms)
            if decision.step in (Step.DONE, Step.REFUSE):
                self.outcome = decision
                self._tell(decision)
                return
            self._tell(decision)
            yield decision.step
            ended = self._carry_out(decision, evidence)
            self.playbook.apply(ended, self.link.now_ms)
        raise AssertionError(f"the run does not end: {self.story[-10:]}")

    def _tell(self, decision: Decision) -> None:
        is_waiting = decision.step in (Step.PREPARE, Step.DRAIN)
        if not (is_waiting and self.story and self.story[-1].startswith(f"{decision.step}:")):
            self.story.append(f"{decision.step}: {decision.reason}")

    def _carry_out(self, decision: Decision, evidence: Evidence) -> StepEnded:
        link, target = self.link, self.link.site(self.to_site)
        source = link.site("b" if self.to_site == "a" else "a")
        step, reason, record = decision.step, decision.reason, decision.record
        if step in (Step.PREPARE, Step.DRAIN):
            link.now_ms += 50
            link.mirror(batch_max=3)
            link.carry_groups()
            return StepEnded(step=step, reason=reason)
        assert record is not None
        if step in target.problems:
            return StepEnded(step=step, reason=reason, problem=target.problems[step])
        if step in (Step.FENCE, Step.NOTIFY):
            ended = self._store(step, reason, source, record)
            if step is Step.NOTIFY and source.is_up:
                source.accounts |= target.accounts
            return ended
        if step in (Step.GIVE_BACK, Step.HAND_BACK):
            passive, active = (target, source) if step is Step.GIVE_BACK else (source, target)
            first = self._store(step, reason, passive, record)
            if first.stored is not None:
                self._store(step, reason, active, record)
                source.confirmed_epoch = source.record.epoch
            return first
        if step is Step.RAISE:
            return self._raise(reason, record, evidence)
        if step is Step.TRUNCATE:
            self._truncate(target)
            return StepEnded(step=step, reason=reason, problem=self.link.truncation_problem)
        if step is Step.ACCOUNT:
            self._account(target, record)
        if step is Step.PROMOTE:
            target.confirmed_epoch = target.record.epoch
            for partition in target.partitions.values():
                partition.heard_end = partition.received_at_ms = -1
        return StepEnded(step=step, reason=reason)

    def _truncate(self, target: ModelSite) -> None:
        assert not target.write("too early")
        if not self.link.truncation_problem:
            for partition in target.partitions.values():
                del partition.log[self.link.truncation_offset :]

    def _raise(self, reason: str, record: LinkRecord, evidence: Evidence) -> StepEnded:
        target = self.link.site(self.to_site)
        is_final = not truncates_logs(record) and self.playbook.has_everything(evidence)
        ended = self._store(Step.RAISE, reason, target, record)
        if is_final and ended.stored == record:
            self._account(target, record)
        return ended

    def _store(self, step: Step, reason: str, site: ModelSite, record: LinkRecord) -> StepEnded:
        if not site.is_up:
            return StepEnded(step=step, reason=reason, problem=f"{site.name} does not answer")
        if step is Step.FENCE and not site.may_be_fenced:
            return StepEnded(step=step, reason=reason, problem="broker 1 does not enforce it")
        if step is Step.FENCE:
            site.unfenced_brokers = ()
        return StepEnded(step=step, reason=reason, stored=site.adopt(record))

    def _account(self, target: ModelSite, record: LinkRecord) -> None:
        source = self.link.site(other_site(record, target.name))
        evidence = target.evidence(self.link.now_ms)
        kept, unclear = kept_ends(evidence, floor=record.leader_epoch_floor, before=self.playbook.drained_ends)
        kept = dict(kept)
        for key in unclear:
            log = target.partitions[key].log
            kept[key] = sum(1 for epoch, _ in log if epoch < record.leader_epoch_floor)
        from_site = failed_over_from(record)
        target.accounts[record.epoch] = account(
            link="a-b",
            epoch=record.epoch,
            from_site=from_site,
            to_site=record.active_site,
            kept=kept,
            target=evidence.partitions,
            source=self.playbook.source.ends,
            now_ms=self.link.now_ms,
            unprotected=evidence.unprotected,
            peer_seen_at_ms=evidence.peer_seen_at_ms,
            differences=self.playbook.source.differences(evidence, source_site=from_site, ends=kept),
            leader_epoch_floor=record.leader_epoch_floor,
            is_planned=self.playbook.is_planned,
            access=access_loss(evidence.access, has_all=self.playbook.source.is_access_carried),
            groups=group_loss(
                source.groups() if source.is_up else self.playbook.source.groups,
                target.groups(),
                evidence.partitions,
                is_fenced=self.playbook.source.is_fence_proven,
                is_routed=record.is_routed,
                now_ms=self.link.now_ms,
            ),
        )
