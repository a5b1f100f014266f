"""Refusals of a failover that follow from the evidence and the policy alone. Each function returns
a sentence for the operator, empty for no refusal. Pure; caller: `playbook.py`.
"""

from __future__ import annotations

from dr.failover.core.completion import leaderless_sentence
from dr.failover.core.steps import NAMED_IN_A_REASON_MAX, FailoverPolicy, StepEnded
from dr.sites.core.divergence import Differences
from dr.sites.core.evidence import Evidence, SiteEvidence
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import supersedes

UNTRUNCATED = "their logs cannot be truncated"
SEEN_LATELY_MS = 60_000
"""A refusal names the last contact of the target's agents with the source if it is at most this old
(ms).
"""


def deposed_refusal(source: SiteEvidence | None, *, to_site: str) -> str:
    """Refuse while the source is active under one link and passive for the same topics under
    another one. The active site of the other link cannot be fenced by this failover, so accepting
    data loss does not help.
    """
    if source is None or not source.deposed:
        return ""
    return f"{source.deposed[0]}; promoting {to_site} would make two sites active"


def target_refusal(evidence: Evidence, *, to_site: str, is_raised: bool, is_source_fenced: bool) -> str:
    """Refuse while the target does not answer. Without it a fence cannot be given back: another run
    may have raised the epoch there. `is_raised`: this run has.
    """
    silent = f"site {to_site} does not answer: {evidence.target_problem}"
    if is_raised:
        return f"{silent}; its epoch is raised: run the failover again when it answers"
    if is_source_fenced:
        return (
            f"{silent}; the other site takes no writes until {to_site} answers: then run the failover again, or give "
            f"the writes back (antipode failovers abort {evidence.link}); if {to_site} is lost for good, delete the "
            f"link at the other site (antipode links delete {evidence.link} --skip-unreachable)"
        )
    return f"{silent}; nothing is changed: run the command again when {to_site} answers"


def silence_refusal(evidence: Evidence, policy: FailoverPolicy, *, is_fence_proven: bool) -> str:
    """Refuse to abandon a source that does not answer this machine: it may run, and take writes
    that would be lost.
    """
    source_site, target = evidence.governing.active_site, evidence.target
    if evidence.source is not None:
        return f"{source_site} answers again" if policy.needs_lost_source else ""
    silent = f"{source_site} does not answer ({evidence.source_problem})"
    if policy.is_switchover:
        return f"{silent}: a switchover needs both sites; antipode failover promotes over a lost one"
    if policy.is_old_site_down or policy.accepts_data_loss or is_fence_proven:
        return ""
    if evidence.governing.lease_ms:
        return ""  # Under a lease the source's permits run out before the new epoch is opened, so it may be abandoned.
    assert target is not None
    seen_ms = target.seen_at_ms - target.peer_seen_at_ms
    seen = f"; agents of {target.site} reached it {seen_ms / 1000:.1f} s ago" if 0 <= seen_ms <= SEEN_LATELY_MS else ""
    return (
        f"{silent}{seen}, and nothing proves that it is down: a running site continues to take writes, which would be "
        f"lost; stop it, then declare it down (--old-site-is-down)"
    )


def raise_refusal(ended: StepEnded | None, governing: LinkRecord, target: SiteEvidence, *, to_site: str) -> str:
    """Refuse after a raise that failed: another process stored another record, or the outcome is
    unknown. `ended` is the run's raise, None if it was not tried.
    """
    if ended is None or (governing.active_site == to_site and not supersedes(governing, target.record)):
        return ""
    if ended.stored is None:
        return f"the epoch could not be raised at {to_site} ({ended.problem}); run the failover again"
    return (
        f"another operator moved link {governing.name} to epoch {governing.epoch} with {governing.active_site} active "
        "meanwhile; look at it and run again"
    )


def arbiter_refusal(evidence: Evidence) -> str:
    """Refuse if the target does not reach the arbiter of a lease: the arbiter opens the next epoch,
    so writers would be stopped for nothing.
    """
    target = evidence.target
    if target is None or not evidence.governing.lease_ms or not target.arbiter_problem:
        return ""
    return (
        f"{target.arbiter_problem}: {target.site} takes writes only when the arbiter opens an epoch for it; "
        "if the arbiter will not come back, remove the lease first (antipode links alter --lease-ms 0)"
    )


def bypass_refusal(bypass: str, policy: FailoverPolicy) -> str:
    """Refuse while a log of the fenced source grows: a writer bypasses the fence."""
    if not bypass or policy.accepts_data_loss:
        return ""
    return f"{bypass}: a writer bypasses the fence; find it, or accept data loss (--accept-data-loss)"


def fence_refusal(evidence: Evidence, policy: FailoverPolicy, *, fence_problem: str) -> str:
    """Refuse to abandon a source that answers and could not be fenced."""
    if evidence.source is None or evidence.source.is_fenced or not fence_problem:
        return ""
    if policy.accepts_data_loss:
        return ""
    return (
        f"{evidence.source.site} answers but could not be fenced ({fence_problem}), so it could continue "
        f"to take writes that would be lost; accept data loss (--accept-data-loss) to continue anyway"
    )


def divergence_refusal(found: Differences, *, to_site: str, source_site: str) -> str:
    """Refuse to promote a copy that has another history than the source, or an unproven one."""
    if not found:
        return ""
    named = found.summary(copy_site=to_site, source_site=source_site)
    return (
        f"{to_site} is not a copy of {source_site}: {named}; reset these copies (antipode links reset), "
        f"or accept data loss (--accept-data-loss) to promote {to_site} with its present records"
    )


def lag_refusal(target: SiteEvidence, *, remaining_records: int, allowed: int | None, stopped_for: str) -> str:
    """Refuse if the target lacks more records than allowed; `allowed` None accepts any number.
    `stopped_for` is the time for which writers have been stopped, as a part of a sentence.
    """
    if allowed is None or remaining_records <= allowed:
        return ""
    return (
        f"{remaining_records} records known at the active site are not at {target.site}, more than the "
        f"{allowed} allowed"
        f"{stopped_for}; "
        f"repair the link, allow more, or accept data loss (--accept-data-loss){named_unprotected(target)}"
    )


def truncation_refusal(target: SiteEvidence, policy: FailoverPolicy) -> str:
    """Refuse to raise an epoch in which logs must be truncated that no broker leads: the target
    would take no writes.
    """
    if not (policy.kept_before_ms or policy.is_cut_consistent):
        return ""
    return leaderless_sentence(target, consequence=UNTRUNCATED)


def lack_refusal(problem: str) -> str:
    """Refuse if other parts than records are missing, or are not known to be there."""
    return (
        f"{problem}; check that the link's mirror runs and read its log, or accept data loss (--accept-data-loss)"
        if problem
        else ""
    )


def named_unprotected(target: SiteEvidence) -> str:
    """The topics that no mirroring will copy, as a part of a sentence."""
    reasons = [topic.reason for topic in target.unprotected]
    more = f" (and {len(reasons) - NAMED_IN_A_REASON_MAX} more)" if len(reasons) > NAMED_IN_A_REASON_MAX else ""
    return f"; {'; '.join(reasons[:NAMED_IN_A_REASON_MAX])}{more}" if reasons else ""
