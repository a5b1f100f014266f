"""A failover as a state machine: its input is evidence of both sites, its output is the next step.
A run may be stopped at any point, and any operator may run it again.

Steps, in the order of an undisturbed run:

    prepare    wait, while the source still takes writes, until a mirror lives and the target
               follows closely (skipped when the source does not answer, or is fenced already)
    fence      the source's record goes to FENCED and every live broker there stops taking writes
               (skipped when no agent answers)
    drain      wait until the target has everything (source fenced: up to its exact ends, then every
               offset of groups and every access rule, no longer than writers may be stopped; else:
               until nothing more arrives)
    raise      the next epoch, with a leader-epoch band of its own, is stored at the target: the
               point of no return. When the source is lost, or not known to be fenced, the same
               record suspends a sync policy `block` (`dr/sites/core/sync_policies.py`)
    truncate   with a time to fail over to, or a consistent cut: the target's logs are truncated
               there, and later records go to quarantine (skipped otherwise)
    hand_back  the truncation failed again and again, and the source answers: it is active again in
               the next epoch
    account    the ends that the target kept are written beside the link, before any client can add
               to them (with the raise itself when the drain was whole: the account is final then)
    promote    leaders above the floor are awaited, then the role is confirmed to the target: writes
               begin
    notify     the source learns the new record (or reads it from its peer when it comes back)

Each decision follows from the observed link records and logs and not from the memory of the run, so
a rerun after a crash continues where the first run stopped. A run remembers only four things: the
source's logs as last seen (exact once they were seen under a fence), for how long it has prepared,
stopped writers and drained, how quickly the target follows, and which steps have failed.

Invariants (the tests' names carry the letters):
    F-a  nothing is raised while a fenced source could still be drained within the time that the
         policy gives
    F-b  a new epoch is stored first at the site that is passive under the old one, so of two
         operators one wins
    F-c  writes at the target begin only after the account is kept
    F-d  a refusal leaves no fence behind
    F-e  a source that answers but cannot be fenced, or cannot be drained, is not abandoned unless
         data loss was accepted
    F-f  the same goes for groups, transactional ids and access rules: of a source that answers, no
         offset, no producer and no change of an ACL, user or quota before the fence is left behind
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
    F-o  a failover to a time raises nothing if compaction at the target has removed records whose
         newer ones would be truncated, unless data loss was accepted
    F-k  a fenced source whose log grows has a writer that the fence does not stop: its writes are
         given back unless data loss was accepted
"""

from __future__ import annotations

from dr.failover.core.after_raise import AfterTheRaise, hand_back
from dr.failover.core.completion import Completion, absent, completion, lack
from dr.failover.core.drain import Drain
from dr.failover.core.known_source import KnownSource
from dr.failover.core.preparation import Preparation
from dr.failover.core.refusals import (
    arbiter_refusal,
    bypass_refusal,
    deposed_refusal,
    divergence_refusal,
    fence_refusal,
    lack_refusal,
    lag_refusal,
    raise_refusal,
    silence_refusal,
    target_refusal,
    truncation_refusal,
)
from dr.failover.core.steps import ABORTED, Decision, FailoverPolicy, Step, StepEnded, refuse
from dr.failover.core.truncation_check import TruncationCheck
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.fencing import fenced, given_back, raised
from dr.sites.core.log_columns import LogEnds
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.links import truncates_logs

FENCE_ATTEMPTS_MAX = 3
"""Number of fences, each undone at once by another process, after which the source counts as one
that cannot be fenced.
"""


