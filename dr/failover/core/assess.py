"""Predicts the steps and the losses of a failover, for `--dry-run` and for the first lines of a
real run. The playbook itself decides, so the plan and the run have the same refusals.
"""

from __future__ import annotations

from msgspec import Struct

from dr.failover.core.loss_counting import account
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.preparation import OBSTACLE_AWAITED_MS, obstacle
from dr.failover.core.steps import CHANGING_STEPS, FailoverPolicy, Step, StepEnded
from dr.failover.core.truncation_check import TruncationCheck
from dr.sites.core.evidence import Evidence, SiteEvidence, SiteGroups
from dr.sites.core.group_offsets import GroupLoss, group_loss
from dr.sites.core.loss import LossAccount
from dr.sites.core.record_changes import changed
from dr.sites.core.sync_policies import policy_sentence
from wire.control.cluster_pb2 import LinkRecord


class Assessment(Struct, frozen=True, kw_only=True):
    """The plan: `steps` in order (none when `refusal` says why not).

    `missing_offsets` counts offsets of groups. `unprotected` names the topics of which nothing is
    kept. `account` has the losses of a failover now; None when the source answers and the target is
    its copy: then the source would be fenced, and the target would receive the missing records.
    """

    steps: tuple[str, ...]
    refusal: str
    is_source_reachable: bool
    missing_records: int
    missing_offsets: int
    account: LossAccount | None
    sync: str
    """The condition for which acks=all would wait afterwards; empty on a link that never waits."""
    unprotected: tuple[str, ...] = ()


def assess(
    evidence: Evidence,
    *,
    to_site: str,
    policy: FailoverPolicy,
    now_ms: int,
    truncations: TruncationCheck | None = None,
) -> Assessment:
    """Plan a failover from one piece of evidence; a source that answers is expected to be fenced
    and drained. `truncations` knows where a failover to a time truncates compacted logs.
    """
    playbook = FailoverPlaybook(to_site=to_site, policy=policy)
    playbook.truncations = truncations or playbook.truncations
    playbook.observe(evidence, now_ms)
    decision = playbook.decide(evidence, now_ms)
    if decision.step is Step.PREPARE and _is_hindered(evidence):
        # A run first waits for a mirror or a leader. The plan names the refusal that follows if
        # none comes.
        playbook.apply(StepEnded(step=Step.PREPARE), now_ms)
        decision = playbook.decide(evidence, now_ms + OBSTACLE_AWAITED_MS)
    if decision.step is Step.DRAIN and evidence.source is None:
        # Nothing arrives from a lost source, so the plan continues as after the end of the run's
        # wait.
        playbook.apply(StepEnded(step=Step.DRAIN), now_ms)
        decision = playbook.decide(evidence, now_ms + policy.drain_timeout_ms)
    target = evidence.target
    if target is None or evidence.governing.active_site == to_site or decision.step is Step.REFUSE:
        refusal = decision.reason if decision.step is Step.REFUSE else ""
        steps = () if refusal else _remaining_steps(decision.step)
        return Assessment(
            steps=steps,
            refusal=refusal,
            is_source_reachable=evidence.source is not None,
            missing_records=0,
            missing_offsets=0,
            account=None,
            sync="",
        )
    after = decision.record if decision.record is not None and decision.step is Step.RAISE else evidence.governing
    groups = group_loss(
        None if evidence.source is None else evidence.source.groups,
        target.groups or SiteGroups(),
        target.partitions,
        is_fenced=playbook.source.is_fence_proven,
        is_routed=evidence.governing.is_routed,
        now_ms=now_ms,
    )
    return Assessment(
        steps=CHANGING_STEPS if evidence.source is not None else ("drain", "raise", "account", "promote"),
        refusal="",
        is_source_reachable=evidence.source is not None,
        missing_records=playbook.completion(evidence).remaining_records,
        missing_offsets=groups.known_lost_offsets,
        unprotected=tuple(topic.reason for topic in target.unprotected),
        account=_planned_account(playbook, evidence, target, groups, now_ms),
        sync=policy_sentence(_as_active(after, to_site)),
    )


def _planned_account(
    playbook: FailoverPlaybook, evidence: Evidence, target: SiteEvidence, groups: GroupLoss, now_ms: int
) -> LossAccount | None:
    source_site = evidence.governing.active_site
    differences = playbook.source.differences(
        target, source_site=source_site, is_source_fresh=evidence.source is not None
    )
    if evidence.source is not None and not differences:
        return None
    return account(
        link=evidence.link,
        epoch=evidence.governing.epoch + 1,
        from_site=source_site,
        to_site=target.site,
        kept={key: position.log_end_offset for key, position in target.partitions.items()},
        target=target.partitions,
        source=playbook.source.ends,
        now_ms=now_ms,
        groups=groups,
        unprotected=target.unprotected,
        peer_seen_at_ms=target.peer_seen_at_ms,
        differences=differences,
    )


def _is_hindered(evidence: Evidence) -> bool:
    source, target = evidence.source, evidence.target
    return source is not None and target is not None and bool(obstacle(source, target, link=evidence.link))


def _as_active(record: LinkRecord, site: str) -> LinkRecord:
    return changed(record, active_site=site)


def _remaining_steps(first: Step) -> tuple[str, ...]:
    """The remaining steps of a failover that has begun."""
    return CHANGING_STEPS[CHANGING_STEPS.index(first) :] if first in CHANGING_STEPS else ()
