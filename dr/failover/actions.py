"""Carries out the steps of a failover at the sites' agents: stores records, gives writes back,
truncates logs, ends torn transactions, stores the account and promotes the target.

Each action may be repeated. Its problem ends no run, because the playbook observes the sites again
before it decides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import grpc
from msgspec import Struct, field

from dr.failover.accounting import Accounting
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.promotion import failed_over_from, has_leaders_above_floor, is_promoted, waiting_for_writes
from dr.failover.core.steps import Decision, FailoverPolicy, Step
from dr.failover.core.torn_transactions import TornSurvey, with_transactions
from dr.failover.log_ends import end_torn_transactions, site_client, truncate_logs
from dr.failover.marker_scan import logs_with_transactions
from dr.failover.member_handover import MemberHandover
from dr.failover.report import FailoverTimeouts
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.loss import LossAccount
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient, SiteRefused
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.client.security import ClientSecurity
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import UNKNOWN
from wire.rules.links import truncates_logs as is_truncating

POLL_S = 0.01
PAUSE_SHARE = 0.25
"""Writers wait for a promotion, so it pauses only this share of the time that the site took to
answer.
"""


class SiteActions(Struct, kw_only=True):
    """The actions of one run."""

    link: str
    target: SiteClient
    source: SiteClient | None
    observer: LinkObserver
    members: MemberHandover
    playbook: FailoverPlaybook
    policy: FailoverPolicy
    timeouts: FailoverTimeouts
    clock: Clock
    security: ClientSecurity | None = None
    """Security of clients of the target's brokers; None: the security settings of this process."""
    account: LossAccount | None = None
    """The account that this run has stored."""
    _document: str = ""
    """The same as JSON, made once: with thousands of partitions it takes as long as a step."""
    _undone: TornSurvey = field(default_factory=TornSurvey)
    _led_epoch: int = UNKNOWN
    """The epoch in which every partition at the target is known to have a leader above the
    floor.
    """
    _written_epoch: int = UNKNOWN
    """The epoch in which every partition at the target is known to take writes."""
    _informed_epoch: int = UNKNOWN
    """The epoch that the fenced source is known to have."""

    async def carry_out(self, decision: Decision, evidence: Evidence) -> tuple[LinkRecord | None, str]:
        """Carry out a step that changes something, decided on this evidence. Return the record
        found after storing (None: unknown), and the problem as a sentence. OperationalFailure when
        a site falls silent.
        """
        record = decision.record
        assert record is not None
        match decision.step:
            case Step.FENCE:
                stored, problem = await self._store(self.source, record, timeout_ms=self._fence_timeout_ms)
                # Writers are stopped now: the members are fetched beside the looks and the raise.
                if stored == record and record.is_routed:
                    self.members.begin()
                return stored, problem
            case Step.NOTIFY:
                return await self._notify(record)
            case Step.RAISE:
                return await self._raise(record, evidence)
            case Step.GIVE_BACK:
                return await self._give_back(record)
            case Step.HAND_BACK:
                return await self._hand_back(record)
            case Step.TRUNCATE:
                return record, await self._truncate(record)
            case Step.ACCOUNT:
                return record, await self._keep_account(record)
            case _:
                return record, await self._promote(record, evidence)

    def is_over(self, record: LinkRecord) -> bool:
        """True if every partition at the target is known to take writes in the record's epoch, and
        the source to have the record: no further look can find more to do.
        """
        return self._written_epoch == record.epoch == self._informed_epoch

    async def kept_account(self, evidence: Evidence) -> LossAccount | None:
        """The account of the governing epoch, from this run or from another one."""
        if self.account is not None:
            return self.account
        if evidence.target is None or evidence.governing.epoch not in evidence.target.accounted_epochs:
            return None
        try:
            accounts = [LossAccount.from_json(text) for text in await self.target.failovers(self.link)]
        except OperationalFailure:
            return None  # The run has ended, and its report must not be lost for the sake of the account.
        return next((item for item in accounts if item.epoch == evidence.governing.epoch), None)

    @property
    def _fence_timeout_ms(self) -> int:
        """The timeout of the fence. It counts as time without writes: each broker stops its writers
        as soon as it enforces the fence, while the run still waits for the others.
        """
        return min(self.timeouts.enforce_ms, self.policy.unavailability_max_ms)

    async def _store(
        self, client: SiteClient | None, record: LinkRecord, *, timeout_ms: int | None = None, account: str = ""
    ) -> tuple[LinkRecord | None, str]:
        """Store the record at one site; return the record found there, None if unknown, and the
        problem.
        """
        if client is None:
            return None, "no agent address is known"
        try:
            timeout_ms = timeout_ms or self.timeouts.enforce_ms
            reply = await client.adopt_link(record, timeout_ms=timeout_ms, account=account)
        except OperationalFailure as failure:
            # The outcome is unknown: the site may have stored the record. The playbook observes the
            # sites again before it decides.
            return None, str(failure)
        if client is self.target and reply.has_leaders:
            self._led_epoch = reply.record.epoch
        return reply.record, ""

    async def _raise(self, record: LinkRecord, evidence: Evidence) -> tuple[LinkRecord | None, str]:
        """Store the new epoch at the target, together with its account if that is already final, so
        that writers do not wait for a separate step.
        """
        final = self._accounting().before_the_raise(record, evidence, unix_ms=self.clock.now_ms())
        document = "" if final is None else final.to_json()
        stored, problem = await self._store(self.target, record, account=document)
        # If another record is stored, another run has won, and this account does not belong to its
        # epoch.
        if stored == record:
            self.account, self._document = final, document
        return stored, problem

    def _accounting(self) -> Accounting:
        return Accounting(self.link, target=self.target, playbook=self.playbook, security=self.security)

    def _moves_members(self, record: LinkRecord) -> bool:
        """True if the members of groups are transferred. Where logs are truncated they are not,
        because their positions may be above the new ends.
        """
        return self.playbook.source.is_fence_proven and record.is_routed and not is_truncating(record)

    async def _notify(self, record: LinkRecord) -> tuple[LinkRecord | None, str]:
        """Send the source the record and the account, which it would otherwise copy from its
        peer.
        """
        stored, problem = await self._store(self.source, record)
        if stored == record:
            self._informed_epoch = record.epoch
        if stored is not None and self.source is not None and self.account is not None:
            # The source would also copy the account from its peer; this is only faster.
            with contextlib.suppress(OperationalFailure):
                await self.source.record_failover(self.link, epoch=record.epoch, document=self._document)
        return stored, problem

    async def _give_back(self, record: LinkRecord) -> tuple[LinkRecord | None, str]:
        """End the fence: first at the target, where another operator may have won, then at the
        source, which takes writes again.
        """
        stored, problem = await self._store(self.target, record)
        # The target comes first: once it has this record, no other run can raise an epoch while the
        # source takes writes.
        if stored is None or stored != record or self.source is None:
            return stored, problem
        source_stored, problem = await self._store(self.source, record)
        if source_stored == record:
            problem = await self._confirm(self.source, record)
        return stored, problem

    async def _hand_back(self, record: LinkRecord) -> tuple[LinkRecord | None, str]:
        """Make the source active again. The record is stored first at the target, which refuses it
        once it has the account of its epoch: another run may have finished the truncation since the
        last look, and clients write there then.
        """
        assert self.source is not None
        problem = ""
        try:
            reply = await self.target.adopt_link(record, timeout_ms=self.timeouts.enforce_ms, unless_accounted=True)
            if reply.record != record:
                return reply.record, ""
        except OperationalFailure as failure:
            if isinstance(failure, SiteRefused) and failure.code is grpc.StatusCode.FAILED_PRECONDITION:
                return None, str(failure)
            problem = str(failure)
        # Also if the target is silent: a failover to the source then finds the higher epoch there.
        stored, source_problem = await self._store(self.source, record)
        if stored != record:
            return stored, source_problem
        if problem:
            return stored, f"{self.target.name} does not have the record ({problem}): fail over to {self.source.name}"
        return stored, await self._confirm(self.source, record)

    async def _confirm(self, client: SiteClient, record: LinkRecord) -> str:
        try:
            reply = await client.confirm_link(record.name, epoch=record.epoch, lease_ms=record.lease_ms)
            if client is self.target and reply.are_writable:
                self._written_epoch = record.epoch
        except OperationalFailure as failure:
            return str(failure)
        return ""

    async def _truncate(self, record: LinkRecord) -> str:
        """Truncate the target's logs once the leaders of the new epoch band are elected."""
        # Before that, a leader of the old band could still append mirrored batches.
        await self._until(has_leaders_above_floor)
        try:
            evidence = await self.observer.site_evidence(self.target, with_groups=True)
            view = await self.target.view(asking_site=failed_over_from(record))
            async with site_client(view, self.security) as client:
                found, problem = await truncate_logs(client, record, evidence)
        except OperationalFailure as failure:
            return str(failure)
        # A repeated attempt finds no torn transactions in logs that the first one has truncated, so
        # the first result is kept.
        self._undone = self._undone if self._undone.torn else found
        return problem

    async def _end_torn(self, record: LinkRecord, evidence: SiteEvidence) -> tuple[TornSurvey, str]:
        """Commit torn transactions in the partitions that the target has; return them and the
        problem.
        """
        # Completely drained logs have every marker, so no transaction can be torn.
        if record.is_cut_consistent or evidence.copies.keys() <= self.playbook.drained_ends.keys():
            return self._undone, ""
        # Before the view of the site, which describes every partition.
        if not logs_with_transactions(evidence):
            return TornSurvey(), ""
        try:
            view = await self.target.view(asking_site=failed_over_from(record))
            async with site_client(view, self.security) as client:
                return await end_torn_transactions(client, record, evidence)
        except OperationalFailure as failure:
            return TornSurvey(), str(failure)

    async def _keep_account(self, record: LinkRecord) -> str:
        evidence = await self.observer.site_evidence(self.target, with_groups=True)
        # Transactions end before the account, because the account reports the outcome of each torn
        # transaction.
        found, transactions_problem = await self._end_torn(record, evidence)
        kept = await self._accounting().after_the_raise(record, evidence, self.observer, unix_ms=self.clock.now_ms())
        self.account = with_transactions(kept, record, found, transactions_problem)
        self._document = self.account.to_json()
        try:
            await self.target.record_failover(self.link, epoch=record.epoch, document=self._document)
        except SiteRefused as refusal:
            return str(refusal)
        return ""

    async def _promote(self, record: LinkRecord, evidence: Evidence) -> str:
        """Wait for the new band's leaders, confirm the role, wait until every partition
        takes writes. A fenced source is informed meanwhile: its clients get the new leaders from
        it, and their writes wait at the target until it is confirmed.
        """
        # The answer to the raise, or the last observation of the decision, is often enough: each
        # further one would lengthen the outage.
        seen = evidence.target
        is_led = seen is not None and seen.record == record and has_leaders_above_floor(seen)
        if self._led_epoch != record.epoch and not is_led:
            await self._until(has_leaders_above_floor)
        # Members are transferred before the role is confirmed, so that the first request of a
        # member already finds its group at the target.
        if self._moves_members(record):
            await self.members.give(epoch=record.epoch)
        # Only a fenced source is informed here: an unfenced one does not answer, and the deadline
        # of the call would delay writers. The source must not learn the epoch earlier: two sites
        # with the same epoch confirm each other, and then a write could reach a leader of the old
        # band.
        informed = self._notify(record) if self.playbook.source.is_fence_proven else asyncio.sleep(0)
        problem, _ = await asyncio.gather(self._confirm(self.target, record), informed)
        if problem or self._written_epoch == record.epoch:
            return problem
        last = await self._until(is_promoted)
        waiting = waiting_for_writes(last)
        return f"no writes are accepted yet at {', '.join(map(str, waiting[:5]))}" if waiting else ""

    async def _until(self, condition: Callable[[SiteEvidence], bool]) -> SiteEvidence:
        """The first evidence of the target that meets the condition, or the last one before the
        deadline.
        """
        deadline = self.clock.monotonic_ms() + self.timeouts.promote_ms
        while True:
            asked_ms = self.clock.monotonic_ms()
            evidence = await self.observer.site_evidence(self.target)
            answered_ms = self.clock.monotonic_ms()
            if condition(evidence) or answered_ms >= deadline:
                return evidence
            await asyncio.sleep(max(POLL_S, PAUSE_SHARE * (answered_ms - asked_ms) / 1000))
