"""Refusals of a failover that follow from the evidence and the policy alone. Each is a sentence for
the operator; empty: no refusal. Pure; caller: `playbook.py`.
"""

from __future__ import annotations

from dr.failover.core.steps import NAMED_IN_A_REASON_MAX, FailoverPolicy
from dr.sites.core.divergence import Differences
from dr.sites.core.evidence import Evidence, SiteEvidence

SEEN_LATELY_MS = 60_000
"""A refusal names when the target's agents reached the source last, if that was so lately."""


def deposed_refusal(source: SiteEvidence | None, *, to_site: str) -> str:
    """A topic is written to at one site of all that links join. That one cannot be fenced from
    here, so this is no loss to accept.
    """
    if source is None or not source.deposed:
        return ""
    return f"{source.deposed[0]}; promoting {to_site} would make two sites active"


def silence_refusal(evidence: Evidence, policy: FailoverPolicy, *, is_fence_proven: bool) -> str:
    """A source that does not answer this machine may run, and take writes that would be
    lost.
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
        return ""  # its permits run out before the new epoch is opened
    assert target is not None
    seen_ms = target.seen_at_ms - target.peer_seen_at_ms
    seen = f"; agents of {target.site} reached it {seen_ms / 1000:.1f} s ago" if 0 <= seen_ms <= SEEN_LATELY_MS else ""
    return (
        f"{silent}{seen}, and nothing proves that it is down: a site that runs goes on taking writes, which would be lost; "
        f"stop it, then declare it down (--old-site-is-down)"
    )


def arbiter_refusal(evidence: Evidence) -> str:
    """Return a refusal if the target does not reach the arbiter of a lease: the arbiter opens
    the next epoch, so writers would be stopped in vain.
    """
    target = evidence.target
    if target is None or not evidence.governing.lease_ms or not target.arbiter_problem:
        return ""
    return (
        f"{target.arbiter_problem}: {target.site} takes writes only when the arbiter opens an epoch for it; if the arbiter is lost "
        "for good, take the lease away first (antipode links alter --lease-ms 0)"
    )


def bypass_refusal(bypass: str, policy: FailoverPolicy) -> str:
    """A fenced source whose log grows has a writer that the fence does not stop."""
    if not bypass or policy.accepts_data_loss:
        return ""
    return f"{bypass}: something writes past the fence; find it, or accept data loss"


def fence_refusal(evidence: Evidence, policy: FailoverPolicy, *, fence_problem: str) -> str:
    """A source that answers and could not be fenced is not abandoned."""
    if evidence.source is None or evidence.source.is_fenced or not fence_problem:
        return ""
    if policy.accepts_data_loss:
        return ""
    return (
        f"{evidence.source.site} answers but could not be fenced ({fence_problem}), so it could go on taking "
        "writes that would be lost; accept data loss to go on all the same"
    )


def divergence_refusal(found: Differences, *, to_site: str, source_site: str) -> str:
    """A copy that is not the source's history, or of which nothing shows that it is."""
    if not found:
        return ""
    named = found.summary(copy_site=to_site, source_site=source_site)
    return (
        f"{to_site} is no copy of {source_site}: {named}; have these copies made anew (antipode links reset), or accept data "
        f"loss to promote {to_site} with what it has"
    )


def lag_refusal(target: SiteEvidence, *, remaining_records: int, allowed: int | None, stopped_for: str) -> str:
    """The target lacks more records than are allowed; `allowed` None: any number is.
    `stopped_for` says for how long writers have been stopped.
    """
    if allowed is None or remaining_records <= allowed:
        return ""
    return (
        f"{remaining_records} records known at the active site are not at {target.site}, more than the {allowed} allowed"
        f"{stopped_for}; "
        f"repair the link, allow more, or accept data loss{named_unprotected(target)}"
    )


def lack_refusal(problem: str) -> str:
    """Something beside records is missing, or is not known to be there."""
    return f"{problem}; see that the link's mirror runs and what it says, or accept data loss" if problem else ""


def named_unprotected(target: SiteEvidence) -> str:
    """The topics that no mirroring will bring."""
    reasons = [topic.reason for topic in target.unprotected]
    more = f" (and {len(reasons) - NAMED_IN_A_REASON_MAX} more)" if len(reasons) > NAMED_IN_A_REASON_MAX else ""
    return f"; {'; '.join(reasons[:NAMED_IN_A_REASON_MAX])}{more}" if reasons else ""
