"""The second half of a failover: the steps after the raise, until the target takes writes. Pure.

The raise is the point of no return: from here on a decision names what the target still lacks
(truncation, account, promotion), and a run that is repeated finds the steps that are left. The one
exception is a truncation that fails again and again: no client has written in the new epoch then,
so a source that answers becomes active again.

Caller: `playbook.py`, which has the invariants.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.failover.core.promotion import is_promoted
from dr.failover.core.steps import Decision, Step, StepEnded, refuse, truncation_reason
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.fencing import FIRST_EPOCH, raised
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import supersedes, truncates_logs

TRUNCATE_ATTEMPTS_MAX = 3
"""Number of failed truncations after which the writes are given back."""


class AfterTheRaise:
    """The decisions of one run after the raise; `ended` are the results of the run's steps."""

    def __init__(self, ended: Mapping[Step, StepEnded]) -> None:
        self._ended = ended
        self._truncate_count = 0

    def note_truncation(self) -> None:
        """A truncation has ended, well or not."""
        self._truncate_count += 1

    def decide(self, evidence: Evidence, target: SiteEvidence, now_ms: int) -> Decision:
        """The next step; changes nothing."""
        source, governing = evidence.source, evidence.governing
        epoch = governing.epoch
        is_behind = supersedes(governing, target.record)
        # after a restart the run must repeat the raise: brokers may lack the epoch
        if is_behind or (target.lagging_brokers and Step.RAISE not in self._ended):
            return Decision(
                step=Step.RAISE,
                reason=f"epoch {epoch} must be in force at every broker of {target.site}",
                record=governing,
            )
        if (decision := self._truncation(evidence, target, governing, now_ms)) is not None:
            return decision
        if self.may_account(target, governing):
            return Decision(
                step=Step.ACCOUNT, reason=f"the account of epoch {epoch} is not stored yet", record=governing
            )
        accounted = self._ended.get(Step.ACCOUNT)
        if accounted is not None and accounted.problem and epoch not in target.accounted_epochs:
            return refuse(
                f"the account of epoch {epoch} could not be stored ({accounted.problem}); {target.site} takes no "
                "writes yet: run the failover again to continue"
            )
        if not is_promoted(target) and Step.PROMOTE not in self._ended:
            return Decision(
                step=Step.PROMOTE, reason=f"not every partition takes writes at {target.site} yet", record=governing
            )
        if source is not None and supersedes(governing, source.record) and Step.NOTIFY not in self._ended:
            return Decision(
                step=Step.NOTIFY, reason=f"{source.site} is still at epoch {source.record.epoch}", record=governing
            )
        # This run took no step: the site was active before it.
        if not self._ended:
            return refuse(f"{target.site} is active for link {governing.name} already, since epoch {epoch}")
        promoted = self._ended.get(Step.PROMOTE)
        if promoted is not None and promoted.problem and not target.is_confirmed:
            return refuse(
                f"{target.site} is active in epoch {epoch}, but takes no writes yet ({promoted.problem}): "
                "run the failover again to continue"
            )
        return Decision(step=Step.DONE, reason=f"{target.site} is active in epoch {epoch}")

    def may_account(self, target: SiteEvidence, governing: LinkRecord) -> bool:
        """True while the account of the raised epoch is due."""
        # The first epoch follows no failover, so it has no account. Nor has an epoch in which
        # writes were given back: the site stays active in the band of its last promotion.
        accounted_floors = {0, *(promotion.leader_epoch_floor for promotion in target.promotions)}
        is_kept = governing.epoch in {FIRST_EPOCH, *target.accounted_epochs}
        return not is_kept and governing.leader_epoch_floor not in accounted_floors and Step.ACCOUNT not in self._ended

    def _truncation(
        self, evidence: Evidence, target: SiteEvidence, governing: LinkRecord, now_ms: int
    ) -> Decision | None:
        """The truncation, or the step after its failure; None when it is done or not due."""
        if not truncates_logs(governing) or not self.may_account(target, governing):
            return None
        ended = self._ended.get(Step.TRUNCATE)
        if ended is None or (ended.problem and self._truncate_count < TRUNCATE_ATTEMPTS_MAX):
            return Decision(step=Step.TRUNCATE, reason=truncation_reason(governing), record=governing)
        if not ended.problem:
            return None
        failed = f"logs could not be truncated ({ended.problem})"
        if evidence.source is None:
            return refuse(f"{failed}; {target.site} takes no writes yet: run the failover again to continue")
        reason = f"{failed}; {evidence.source.site} is active again"
        return hand_back(evidence, governing, reason, now_ms)


def hand_back(evidence: Evidence, governing: LinkRecord, reason: str, now_ms: int) -> Decision:
    """Make the source active again; the target's copies are a prefix of its logs."""
    assert evidence.source is not None
    record = raised(
        governing,
        to_site=evidence.source.site,
        highest_leader_epoch=evidence.highest_leader_epoch,
        now_ms=now_ms,
    )
    return Decision(step=Step.HAND_BACK, reason=reason, record=record)
