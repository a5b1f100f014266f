"""The lease of one link at one agent: decides until when the agent's broker may acknowledge writes,
and when a newer epoch may be opened. Pure; `dr/agent/leases/` acts.

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
    L-e  an arbiter that has lost its data names no holder, and does not know whether a later epoch
         was open: an epoch is opened there only after a whole lease, and one that was open before
         only on a request that is made after the loss
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct

from dr.sites.core.fencing import FIRST_EPOCH
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.rules.links import other_site

CLOCK_DRIFT_MAX = 0.01
"""The largest difference in speed between two machines' monotonic clocks; NTP slews by at most
0.0005.
"""


class LeaseStep(enum.Enum):
    """The next step of an agent for one link."""

    NONE = "none"
    """The link has no lease, or another site is active at the arbiter."""
    RELEASE = "release"
    """This site takes no writes: its permit ends now."""
    RAISE = "raise"
    """Store `LeaseDecision.record` at the arbiter."""
    WAIT = "wait"
    """The epoch is closed: an earlier permit may still be valid."""
    OPEN = "open"
    """Store `LeaseDecision.record` at the arbiter: this site may write."""
    RENEW = "renew"


class LeaseDecision(Struct, frozen=True, kw_only=True):
    """The next step, the record to store if the step needs one, and the reason why the site has no
    permit.
    """

    step: LeaseStep
    record: ArbiterRecord | None = None
    problem: str = ""


def permit_until_ms(*, asked_at_ms: float, lease_ms: int) -> float:
    """Return the end of a permit's validity from the time of its request; both are monotonic times
    of one machine.
    """
    # The permit counts from the request: the arbiter may have granted it long before its answer
    # arrived here.
    return asked_at_ms + lease_ms * (1 - CLOCK_DRIFT_MAX)


def run_out_at_ms(*, closed_at_ms: float, wait_ms: int) -> float:
    """The monotonic time from which no permit is valid that was granted before the link was seen
    closed.
    """
    # The drift is added on both sides: this clock may be fast while the clock of the permit's
    # broker is slow.
    return closed_at_ms + wait_ms * (1 + CLOCK_DRIFT_MAX)


def may_vow(record: LinkRecord, *, epoch: int, asking_site: str) -> bool:
    """True if a standby with this record may promise that it is not promoted over the epoch."""
    return bool(record.lease_ms) and record.epoch == epoch and record.active_site == asking_site


class VowTimes:
    """The times at which one agent of a standby has first seen the vows of its site for a link."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def observe(self, vows: Mapping[str, int], *, now_ms: float) -> float | None:
        """Return the time since which no vow of the site can have renewed a permit; None if there
        is no vow. `vows` are all of them: of each broker that has one, the number of its last grant
        (a zxid); `now_ms` was read after the answer.
        """
        # A grant is seen when it is made or later, so a wait from then can only be too long.
        before = self._seen
        self._seen = {
            broker: before[broker] if broker in before and before[broker][0] == grant else (grant, now_ms)
            for broker, grant in vows.items()
        }
        return max((since_ms for _, since_ms in self._seen.values()), default=None)


class LinkLeaseMachine:
    """One link at one agent of `site`."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._requested_epoch = 0
        self._closed_epoch = 0
        self._closed_at_ms = 0.0
        self._is_reopened = False
        self._writing_epoch = 0
        """The epoch in which the site takes writes without a lease, until the arbiter opens it."""

    def request_open(self, epoch: int, *, is_writing: bool = False) -> None:
        """Request that the epoch be opened: its account is stored, or the other site also has the
        epoch. `is_writing`: the site takes writes in it without a lease, and goes on.
        """
        self._requested_epoch = max(self._requested_epoch, epoch)
        if is_writing:
            self._writing_epoch = epoch

    def is_requested(self, epoch: int) -> bool:
        """True if the epoch is requested."""
        return self._requested_epoch >= epoch

    def observe(self, arbiter: ArbiterRecord | None, *, now_ms: float, was_open: bool = False) -> None:
        """Update the state with the arbiter's record; `now_ms` was read after the answer.
        `was_open`: the site knows that the arbiter had opened the record's epoch for it.
        """
        if arbiter is not None and arbiter.is_open:
            self._writing_epoch = 0
        is_reopened = arbiter is not None and not arbiter.is_open and arbiter.has_lost_former and was_open
        # The other site may have been promoted before the arbiter lost its data: what was known
        # before does not count any more.
        if arbiter is not None and is_reopened and not self._is_reopened and arbiter.epoch != self._writing_epoch:
            self._requested_epoch = 0
        self._is_reopened = is_reopened
        # The link was closed at or before this look, so a wait from now can only be too long, never
        # too short.
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
        was_open: bool = False,
    ) -> LeaseDecision:
        """Decide the next step from this site's record of the link and the arbiter's record.
        `may_be_held_elsewhere`: brokers of the other site may hold permits, none of them renewed
        since `not_renewed_since_ms` where that is known. `was_open` as for `observe`.
        """
        if not record.lease_ms:
            return LeaseDecision(step=LeaseStep.NONE)
        # A fenced site also releases its permit: it takes no writes, and then the next failover
        # need not wait for the permit to end.
        if record.active_site != self._site or record.phase != LinkPhase.MIRRORING:
            return LeaseDecision(step=LeaseStep.RELEASE)
        # Only the record of a lower epoch is replaced: two agents that see the same epoch must not
        # overwrite each other (L-d).
        if arbiter is None or arbiter.epoch < record.epoch:
            # a new link has no permits yet
            has_lost_data = arbiter is None and (was_open or record.epoch > FIRST_EPOCH)
            return LeaseDecision(step=LeaseStep.RAISE, record=_closed(record, arbiter, has_lost_data=has_lost_data))
        # The arbiter's record decides: a record with a lower epoch may come from a site that was
        # disconnected
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
            problem = f"epoch {record.epoch} is closed until its failover is completed, or {peer} has it too"
            return LeaseDecision(step=LeaseStep.WAIT, problem=problem)
        since_ms = self._closed_at_ms
        if arbiter.has_lost_former:
            # the holders and the presence before the loss are not known (L-e)
            may_be_held_elsewhere = record.epoch != self._writing_epoch
        elif not_renewed_since_ms is not None:
            # Renewals need presence at the arbiter, or a vow of this site. So the last renewal is
            # at or before the end of the presence or the last vow, which may be before the link
            # was closed.
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
        # It stays known that data was lost: marks of brokers were lost as well
        # (`leases/marks.py`).
        opened.is_open = True
        return LeaseDecision(step=LeaseStep.OPEN, record=opened)


def _closed(record: LinkRecord, before: ArbiterRecord | None, *, has_lost_data: bool) -> ArbiterRecord:
    """The arbiter's record of a raised epoch. It keeps the longest lease that was in force, because
    brokers may hold permits of that length.
    """
    # If the previous record was never opened, permits of the epochs before it may still be valid,
    # so its longest lease still counts.
    former_ms = 0 if before is None else max(before.lease_ms, 0 if before.is_open else before.wait_ms)
    return ArbiterRecord(
        link=record.name,
        epoch=record.epoch,
        active_site=record.active_site,
        is_open=False,
        lease_ms=record.lease_ms,
        wait_ms=max(former_ms, record.lease_ms),
        updated_at_ms=record.updated_at_ms,
        has_lost_former=has_lost_data or (before is not None and not before.is_open and before.has_lost_former),
    )