class FailoverPlaybook:
    """One operator's run. Call `observe` with fresh evidence, then `decide`, carry out the step,
    and call `apply` with its result; repeat.
    """

    def __init__(self, *, to_site: str, policy: FailoverPolicy, settled_ends: LogEnds | None = None) -> None:
        self._to_site = to_site
        self._policy = policy
        self.source = KnownSource(to_site=to_site)
        """The known state of the source; `observe` keeps it up to date."""
        self._preparation = Preparation(policy)
        self._drain = Drain(self.source, policy, settled_ends=settled_ends)
        self._ended: dict[Step, StepEnded] = {}
        self._fence_problem = ""
        self._fence_count = 0
        self._after_the_raise = AfterTheRaise(self._ended)
        self._observed_at_ms = 0
        self._compared: tuple[Evidence, Completion] | None = None
        self._is_raised = False
        self.truncations = TruncationCheck(policy)
        """The offsets of the time to fail over to; the run looks them up."""

    @property
    def wants_groups(self) -> bool:
        """True when the next evidence must include the offsets of groups: under a fence, before the
        epoch is raised.
        """
        return self.is_source_final and not self._is_raised and not self._has_raised

    @property
    def is_source_final(self) -> bool:
        """True when the source's logs cannot grow: the fence is proven, or every broker there has
        just reported that it is in force.
        """
        fence = self._ended.get(Step.FENCE)
        is_fence_stored = fence is not None and not fence.problem and Step.GIVE_BACK not in self._ended
        return self.source.is_fence_proven or is_fence_stored

    @property
    def is_planned(self) -> bool:
        """True for a switchover whose fence this run has proven. A run that finishes the failover
        of another run does not know how that one began.
        """
        return self._policy.is_switchover and self.source.is_fence_proven

    @property
    def wants_source(self) -> bool:
        """False between this run's raise and its promotion, when the source is fenced and only the
        target decides the next step.
        """
        if self._policy.kept_before_ms or self._policy.is_cut_consistent:
            return True  # a failed truncation hands the writes back to the source
        is_raised_here = self.source.is_fence_proven and self._has_raised
        return not is_raised_here or Step.PROMOTE in self._ended

    @property
    def _has_raised(self) -> bool:
        """True when the target has answered this run's raise with a record that makes it active.
        The next look then need not ask the source.
        """
        ended = self._ended.get(Step.RAISE)
        return ended is not None and ended.stored is not None and ended.stored.active_site == self._to_site

    def may_be_raised(self, evidence: Evidence) -> bool:
        """True if the target is active as far as the run knows, or may be: the answer to the raise
        was lost. A run that ended then has to be repeated.
        """
        if Step.GIVE_BACK in self._ended or Step.HAND_BACK in self._ended:
            return False
        raised_here = self._ended.get(Step.RAISE)
        is_unknown = raised_here is not None and raised_here.stored is None
        return self._is_raised or is_unknown or (evidence.target is None and self._has_raised)

    @property
    def _is_fence_unknown(self) -> bool:
        """True if the source may have stored this run's fence, but its answer was lost."""
        fence = self._ended.get(Step.FENCE)
        return fence is not None and fence.stored is None

    def completion(self, evidence: Evidence) -> Completion:
        """Return how far the target lags behind the known state of the source."""
        # thousands of partitions are compared once for each look
        if self._compared is None or self._compared[0] is not evidence:
            self._compared = evidence, completion(evidence, self.source)
        return self._compared[1]

    def has_everything(self, evidence: Evidence) -> bool:
        """True when the target has all that the fenced source has, so that the account of the next
        epoch is final before it is raised.
        """
        return evidence.source is not None and self.completion(evidence).is_complete

    @property
    def drained_ends(self) -> LogEnds:
        """Ends that the target is known to keep before anything is raised: those of a fenced
        source, when it has them all.
        """
        return self._drain.drained_ends

    def observe(self, evidence: Evidence, now_ms: int) -> None:
        """Note fresh evidence; `now_ms` must be monotonic enough to measure a drain."""
        source, target = evidence.source, evidence.target
        self._observed_at_ms = now_ms
        self._compared = None
        # also a fence of an earlier run or of another operator: writers are stopped since then at
        # the latest
        if source is not None and source.record.phase == LinkPhase.FENCED:
            self._drain.stop_writers(now_ms)
        # the fence was undone by another process: fence again, and count the pause of the writers
        # anew
        if self.source.observe_fence(evidence):
            self._ended.pop(Step.FENCE, None)
            self._drain.start_writers()
        if target is None:
            return
        self._is_raised = evidence.governing.active_site == self._to_site
        # after the raise the source's logs do not count: the account covers what was known before
        if self._is_raised:
            return
        if source is not None:
            self.source.remember(source)
            if not source.is_fenced:
                self._preparation.observe(target, source, now_ms)
        self._drain.observe_target(target, now_ms)

    def apply(self, ended: StepEnded, now_ms: int) -> None:
        """Note the result of a step."""
        self._ended[ended.step] = ended
        match ended.step:
            case Step.PREPARE:
                self._preparation.begin(self._observed_at_ms)
            case Step.FENCE:
                # The count begins at the look before the fence: brokers stop their writers one by
                # one while the fence is stored.
                self._drain.stop_writers(self._observed_at_ms)
                self._fence_count += 1
                has_tried_enough = self._fence_count >= FENCE_ATTEMPTS_MAX
                self._fence_problem = ended.problem or (
                    "another process repeatedly ends the fence" if has_tried_enough else ""
                )
            case Step.TRUNCATE:
                self._after_the_raise.note_truncation()
            case Step.DRAIN:
                self._drain.begin(now_ms)
            case _:
                pass

    def decide(self, evidence: Evidence, now_ms: int) -> Decision:
        """The next step; changes nothing."""
        if evidence.target is None:
            is_fenced = self.source.is_fence_proven or self._is_fence_unknown
            is_raised = self._has_raised
            return refuse(
                target_refusal(evidence, to_site=self._to_site, is_raised=is_raised, is_source_fenced=is_fenced)
            )
        governing = evidence.governing
        if self._to_site not in (governing.source_site, governing.target_site):
            return refuse(
                f"link {governing.name} joins {governing.source_site} and {governing.target_site}, not {self._to_site}"
            )
        # A run ends after it has given writes back, regardless of later observations: a refusal
        # leaves no fence (F-d).
        gave_back = self._ended.get(Step.GIVE_BACK) or self._ended.get(Step.HAND_BACK)
        if gave_back is not None:
            # the run ends here, so this message is the only report of the failure
            trouble = f"; the writes could not be given back: {gave_back.problem}" if gave_back.problem else ""
            return refuse(gave_back.reason + trouble)
        if failed := raise_refusal(self._ended.get(Step.RAISE), governing, evidence.target, to_site=self._to_site):
            # The target has the old epoch, so the writes can be given back there, whether the raise
            # was refused or is still on its way.
            is_open = governing.active_site != self._to_site and governing.epoch == evidence.target.record.epoch
            return self._give_back_or_refuse(governing, failed, now_ms) if is_open else refuse(failed)
        if self._policy.is_abort:
            return self._abort(evidence, governing, now_ms)
        if governing.active_site == self._to_site:
            return self._after_the_raise.decide(evidence, evidence.target, now_ms)
        return self._before_the_raise(evidence, evidence.target, now_ms)

    def _abort(self, evidence: Evidence, governing: LinkRecord, now_ms: int) -> Decision:
        """Let writers continue at the active site. A raised epoch is past the point of no return,
        except while it waits for a truncation: no client has written in it.
        """
        if governing.phase == LinkPhase.FENCED:
            return self._give_back_or_refuse(governing, ABORTED, now_ms)
        target, source = evidence.target, evidence.source
        is_waiting = truncates_logs(governing) and governing.active_site == self._to_site
        if (
            target is not None
            and source is not None
            and is_waiting
            and self._after_the_raise.may_account(target, governing)
        ):
            return hand_back(evidence, governing, ABORTED, now_ms)
        return refuse(
            f"link {governing.name} is not fenced: {governing.active_site} is active in epoch {governing.epoch}; a raised epoch is the "
            "point of no return, and a failover that did not finish after it is finished by running it again"
        )

    def _before_the_raise(self, evidence: Evidence, target: SiteEvidence, now_ms: int) -> Decision:
        governing, source = evidence.governing, evidence.source
        refusal = (
            deposed_refusal(source, to_site=self._to_site)
            or silence_refusal(evidence, self._policy, is_fence_proven=self.source.is_fence_proven)
            or bypass_refusal(self.source.bypass, self._policy)
            or arbiter_refusal(evidence)
            or self.truncations.refusal(target)
        )
        if refusal:
            return self._give_back_or_refuse(governing, refusal, now_ms)
        if source is not None and not source.is_fenced and not self._fence_problem:
            # Divergence is checked here and after the fence: only a fence makes the ends final.
            waiting = self._prepare(evidence, target, source, now_ms)
            if waiting is not None:
                return waiting
            return Decision(
                step=Step.FENCE,
                reason=f"{source.site} answers and may still take writes in epoch {governing.epoch}",
                record=fenced(governing, now_ms=now_ms),
            )
        if refusal := self._divergence_refusal(evidence, target):
            return self._give_back_or_refuse(governing, refusal, now_ms)
        # a refusal without a fence must not wait for the drain first
        if not fence_refusal(evidence, self._policy, fence_problem=self._fence_problem):
            lacking = self.completion(evidence)
            if not self._drain.is_over(evidence, lacking, now_ms):
                known = "exactly" if lacking.is_exact else "at least"
                missing = f"{known} {lacking.remaining_records} records are missing here"
                return Decision(step=Step.DRAIN, reason=lacking.problem or missing)
        # checked at the last moment: after the raise there is no way back
        if refusal := self._refusal_of(evidence, target, now_ms):
            return self._give_back_or_refuse(governing, refusal, now_ms)
        return Decision(
            step=Step.RAISE,
            reason=f"{self._to_site} is drained as far as possible: epoch {governing.epoch} ends",
            record=raised(
                governing,
                to_site=self._to_site,
                highest_leader_epoch=evidence.highest_leader_epoch,
                now_ms=now_ms,
                is_other_lost=evidence.source is None or not self.source.is_fence_proven,
                kept_before_ms=self._policy.kept_before_ms,
                is_cut_consistent=self._policy.is_cut_consistent,
            ),
        )

    def _prepare(self, evidence: Evidence, target: SiteEvidence, source: SiteEvidence, now_ms: int) -> Decision | None:
        """The step that must come before writers are stopped; None when they may be stopped now."""
        if evidence.governing.phase == LinkPhase.FENCED or self._policy.accepts_data_loss:
            return None
        if refusal := self._divergence_refusal(evidence, target):
            return refuse(refusal)
        if hindered := self._preparation.hindrance(source, target, link=evidence.link, now_ms=now_ms):
            return hindered
        missing = absent(evidence, self.source)
        return self._preparation.distance(target, self.completion(evidence), missing, now_ms)

    def _refusal_of(self, evidence: Evidence, target: SiteEvidence, now_ms: int) -> str:
        """The reason why the epoch must not be raised now; empty when it may be raised."""
        refusal = fence_refusal(evidence, self._policy, fence_problem=self._fence_problem) or truncation_refusal(
            target, self._policy
        )
        if refusal or self._policy.accepts_data_loss:
            return refusal
        allowed = self._policy.lag_records_max
        # Without a limit a source that answers is drained to its end, and any lag of a lost one is
        # accepted.
        if allowed is None and self.source.is_fence_proven and evidence.source is not None:
            allowed = 0
        remaining = self.completion(evidence).remaining_records
        stopped_for = self._drain.stopped_for(now_ms)
        return lag_refusal(
            target, remaining_records=remaining, allowed=allowed, stopped_for=stopped_for
        ) or lack_refusal(lack(evidence, self.source))

    def _divergence_refusal(self, evidence: Evidence, target: SiteEvidence) -> str:
        source_site = evidence.governing.active_site
        if self._policy.accepts_data_loss:
            return ""
        is_source_fresh = evidence.source is not None
        found = self.source.differences(target, source_site=source_site, is_source_fresh=is_source_fresh)
        return divergence_refusal(found, to_site=self._to_site, source_site=source_site)

    def _give_back_or_refuse(self, governing: LinkRecord, refusal: str, now_ms: int) -> Decision:
        # one is enough: brokers may enforce a fence that the record does not show
        is_fenced = governing.phase == LinkPhase.FENCED or self.source.is_fence_proven
        if not (is_fenced or self._is_fence_unknown):
            return refuse(refusal)
        return Decision(step=Step.GIVE_BACK, reason=refusal, record=given_back(governing, now_ms=now_ms))
