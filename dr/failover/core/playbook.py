"""A failover as a machine: evidence of both sites in, the next step out; it can be stopped anywhere
and run again by any operator.

Steps, in the order of an undisturbed run:

    prepare    wait, while the source still takes writes, until a mirror lives and the target
               follows closely (skipped when the source does not answer, or is fenced already)
    fence      the source's record goes to FENCED and every live broker there stops taking writes
               (skipped when no agent answers)
    drain      wait until the target has everything (source fenced: up to its exact ends, then every
               offset that groups committed, no longer than writers may be stopped; else: until
               nothing more arrives)
    raise      the next epoch, with a leader-epoch band of its own, is stored at the target: the
               point of no return. When the source is lost, or not known to be fenced, the same
               record suspends a sync policy `block` (`dr/sites/core/sync_policies.py`)
    truncate   with a time to fail over to, or a consistent cut: the target's logs end there, and
               what lies behind goes to quarantine (skipped without one)
    hand_back  the truncation failed again and again, and the source answers: it is active again in
               the next epoch
    account    the ends that the target kept are written beside the link, before any client can add
               to them (with the raise itself when the drain was whole: the account is final then)
    promote    leaders above the floor are awaited, then the role is confirmed to the target: writes
               begin
    notify     the source learns the new record (or reads it from its peer when it comes back)

What a step must do is decided from the link records and logs as observed, never from what this run
remembers, so a rerun after a crash goes on where the first one stopped. Only four things are
remembered: the source's logs as last seen (exact once seen under a fence: they cannot change any
more), how long this run has prepared, stopped writers and drained, how quickly the target follows,
and which steps were tried in vain.

Invariants (the tests' names carry the letters):
    F-a  nothing is raised while a fenced source could still be drained within the time that the
         policy gives
    F-b  a new epoch is stored first at the site that is passive under the old one, so of two
         operators one wins
    F-c  writes at the target begin only after the account is kept
    F-d  a refusal leaves no fence behind
    F-e  a source that answers but cannot be fenced, or cannot be drained, is not abandoned unless
         data loss was accepted
    F-f  the same goes for groups and transactional ids: no offset that was committed before the
         fence, and no producer, is left behind by a failover from a source that answers
    F-g  a source that answers is not fenced before a mirror lives and the target follows closely;
         one run stops writers no longer than the policy allows before it raises or gives back
    F-h  a copy that is not the source's history, or of which nothing shows that it is, is not
         promoted unless data loss was accepted
    F-i  a switchover raises nothing while the source does not answer
    F-j  a source that does not answer is abandoned only where the operator declared it down, or
         where the link has a lease: its permits run out before the target takes writes
    F-l  a failover to a time or a consistent cut truncates after the raise, when no mirror can
         append any more, and before the account is kept; another run does it when the first one
         died
    F-m  an abort gives writes back to a source that is fenced, or that waits for a truncation, and
         does nothing else; otherwise it is refused once the epoch is raised
    F-n  a truncation that fails does not leave both sites without writers: a source that answers is
         active again in the next epoch
    F-k  a fenced source whose log grows has a writer that the fence does not stop: its writes are
         given back unless data loss was accepted
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.failover.core.preparation import CLOSE_SHARE, OBSTACLE_AWAITED_MS, CatchUp, leaderless_sentence, obstacle
from dr.failover.core.promotion import is_promoted
from dr.failover.core.refusals import (
    NAMED_IN_A_REASON_MAX,
    arbiter_refusal,
    bypass_refusal,
    deposed_refusal,
    fence_refusal,
    named_unprotected,
    silence_refusal,
)
from dr.failover.core.steps import (
    ABORTED,
    Decision,
    DrainState,
    FailoverPolicy,
    Step,
    StepEnded,
    refuse,
    truncation_reason,
)
from dr.sites.core.divergence import Differences, find_differences, promotion_of
from dr.sites.core.evidence import Evidence, SiteEvidence, SiteGroups
from dr.sites.core.fencing import FIRST_EPOCH, fenced, given_back, raised
from dr.sites.core.group_offsets import offsets_behind
from dr.sites.core.source_ends import SourceEnd, best_source_end, source_ends
from dr.sites.core.transactional_ids import producers_lacking
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.links import supersedes, truncates_logs

TRUNCATE_ATTEMPTS_MAX = 3
"""Truncations that fail, before the writes are given back."""
FENCE_ATTEMPTS_MAX = 3
"""Fences that are undone at once by another process, before the source counts as one that cannot be
fenced.
"""
FENCED_LOOKS_MIN = 2
"""Looks at a fenced source before an epoch is raised: two show whether its logs stand still."""


class FailoverPlaybook:
    """One operator's run. Call `observe` with fresh evidence, `decide`, carry the step out, `apply`
    how it ended; repeat.
    """

    def __init__(self, *, to_site: str, policy: FailoverPolicy) -> None:
        self._to_site = to_site
        self._policy = policy
        self._source_ends: dict[TopicPartition, SourceEnd] = {}
        self._is_fence_proven = False
        self._fenced_epoch = 0
        self._fence_problem = ""
        self._fence_count = 0
        self._truncate_count = 0
        self._fenced_looks = 0
        self._ended: dict[Step, StepEnded] = {}
        self._prepare_started_at_ms: int | None = None
        self._stopped_at_ms: int | None = None
        self._observed_at_ms = 0
        self._catch_up = CatchUp()
        self._drain_started_at_ms: int | None = None
        self._last_ends: dict[TopicPartition, int] = {}
        self._last_arrival_at_ms = 0
        self._source_groups: SiteGroups | None = None
        self._is_raised = False
        self._bypass = ""

    @property
    def wants_groups(self) -> bool:
        """True when the next evidence must say what groups have committed: under a fence, before
        anything is raised.
        """
        return self.is_source_final and not self._is_raised

    @property
    def is_source_final(self) -> bool:
        """True when the source's logs do not grow any more: the fence is proven, or every broker
        there has just reported that it is in force.
        """
        fence = self._ended.get(Step.FENCE)
        is_fence_stored = fence is not None and not fence.problem and Step.GIVE_BACK not in self._ended
        return self._is_fence_proven or is_fence_stored

    @property
    def wants_source(self) -> bool:
        """False between this run's raise and its promotion, when the source is fenced and only the
        target decides what comes next.
        """
        if self._policy.kept_before_ms or self._policy.is_cut_consistent:
            return True  # writes are handed back to it when the truncation fails
        is_raised_here = self._is_fence_proven and self._is_raised and Step.RAISE in self._ended
        return not is_raised_here or Step.PROMOTE in self._ended

    def has_everything(self, evidence: Evidence, now_ms: int) -> bool:
        """True when the target has all that the fenced source has, so that the account of the next
        epoch is final before it is raised.
        """
        drain = self.drain_state(evidence, now_ms)
        return (
            self._is_complete(drain.remaining, drain.problem, is_exact=drain.is_exact) and evidence.source is not None
        )

    @property
    def source_groups(self) -> SiteGroups | None:
        """The source's groups as it last reported them under a fence; None when it did not."""
        return self._source_groups

    @property
    def known_source_ends(self) -> Mapping[TopicPartition, SourceEnd]:
        """The source's ends as it last reported them itself; exact once it was seen fenced."""
        return dict(self._source_ends)

    @property
    def drained_ends(self) -> dict[TopicPartition, int]:
        """Ends that the target is known to keep before anything is raised: those of a fenced
        source, when it has them all.
        """
        exact = {key: end.end_offset for key, end in self._source_ends.items() if end.is_exact}
        return {key: end for key, end in exact.items() if self._last_ends.get(key, 0) == end}

    @property
    def is_fence_proven(self) -> bool:
        """True once every live broker of the source was seen to refuse writes."""
        return self._is_fence_proven

    def observe(self, evidence: Evidence, now_ms: int) -> None:
        """Take in fresh evidence; `now_ms` is monotonic enough to measure a drain."""
        source = evidence.source
        self._observed_at_ms = now_ms
        if source is not None and source.record.phase == LinkPhase.FENCED and self._stopped_at_ms is None:
            self._stopped_at_ms = now_ms
        if source is not None and source.is_fenced:
            if self._is_fence_proven:
                self._bypass = self._bypass or self._growth_under_the_fence(source)
                self._source_groups = source.groups or self._source_groups
            self._fenced_looks += 1
            self._is_fence_proven, self._fenced_epoch = True, source.record.epoch
            self._remember_source(source)
        elif self._is_fence_proven and self._was_given_back(evidence):
            self._is_fence_proven = False
            self._fenced_looks = 0
            self._ended.pop(Step.FENCE, None)
            self._stopped_at_ms = None
            self._source_ends.clear()
            self._source_groups = None
        if evidence.target is None:
            return
        self._is_raised = evidence.governing.active_site == self._to_site
        if self._is_raised:
            return
        if source is not None:
            self._remember_source(source)
            here = {key: position.safe_end_offset for key, position in evidence.target.copies.items()}
            ends = {key: position.log_end_offset for key, position in source.partitions.items()}
            self._catch_up.observe(here, ends, now_ms)
        self._watch_arrivals(evidence.target, now_ms)

    def _growth_under_the_fence(self, source: SiteEvidence) -> str:
        """The log of the fenced source that grew since the last look; empty when none did, or when
        markers of decided transactions may be the reason.
        """
        groups = self._source_groups
        if groups is None or groups.committing_transactions or groups.transaction_problems:
            return ""
        for key, position in sorted(source.partitions.items()):
            known = self._source_ends.get(key)
            if known is not None and known.is_exact and position.log_end_offset > known.end_offset:
                return (
                    f"{key} grew from {known.end_offset} to {position.log_end_offset} at {source.site} although every broker there "
                    "reported that it refuses writes"
                )
        return ""

    def _was_given_back(self, evidence: Evidence) -> bool:
        """Another operator ended the fence: the source has been writing again."""
        known = [site.record for site in (evidence.target, evidence.source) if site is not None]
        return any(record.epoch > self._fenced_epoch and record.active_site != self._to_site for record in known)

    def _remember_source(self, source: SiteEvidence) -> None:
        is_exact = source.is_fenced
        for key, end in source_ends(source.partitions, seen_at_ms=source.seen_at_ms, is_exact=is_exact).items():
            known = self._source_ends.get(key)
            if known is None or not known.is_exact or is_exact:
                self._source_ends[key] = end

    def _watch_arrivals(self, target: SiteEvidence, now_ms: int) -> None:
        ends = {key: position.safe_end_offset for key, position in target.partitions.items()}
        if ends != self._last_ends:
            self._last_ends = ends
            self._last_arrival_at_ms = now_ms

    def apply(self, ended: StepEnded, now_ms: int) -> None:
        """Take in how a step ended."""
        self._ended[ended.step] = ended
        if ended.step is Step.PREPARE and self._prepare_started_at_ms is None:
            self._prepare_started_at_ms = self._observed_at_ms
        if ended.step is Step.FENCE:
            if self._stopped_at_ms is None:
                self._stopped_at_ms = self._observed_at_ms
            self._fence_count += 1
            has_tried_enough = self._fence_count >= FENCE_ATTEMPTS_MAX
            self._fence_problem = ended.problem or ("it takes writes again and again" if has_tried_enough else "")
        if ended.step is Step.TRUNCATE:
            self._truncate_count += 1
        if ended.step is Step.DRAIN and self._drain_started_at_ms is None:
            self._drain_started_at_ms = now_ms
            self._last_arrival_at_ms = now_ms

    def decide(self, evidence: Evidence, now_ms: int) -> Decision:
        """The next step; changes nothing."""
        if evidence.target is None:
            return refuse(f"site {self._to_site} does not answer: {evidence.target_problem}")
        governing = evidence.governing
        if self._to_site not in (governing.source_site, governing.target_site):
            return refuse(
                f"link {governing.name} joins {governing.source_site} and {governing.target_site}, not {self._to_site}"
            )
        gave_back = self._ended.get(Step.GIVE_BACK) or self._ended.get(Step.HAND_BACK)
        if gave_back is not None:
            trouble = f"; the writes could not be given back: {gave_back.problem}" if gave_back.problem else ""
            return refuse(gave_back.reason + trouble)
        if failed := self._raise_failure(evidence.target, governing):
            return refuse(failed)
        if self._policy.is_abort:
            return self._abort(evidence, governing, now_ms)
        if governing.active_site == self._to_site:
            return self._after_the_raise(evidence, evidence.target, now_ms)
        return self._before_the_raise(evidence, now_ms)

    def _abort(self, evidence: Evidence, governing: LinkRecord, now_ms: int) -> Decision:
        """Writers go on where they were; a raised epoch is past the point of no return, unless it
        waits for a truncation: no client has written in it.
        """
        if governing.phase == LinkPhase.FENCED:
            return self._give_back_or_refuse(governing, ABORTED, now_ms)
        target, source = evidence.target, evidence.source
        is_waiting = truncates_logs(governing) and governing.active_site == self._to_site
        if target is not None and source is not None and is_waiting and self._may_account(target, governing):
            return self._hand_back(evidence, governing, ABORTED, now_ms)
        return refuse(
            f"link {governing.name} is not fenced: {governing.active_site} is active in epoch {governing.epoch}; a raised epoch is the "
            "point of no return, and a failover that did not finish after it is finished by running it again"
        )

    def _hand_back(self, evidence: Evidence, governing: LinkRecord, reason: str, now_ms: int) -> Decision:
        """The source is active again; the target's copies are a prefix of its logs."""
        assert evidence.source is not None
        record = raised(
            governing,
            to_site=evidence.source.site,
            highest_leader_epoch=evidence.highest_leader_epoch,
            now_ms=now_ms,
        )
        return Decision(step=Step.HAND_BACK, reason=reason, record=record)

    def _raise_failure(self, target: SiteEvidence, governing: LinkRecord) -> str:
        """The raise was tried and the target does not have it: another process stored another
        outcome, or nothing is known.
        """
        ended = self._ended.get(Step.RAISE)
        if ended is None or (governing.active_site == self._to_site and not supersedes(governing, target.record)):
            return ""
        if ended.stored is None:
            return f"the epoch could not be raised at {self._to_site} ({ended.problem}); run again to go on"
        return (
            f"another operator moved link {governing.name} to epoch {governing.epoch} with {governing.active_site} active "
            "meanwhile; look at it and run again"
        )

    def _before_the_raise(self, evidence: Evidence, now_ms: int) -> Decision:
        governing, source = evidence.governing, evidence.source
        refusal = (
            deposed_refusal(source, to_site=self._to_site)
            or silence_refusal(evidence, self._policy, is_fence_proven=self._is_fence_proven)
            or bypass_refusal(self._bypass, self._policy)
            or arbiter_refusal(evidence)
        )
        if refusal:
            return self._give_back_or_refuse(governing, refusal, now_ms)
        if source is not None and not source.is_fenced and not self._fence_problem:
            waiting = self._preparation(evidence, source, now_ms)
            if waiting is not None:
                return waiting
            return Decision(
                step=Step.FENCE,
                reason=f"{source.site} answers and may still take writes in epoch {governing.epoch}",
                record=fenced(governing, now_ms=now_ms),
            )
        if refusal := self._divergence_refusal(evidence):
            return self._give_back_or_refuse(governing, refusal, now_ms)
        if not fence_refusal(evidence, self._policy, fence_problem=self._fence_problem):
            drain = self.drain_state(evidence, now_ms)
            if not drain.is_over:
                known = "exactly" if drain.is_exact else "at least"
                missing = f"{known} {drain.remaining_records} records are missing here"
                return Decision(step=Step.DRAIN, reason=drain.problem or missing)
        if refusal := self._refusal_of(evidence, now_ms):
            return self._give_back_or_refuse(governing, refusal, now_ms)
        return Decision(
            step=Step.RAISE,
            reason=f"{self._to_site} has what it can get: epoch {governing.epoch} ends",
            record=raised(
                governing,
                to_site=self._to_site,
                highest_leader_epoch=evidence.highest_leader_epoch,
                now_ms=now_ms,
                is_other_lost=evidence.source is None or not self._is_fence_proven,
                kept_before_ms=self._policy.kept_before_ms,
                is_cut_consistent=self._policy.is_cut_consistent,
            ),
        )

    def _preparation(self, evidence: Evidence, source: SiteEvidence, now_ms: int) -> Decision | None:
        """The step that must come before writers are stopped; None when they may be stopped."""
        target, policy = evidence.target, self._policy
        assert target is not None
        if evidence.governing.phase == LinkPhase.FENCED or policy.accepts_data_loss:
            return None
        if refusal := self._divergence_refusal(evidence):
            return refuse(refusal)
        waited_ms = 0 if self._prepare_started_at_ms is None else now_ms - self._prepare_started_at_ms
        if reason := obstacle(source, target, link=evidence.link):
            if self._prepare_started_at_ms is not None and waited_ms >= OBSTACLE_AWAITED_MS:
                return refuse(f"{reason}; nothing was changed")
            return Decision(step=Step.PREPARE, reason=reason)
        remaining = self.drain_state(evidence, now_ms).remaining_records
        lacking = f"{remaining} records known at the active site are not at {target.site}"
        if not remaining:
            lacking = self._absent(evidence) or lacking
        if self._catch_up.is_close(within_ms=CLOSE_SHARE * policy.unavailability_max_ms, now_ms=now_ms):
            return None
        if policy.lag_records_max is not None and remaining <= policy.lag_records_max:
            return None
        if self._prepare_started_at_ms is not None and waited_ms >= policy.drain_timeout_ms:
            return refuse(
                f"{lacking}, and the mirror does not catch up within {policy.drain_timeout_ms} ms{named_unprotected(target)}; "
                "nothing was changed: repair the link, allow more lag, or accept data loss"
            )
        return Decision(step=Step.PREPARE, reason=f"{lacking}; writes go on meanwhile")

    def drain_state(self, evidence: Evidence, now_ms: int) -> DrainState:
        """Return how far the target lags behind the known state of the source, and whether a longer
        wait makes sense.
        """
        target = evidence.target
        assert target is not None
        copies = target.copies
        keys = {*self._source_ends, *copies}
        remaining: dict[TopicPartition, int] = {}
        is_exact = self._is_fence_proven
        for key in keys:
            end = best_source_end(copies.get(key), self._source_ends.get(key))
            here = copies[key].safe_end_offset if key in copies else 0
            if end is None or not end.is_exact:
                is_exact = False
            if end is not None and end.end_offset > max(here, end.log_start_offset):
                remaining[key] = end.end_offset - max(here, end.log_start_offset)
        problem = "" if remaining else self._lack(evidence)
        is_complete = self._is_complete(remaining, problem, is_exact=is_exact)
        may_arrive = self._is_fence_proven and evidence.source is not None and not is_complete
        is_over = is_complete or self._is_drain_over(may_arrive=may_arrive, now_ms=now_ms)
        return DrainState(remaining=remaining, is_exact=is_exact, is_over=is_over, problem=problem)

    def _is_complete(self, remaining: Mapping[TopicPartition, int], problem: str, *, is_exact: bool) -> bool:
        """One look under the fence shows no log that grows past it: two are needed (F-k)."""
        return is_exact and not remaining and not problem and self._fenced_looks >= FENCED_LOOKS_MIN

    def _absent(self, evidence: Evidence) -> str:
        """Partitions of the source that the target does not have at all: without a record they lack
        no offset.
        """
        target = evidence.target
        if evidence.source is None or target is None:
            return ""
        absent = sorted(self._source_ends.keys() - target.partitions.keys() - target.leaderless)
        names = ", ".join(map(str, absent[:NAMED_IN_A_REASON_MAX]))
        return f"{len(absent)} partitions are not here yet ({names})" if absent else ""

    def _groups_problem(self, evidence: Evidence) -> str:
        """The reason why offsets that groups committed before the fence may be missing at the
        target; unknown when the source does not answer.
        """
        source, target = evidence.source, evidence.target
        if not self._is_fence_proven or source is None or target is None:
            return ""
        if self._source_groups is None or target.groups is None:
            return f"what groups have committed at {source.site} is not known yet"
        reported = self._source_groups
        if reported.committing_transactions:
            return f"{reported.committing_transactions} committed transactions are not marked at {source.site} yet"
        if problems := (*reported.problems, *reported.transaction_problems, *target.groups.problems):
            return f"what groups have committed cannot be compared: {'; '.join(problems)}"
        behind = offsets_behind(reported, target.groups, target.partitions, is_routed=evidence.governing.is_routed)
        if not behind:
            return producers_lacking(reported, target.groups)
        return (
            f"{len(behind)} committed offsets are not here yet ({'; '.join(map(str, behind[:NAMED_IN_A_REASON_MAX]))})"
        )

    def _is_drain_over(self, *, may_arrive: bool, now_ms: int) -> bool:
        if self._drain_started_at_ms is None:
            return False
        if self._is_fence_proven and self._stopped_at_ms is not None:
            if now_ms - self._stopped_at_ms >= self._policy.unavailability_max_ms:
                return True
        elif now_ms - self._drain_started_at_ms >= self._policy.drain_timeout_ms:
            return True
        has_settled = now_ms - self._last_arrival_at_ms >= self._policy.settle_ms
        return has_settled and not may_arrive

    def _refusal_of(self, evidence: Evidence, now_ms: int) -> str:
        """The reason why the epoch must not be raised now; empty when it may be raised."""
        if refusal := fence_refusal(evidence, self._policy, fence_problem=self._fence_problem):
            return refusal
        if self._policy.accepts_data_loss:
            return ""
        return self._lag_refusal(evidence, now_ms) or self._lack_refusal(evidence)

    def _lack_refusal(self, evidence: Evidence) -> str:
        problem = self._lack(evidence)
        return f"{problem}; see that the link's mirror runs and what it says, or accept data loss" if problem else ""

    def _lack(self, evidence: Evidence) -> str:
        return self._leaderless(evidence) or self._absent(evidence) or self._groups_problem(evidence)

    def _leaderless(self, evidence: Evidence) -> str:
        """Partitions of a fenced source without a leader there: their logs cannot be brought
        over.
        """
        source = evidence.source
        return leaderless_sentence(source) if source is not None and self._is_fence_proven else ""

    def differences(
        self,
        target: SiteEvidence,
        *,
        source_site: str,
        is_source_fresh: bool = False,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> Differences:
        """The partitions where the target's copies, up to `ends` where given, are not the known
        history of the source. `is_source_fresh`: the source was asked after the target, so that the
        target cannot be a later state.
        """
        return find_differences(
            target.copies,
            {key: end.history for key, end in self._source_ends.items()},
            is_source_final={key: is_source_fresh or end.is_exact for key, end in self._source_ends.items()},
            promotion=promotion_of(source_site, target.promotions),
            ends=ends,
        )

    def _divergence_refusal(self, evidence: Evidence) -> str:
        source_site, target = evidence.governing.active_site, evidence.target
        assert target is not None
        found = self.differences(target, source_site=source_site, is_source_fresh=evidence.source is not None)
        if not found or self._policy.accepts_data_loss:
            return ""
        named = found.summary(copy_site=self._to_site, source_site=source_site)
        return (
            f"{self._to_site} is no copy of {source_site}: {named}; have these copies made anew (antipode links reset), or accept data "
            f"loss to promote {self._to_site} with what it has"
        )

    def _lag_refusal(self, evidence: Evidence, now_ms: int) -> str:
        remaining = self.drain_state(evidence, now_ms).remaining_records
        allowed = self._policy.lag_records_max
        if allowed is None and self._is_fence_proven and evidence.source is not None:
            allowed = 0
        if allowed is None or remaining <= allowed:
            return ""
        return (
            f"{remaining} records known at the active site are not at {self._to_site}, more than the {allowed} allowed"
            f"{self._stopped_for(now_ms)}; "
            f"repair the link, allow more, or accept data loss{named_unprotected(evidence.target)}"
        )

    def _stopped_for(self, now_ms: int) -> str:
        if not self._is_fence_proven or self._stopped_at_ms is None:
            return ""
        return (
            f" after writes were stopped for {now_ms - self._stopped_at_ms} ms (at most {self._policy.unavailability_max_ms} ms "
            "are allowed)"
        )

    def _give_back_or_refuse(self, governing: LinkRecord, refusal: str, now_ms: int) -> Decision:
        is_fenced = governing.phase == LinkPhase.FENCED or self._is_fence_proven
        if not is_fenced:
            return refuse(refusal)
        return Decision(step=Step.GIVE_BACK, reason=refusal, record=given_back(governing, now_ms=now_ms))

    def _truncation(
        self, evidence: Evidence, target: SiteEvidence, governing: LinkRecord, now_ms: int
    ) -> Decision | None:
        """The truncation, or what follows when it fails; None when it is done or not due."""
        if not truncates_logs(governing) or not self._may_account(target, governing):
            return None
        ended = self._ended.get(Step.TRUNCATE)
        if ended is None or (ended.problem and self._truncate_count < TRUNCATE_ATTEMPTS_MAX):
            return Decision(step=Step.TRUNCATE, reason=truncation_reason(governing), record=governing)
        if not ended.problem:
            return None
        failed = f"logs could not be truncated ({ended.problem})"
        if evidence.source is None:
            return refuse(f"{failed}; {target.site} takes no writes yet: run again to go on")
        reason = f"{failed}; {evidence.source.site} is active again"
        return self._hand_back(evidence, governing, reason, now_ms)

    def _after_the_raise(self, evidence: Evidence, target: SiteEvidence, now_ms: int) -> Decision:
        source, governing = evidence.source, evidence.governing
        epoch = governing.epoch
        is_behind = supersedes(governing, target.record)
        if is_behind or (target.lagging_brokers and Step.RAISE not in self._ended):
            return Decision(
                step=Step.RAISE, reason=f"epoch {epoch} must stand at every broker of {target.site}", record=governing
            )
        if (decision := self._truncation(evidence, target, governing, now_ms)) is not None:
            return decision
        if self._may_account(target, governing):
            return Decision(step=Step.ACCOUNT, reason=f"the account of epoch {epoch} is not kept yet", record=governing)
        if not is_promoted(target) and Step.PROMOTE not in self._ended:
            return Decision(
                step=Step.PROMOTE, reason=f"not every partition takes writes at {target.site} yet", record=governing
            )
        if source is not None and supersedes(governing, source.record) and Step.NOTIFY not in self._ended:
            return Decision(
                step=Step.NOTIFY, reason=f"{source.site} is at epoch {source.record.epoch} still", record=governing
            )
        if not self._ended:
            return refuse(f"{target.site} is active for link {governing.name} already, since epoch {epoch}")
        return Decision(step=Step.DONE, reason=f"{target.site} is active in epoch {epoch}")

    def _may_account(self, target: SiteEvidence, governing: LinkRecord) -> bool:
        is_kept = governing.epoch in target.accounted_epochs or governing.epoch == FIRST_EPOCH
        return not is_kept and Step.ACCOUNT not in self._ended
