"""The link records that a failover writes: fenced, raised, and given back.

Two operators may work at once, at different sites. The rule that keeps them from splitting the
link: a new epoch is stored first at the site that is passive under the old one, by compare-and-set;
the operator who finds another record there has lost and follows it. A fence stays in its epoch
(only the phase moves), so that the mirror can go on draining under it.
"""

from __future__ import annotations

from dr.sites.core.record_changes import changed
from dr.sites.core.sync_policies import suspended
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.links import next_leader_epoch_floor, other_site

FIRST_EPOCH = 1
"""Epoch of a new link; nothing was ever promoted under it."""


def fenced(record: LinkRecord, *, now_ms: int) -> LinkRecord:
    """The record under which no site takes writes."""
    return changed(record, phase=LinkPhase.FENCED, updated_at_ms=now_ms)


def raised(
    record: LinkRecord,
    *,
    to_site: str,
    highest_leader_epoch: int,
    now_ms: int,
    is_other_lost: bool = False,
    kept_before_ms: int = 0,
    is_cut_consistent: bool = False,
) -> LinkRecord:
    """The record of the next epoch, under which `to_site` writes in a leader-epoch band of its own.

    With `is_other_lost` it does not wait for the site that it takes over from. With
    `kept_before_ms` its logs are truncated at that time first, with `is_cut_consistent` at the
    latest point without torn transactions.
    """
    # ValueError for a site that the link does not join
    other_site(record, to_site)
    floor = next_leader_epoch_floor(
        current_floor=record.leader_epoch_floor, highest_known_epoch=max(0, highest_leader_epoch)
    )
    return changed(
        suspended(record) if is_other_lost else record,
        epoch=record.epoch + 1,
        active_site=to_site,
        phase=LinkPhase.MIRRORING,
        leader_epoch_floor=floor,
        kept_before_ms=kept_before_ms,
        is_cut_consistent=is_cut_consistent,
        updated_at_ms=now_ms,
    )


def given_back(record: LinkRecord, *, now_ms: int) -> LinkRecord:
    """The record that ends a fence without promotion: the active site stays, in the next epoch and
    the same band.
    """
    return changed(
        record,
        # a new epoch, though the same site is active: a run that has seen the fence must not raise
        # its epoch over writers that go on
        epoch=record.epoch + 1,
        phase=LinkPhase.MIRRORING,
        kept_before_ms=0,
        is_cut_consistent=False,
        updated_at_ms=now_ms,
    )
