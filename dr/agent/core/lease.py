"""The lease of one link as one agent keeps it: when its broker may write, and when a newer epoch is
open. Pure; `dr/agent/leases/` acts.

A permit lets one broker acknowledge writes for `lease_ms` from the moment at which its agent
*asked* the arbiter. Raising an epoch at the arbiter closes the link: no permit of an earlier epoch
can be renewed from then on. The epoch is opened once no earlier permit can be valid: every broker
that may hold one has given it up, or the longest permit has run out. Both sides measure durations
only, each on its own monotonic clock, so the clocks need not agree; `CLOCK_DRIFT_MAX` bounds how
much faster one clock may run than another one.

Invariants (the tests' names carry the letters):
    L-a  a permit is granted only for the epoch that the arbiter names open for this site
    L-b  an epoch is opened only after the longest permit of an earlier epoch has run out, unless no
         broker of another site may hold one; the time counts from the moment since which no
         permit can have been renewed
    L-c  an epoch is opened only on request: the account is kept, or both sites agree about it
    L-d  an agent never replaces an arbiter's record of the same or a higher epoch
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.rules.links import other_site

CLOCK_DRIFT_MAX = 0.01
"""The largest difference in speed between two machines' monotonic clocks; NTP slews by at most
0.0005.
"""


class LeaseStep(enum.Enum):
    """The next step of an agent."""

    NONE = "none"
    """The link has no lease, or another site is active at the arbiter."""
    RELEASE = "release"
    """This site takes no writes: its permit ends now."""
    RAISE = "raise"
    """Store `LeaseDecision.record` at the arbiter."""
    WAIT = "wait"
    """The epoch is closed."""
    OPEN = "open"
    """Store `LeaseDecision.record` at the arbiter: this site may write."""
    RENEW = "renew"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseDecision:
    """The next step, the record to store where it stores one, and why there is no permit."""

    step: LeaseStep
    record: ArbiterRecord | None = None
    problem: str = ""


def permit_until_ms(*, asked_at_ms: float, lease_ms: int) -> float:
    """Return the end of a permit's validity from the time of its request; both are monotonic times
    of one machine.
    """
    # from the question: the arbiter may have answered long before, and its time has run since
    return asked_at_ms + lease_ms * (1 - CLOCK_DRIFT_MAX)


def run_out_at_ms(*, closed_at_ms: float, wait_ms: int) -> float:
    """The time after which no permit is valid that was granted before the link was seen closed."""
    # the drift counts on both sides: this clock may be fast, and the permit's clock slow
    return closed_at_ms + wait_ms * (1 + CLOCK_DRIFT_MAX)


def may_vow(record: LinkRecord, *, epoch: int, asking_site: str) -> bool:
    """True if a standby with this record may promise that it is not promoted over the epoch."""
    return bool(record.lease_ms) and record.epoch == epoch and record.active_site == asking_site


class LinkLeaseMachine:
    """One link at one agent of `site`."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._requested_epoch = 0
        self._closed_epoch = 0
        self._closed_at_ms = 0.0

    def request_open(self, epoch: int) -> None:
        """The account of the epoch is kept, or the other site knows the epoch too."""
        self._requested_epoch = max(self._requested_epoch, epoch)

    def is_requested(self, epoch: int) -> bool:
        """True if the epoch is requested."""
        return self._requested_epoch >= epoch

    def observe(self, arbiter: ArbiterRecord | None, *, now_ms: float) -> None:
        """Take in what the arbiter holds; `now_ms` is after the answer."""
        # first seen closed: it was closed no later, so the wait may only be too long
        if arbiter is not None and not arbiter.is_open and arbiter.epoch != self._closed_epoch:
            self._closed_epoch, self._closed_at_ms = arbiter.epoch, now_ms

    def decide(
        self,
        record: LinkRecord,
        arbiter: ArbiterRecord | None,
        *,
        may_be_held_elsewhere: bool,
        now_ms: float,
        not_renewed_since_ms: float | None = None,
    ) -> LeaseDecision:
        """Decide the next step from this site's record of the link and the arbiter's record.
        `may_be_held_elsewhere`: brokers of the other site may hold permits, none of them renewed
        since `not_renewed_since_ms` where that is known.
        """
        if not record.lease_ms:
            return LeaseDecision(step=LeaseStep.NONE)
        # the record of a lower epoch is replaced, an equal one never (L-d)
        # FENCED too: a fenced site has no use for a permit, and the next failover need not wait for
        # one
        if record.active_site != self._site or record.phase != LinkPhase.MIRRORING:
            return LeaseDecision(step=LeaseStep.RELEASE)
        if arbiter is None or arbiter.epoch < record.epoch:
            return LeaseDecision(step=LeaseStep.RAISE, record=_closed(record, arbiter))
        # the arbiter decides: a record with a lower epoch may be that of a site that was cut off
        if arbiter.epoch > record.epoch or arbiter.active_site != self._site:
            problem = (
                f"the arbiter names {arbiter.active_site} active in epoch {arbiter.epoch}; "
                f"{self._site} is active in epoch {record.epoch} only by its own record"
            )
            return LeaseDecision(step=LeaseStep.NONE, problem=problem)
        if arbiter.is_open:
            return LeaseDecision(step=LeaseStep.RENEW)
        if not self.is_requested(record.epoch):
            peer = other_site(record, self._site)
            problem = f"epoch {record.epoch} is closed until its failover is completed, or {peer} knows it too"
            return LeaseDecision(step=LeaseStep.WAIT, problem=problem)
        since_ms = self._closed_at_ms
        if not_renewed_since_ms is not None:
            # a presence that ended before the link was closed shows that nothing was renewed since
            since_ms = min(since_ms, not_renewed_since_ms)
        left_ms = run_out_at_ms(closed_at_ms=since_ms, wait_ms=arbiter.wait_ms) - now_ms
        return self._closed_decision(record, arbiter, left_ms=left_ms if may_be_held_elsewhere else 0)

    def _closed_decision(self, record: LinkRecord, arbiter: ArbiterRecord, *, left_ms: float) -> LeaseDecision:
        if left_ms > 0:
            peer = other_site(record, self._site)
            problem = f"brokers of {peer} may hold permits of an earlier epoch for {left_ms:.0f} ms"
            return LeaseDecision(step=LeaseStep.WAIT, problem=problem)
        opened = ArbiterRecord()
        opened.CopyFrom(arbiter)
        opened.is_open = True
        return LeaseDecision(step=LeaseStep.OPEN, record=opened)


def _closed(record: LinkRecord, before: ArbiterRecord | None) -> ArbiterRecord:
    """The arbiter's record of a raised epoch. Brokers may hold permits as long as the longest lease
    that was in force.
    """
    # of a record that was never opened the longest wait before it still counts
    former_ms = 0 if before is None else max(before.lease_ms, 0 if before.is_open else before.wait_ms)
    return ArbiterRecord(
        link=record.name,
        epoch=record.epoch,
        active_site=record.active_site,
        is_open=False,
        lease_ms=record.lease_ms,
        wait_ms=max(former_ms, record.lease_ms),
        updated_at_ms=record.updated_at_ms,
    )
