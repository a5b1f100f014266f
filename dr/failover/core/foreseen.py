"""The evidence after a step that wrote what the next decision depends on: then no look at the sites
is needed while writers wait. Pure; caller: `dr/failover/execution.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from dr.failover.core.steps import Decision, Step, StepEnded
from dr.sites.core.evidence import Evidence
from dr.sites.core.loss import LossAccount
from wire.rules.links import truncates_logs


def foreseen(
    evidence: Evidence,
    decision: Decision,
    ended: StepEnded,
    account: LossAccount | None,
    *,
    with_source: bool,
    is_over: bool = False,
) -> Evidence | None:
    """The evidence of the decision with what its step has stored at the target; None if the sites
    must be asked. `account`: the account that the run has stored. `with_source`: the next decision
    depends on the source. `is_over`: the step has shown that the target takes writes everywhere,
    and that the source has the record.
    """
    target, record = evidence.target, decision.record
    if ended.problem or target is None or record is None:
        return None
    if ended.step is Step.PROMOTE and is_over:
        # A look would describe every partition at both sites, just when clients find their new
        # leaders.
        source = evidence.source and replace(evidence.source, record=record)
        return replace(evidence, target=replace(target, is_confirmed=True), source=source)
    if ended.step not in (Step.RAISE, Step.ACCOUNT):
        return None
    # Another record is there if another run has won. Logs that are truncated are not as they were.
    if ended.stored != record or truncates_logs(record):
        return None
    promotions = target.promotions
    if account is not None and account.epoch == record.epoch:
        promotions = (*(known for known in promotions if known.epoch != record.epoch), account.promotion)
    elif ended.step is Step.ACCOUNT:
        return None
    return replace(
        evidence,
        target=replace(target, record=record, is_confirmed=False, promotions=promotions),
        source=evidence.source if with_source else None,
    )
