"""The plan of a failover, from one look at the sites: its steps and its losses. Changes nothing."""

from __future__ import annotations

from dr.failover.core.assess import Assessment, assess
from dr.failover.core.steps import FailoverPolicy
from dr.failover.core.truncation_check import TruncationCheck
from dr.failover.log_ends import look_up_consistent_point, look_up_truncations, planned_ends, site_client
from dr.failover.report import FailoverReport
from dr.sites.core.evidence import Evidence
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.times import iso_time
from wire.client.security import ClientSecurity


async def plan_failover(
    observer: LinkObserver,
    *,
    target: SiteClient,
    policy: FailoverPolicy,
    clock: Clock,
    security: ClientSecurity | None = None,
) -> FailoverReport:
    """The steps of a run that would make `target` active now, its refusal, and its losses."""
    evidence = await observer.evidence(with_groups=True)
    truncations = TruncationCheck(policy)
    await look_up_truncations(truncations, evidence, target, policy, security)
    if evidence.source is None:
        # a source that answers still completes transactions that are torn at this moment
        await look_up_consistent_point(truncations, evidence, target, policy, security)
    assessment = assess(evidence, to_site=target.name, policy=policy, now_ms=clock.now_ms(), truncations=truncations)
    reason = assessment.refusal
    if not reason:
        reason = _prospect(assessment, evidence) + await _planned_truncation(evidence, target, policy, security)
    return FailoverReport(
        link=evidence.link,
        from_site=evidence.source_site,
        to_site=target.name,
        outcome="refused" if assessment.refusal else "planned",
        reason=reason,
        epoch=evidence.epoch,
        planned_steps=assessment.steps,
        account=assessment.account,
        cuts=evidence.cuts,
        sync=assessment.sync,
        unprotected=assessment.unprotected,
        is_source_silent=not assessment.is_source_reachable,
    )


def _prospect(assessment: Assessment, evidence: Evidence) -> str:
    """Describe the records and offsets that the target lacks now, and what a failover would do
    about them.
    """
    missing = f"{assessment.missing_records} records are not at {evidence.target_site} yet"
    if assessment.missing_offsets:
        missing += f", nor are {assessment.missing_offsets} offsets that groups committed"
    if not assessment.is_source_reachable:
        return missing
    outcome = (
        "only the parts that the link cannot carry would be missing"
        if assessment.unprotected
        else "nothing would be lost"
    )
    if assessment.account is not None:
        outcome = "the account names the differences"
    return f"{missing}; {evidence.source_site} answers: it would be fenced, they would be copied, and {outcome}"


async def _planned_truncation(
    evidence: Evidence, target: SiteClient, policy: FailoverPolicy, security: ClientSecurity | None
) -> str:
    """Describe what the policy would put into quarantine, as the end of a sentence."""
    if evidence.target is None or not (policy.kept_before_ms or policy.is_cut_consistent):
        return ""
    async with site_client(await target.view(asking_site=evidence.source_site), security) as client:
        ends, found = await planned_ends(
            client,
            evidence.target,
            kept_before_ms=policy.kept_before_ms,
            is_cut_consistent=policy.is_cut_consistent,
        )
    behind = sum(evidence.target.partitions[key].log_end_offset - offset for key, offset in ends.items())
    of_time = f" of {iso_time(policy.kept_before_ms)} or later" if policy.kept_before_ms else ""
    if policy.is_cut_consistent:
        of_time += f" behind {len(found.torn)} torn transactions"
    return f"; {behind} records{of_time} would go to quarantine"
