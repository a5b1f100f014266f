"""Decides when a standby's agents fail over by themselves: every view reports the active site lost
for a whole lease, and the copies are good enough. Pure; `dr/agent/failover_watch.py` looks and
acts.

There are three views: the arbiter (no broker of the active site reaches it), the agents here (no
agent there answers), and the mirror (it has carried nothing for a lease). A single view that still
reaches the active site prevents the failover. While the arbiter does not answer, the state is
unknown and nothing is done.

Gates: the first copy is complete; a mirror has reported on every partition since the last change of
direction; the known lag is within the link's bounds; the link has not failed over too often lately.
When a gate is closed, a person has to decide.

Invariants (the tests' names carry the letters):
    G-a  no failover while any view reaches the active site, or the arbiter is silent
    G-b  no failover before the active site was lost for a whole lease without a break
    G-c  no failover of a copy that is incomplete, on which no mirror has reported since the last
         change of direction, or that lacks more than the link allows
    G-d  no more than `FAILOVERS_MAX` within `PERIOD_MS`; planned moves do not count
    G-f  no failover before the active site has reported, in this epoch, that the standby protects it
         (F16: not during the first copy, nor right after a change of direction)
    G-e  no failover of a sync link while a broker of the active site is marked out of sync
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from dr.agent.core.silences import Silences
from dr.sites.core.evidence import SiteEvidence
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.protocol.ids import UNKNOWN
from wire.rules.links import SyncPolicy, sync_policy

FAILOVERS_MAX: Final = 2
PERIOD_MS: Final = 3_600_000
"""The period (ms) to which the bound on automatic failovers applies: an outage that returns within
the hour needs a person.
"""
NAMED_MAX: Final = 3


class LossState(enum.Enum):
    """The state of the active site by all views."""

    ANSWERS = "answers"
    SILENT = "silent"
    """Silent by every view, but for less than a lease."""
    LOST = "lost"
    UNKNOWN = "unknown"
    """The arbiter does not answer, is at a later epoch, or names another active site."""


class Views(Struct, frozen=True, kw_only=True):
    """How this site sees the active site. Ages are in ms; UNKNOWN means never."""

    arbiter: ArbiterRecord | None
    arbiter_problem: str
    present_brokers: int
    is_peer_reachable: bool
    mirror_age_ms: int


class Loss(Struct, frozen=True, kw_only=True):
    """A state and why, in a sentence."""

    state: LossState
    reason: str


class LossWatch:
    """The state of one link's active site, observed from the standby. `silences` records the
    silences that ended by themselves.
    """

    def __init__(self, silences: Silences | None = None) -> None:
        self.silences = silences or Silences()
        self._silent_since_ms: float | None = None

    def observe(self, record: LinkRecord, views: Views, *, now_ms: float) -> Loss:
        """Update the state with the views of one moment; `now_ms` is monotonic."""
        loss = _seen(record, views)
        if loss.state is not LossState.SILENT:
            # an unknown state ends the count too: only silence without a gap adds up to a lease
            if loss.state is LossState.ANSWERS and self._silent_since_ms is not None:
                self.silences.note(now_ms - self._silent_since_ms)
            self._silent_since_ms = None
            return loss
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms
        silent_ms = now_ms - self._silent_since_ms
        state = LossState.LOST if silent_ms >= record.lease_ms else LossState.SILENT
        return Loss(state=state, reason=f"{loss.reason} for {silent_ms / 1000:.1f} s, by every view from here")


def _seen(record: LinkRecord, views: Views) -> Loss:
    active = record.active_site
    if views.arbiter_problem:
        return Loss(state=LossState.UNKNOWN, reason=views.arbiter_problem)
    held = views.arbiter
    # A later epoch, or another active site, says nothing about the site that is active here. An
    # earlier one with the same site is behind: writes were given back, and the site was lost before
    # it received that record.
    if held is None or held.epoch > record.epoch or held.active_site != active:
        at = "knows nothing of the link" if held is None else f"is at epoch {held.epoch} with {held.active_site} active"
        return Loss(state=LossState.UNKNOWN, reason=f"the arbiter {at}; here it is epoch {record.epoch} with {active}")
    if views.present_brokers:
        return Loss(state=LossState.ANSWERS, reason=f"{views.present_brokers} brokers of {active} reach the arbiter")
    if views.is_peer_reachable:
        return Loss(state=LossState.ANSWERS, reason=f"{active} does not reach the arbiter, but answers here")
    # the mirror's path to the active site is another one than the agents', so it counts as a view
    if 0 <= views.mirror_age_ms < record.lease_ms:
        return Loss(state=LossState.ANSWERS, reason=f"the mirror reached {active} {views.mirror_age_ms} ms ago")
    return Loss(state=LossState.SILENT, reason=f"{active} has been silent")


def failover_times_ms(evidence: SiteEvidence) -> list[int]:
    """When the link failed over (Unix ms), without planned moves: those say nothing about a site
    that is lost again and again.

    The last failover counts by the link's record while its account is not here, because the
    promoted site may be lost before the account is copied. A planned move counts until then, too,
    and so does a failed truncation that handed the writes back: that epoch has no account.
    """
    times = [promotion.accounted_at_ms for promotion in evidence.promotions if not promotion.is_planned]
    record = evidence.record
    # an epoch that gave writes back has no account: it continues in the band of its last promotion
    accounted_floors = {0, *(promotion.leader_epoch_floor for promotion in evidence.promotions)}
    is_accounted = record.epoch in evidence.accounted_epochs or record.leader_epoch_floor in accounted_floors
    return times if is_accounted else [*times, record.updated_at_ms]


def closed_gates(
    record: LinkRecord,
    evidence: SiteEvidence,
    *,
    failovers_at_ms: Sequence[int],
    now_ms: int,
    is_copy_complete: bool,
    out_of_sync: Sequence[int] = (),
    has_lost_marks: bool = False,
) -> list[str]:
    """The reasons, in sentences, why only a person may promote the standby; none when it may be
    promoted. `out_of_sync`: node ids of the active site's brokers that the arbiter has marked;
    `failovers_at_ms`: Unix ms of the link's former unplanned failovers; `now_ms`: Unix ms;
    `is_copy_complete`: the active site has reported in this epoch that the standby protects it;
    `has_lost_marks`: the arbiter has lost its data, and the active site has not reported since that
    the standby has everything.
    """
    first_copy = f"the first copy at {evidence.site} was not complete yet in epoch {record.epoch}"
    return [
        *([] if is_copy_complete else [first_copy]),
        *_incomplete(evidence),
        *_out_of_sync(record, out_of_sync, has_lost_marks=has_lost_marks),
        *_lag(record, evidence),
        *_too_often([at_ms for at_ms in failovers_at_ms if now_ms - at_ms < PERIOD_MS]),
    ]


def _incomplete(evidence: SiteEvidence) -> list[str]:
    problems = [topic.reason for topic in evidence.unprotected[:NAMED_MAX]]
    if evidence.leaderless:
        named = ", ".join(map(str, sorted(evidence.leaderless)[:NAMED_MAX]))
        problems.append(f"{len(evidence.leaderless)} partitions have no leader here ({named})")
    unseen = sorted(key for key, position in evidence.copies.items() if position.source_seen_at_ms <= 0)
    if unseen:
        named = ", ".join(map(str, unseen[:NAMED_MAX]))
        problems.append(
            f"no mirror has reported on {len(unseen)} partitions since {evidence.site} is the standby ({named})"
        )
    if not evidence.partitions and evidence.mirror_age_ms == UNKNOWN:
        problems.append(f"no mirror has ever reported to {evidence.site}")
    return problems


def _out_of_sync(record: LinkRecord, node_ids: Sequence[int], *, has_lost_marks: bool) -> list[str]:
    if sync_policy(record) in (SyncPolicy.NONE, SyncPolicy.BOUND):
        return []
    if has_lost_marks:
        return [
            f"the arbiter has lost its data, and may have lost that brokers of {record.active_site} were out of sync"
        ]
    if not node_ids:
        return []
    nodes = ", ".join(map(str, sorted(node_ids)))
    return [f"brokers {nodes} of {record.active_site} acknowledged records that the standby may lack"]


def _lag(record: LinkRecord, evidence: SiteEvidence) -> list[str]:
    copies = [position for position in evidence.copies.values() if position.source_seen_at_ms > 0]
    lag_records = sum(max(0, one.source_high_watermark - one.log_end_offset) for one in copies)
    # The lag is measured from the newest report and not from the current time: the source is lost,
    # so an age from now would grow with the outage.
    newest_ms = max((one.source_seen_at_ms for one in copies), default=0)
    lag_ms = max((newest_ms - one.source_seen_at_ms for one in copies), default=0)
    behind = [one for one in copies if one.source_high_watermark > one.log_end_offset]
    lag_ms = max([lag_ms, *(newest_ms - one.max_timestamp_ms for one in behind if one.max_timestamp_ms > 0)])
    problems = []
    if record.failover_lag_records_max and lag_records > record.failover_lag_records_max:
        problems.append(
            f"{evidence.site} is known to lack {lag_records} records, more than the {record.failover_lag_records_max} allowed"
        )
    if record.failover_lag_ms_max and lag_ms > record.failover_lag_ms_max:
        problems.append(
            f"{evidence.site} was {lag_ms} ms behind, more than the {record.failover_lag_ms_max} ms allowed"
        )
    return problems


def _too_often(failovers_at_ms: Sequence[int]) -> list[str]:
    if len(failovers_at_ms) < FAILOVERS_MAX:
        return []
    return [f"the link has failed over {len(failovers_at_ms)} times within the last hour"]
