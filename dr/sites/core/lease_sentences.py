"""The lease of a link in sentences: its settings, and whether it can be kept now."""

from __future__ import annotations

from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import LinkLease
from wire.rules.links import FailoverMode, failover_mode, other_site

FROM_STANDBY = "standby"


def lease_sentence(record: LinkRecord) -> str:
    """Describe which party decides about the active site, and what happens when that site is
    lost.
    """
    if not record.lease_ms:
        return "the link has no arbiter: a person decides when to fail over, and a disconnected site continues to take writes"
    standby = other_site(record, record.active_site)
    consequence = {
        FailoverMode.MANUAL: "a person fails over",
        FailoverMode.OBSERVE: f"{standby} reports when it would fail over",
        FailoverMode.AUTOMATIC: f"{standby} fails over by itself{_bounds(record)}",
    }[failover_mode(record)]
    return f"{record.active_site} writes under a lease of {record.lease_ms} ms; when it is lost, {consequence}"


def _bounds(record: LinkRecord) -> str:
    bounds = []
    if record.failover_lag_records_max:
        bounds.append(f"{record.failover_lag_records_max} records")
    if record.failover_lag_ms_max:
        bounds.append(f"{record.failover_lag_ms_max} ms")
    return f" unless it lacks more than {' or '.join(bounds)}" if bounds else ""


def lease_problem(record: LinkRecord, site: str, lease: LinkLease) -> str:
    """Return the problem of the lease that needs a person, as a broker of `site` sees it; empty for
    none.
    """
    is_active = record.active_site == site
    if is_active and not lease.permit_left_ms:
        return f"a broker of {site} takes no writes: {lease.problem or 'it has no permit yet'}"
    if lease.is_out_of_sync:
        standby = other_site(record, site)
        return (
            f"a broker of {site} acknowledges records that {standby} may lack: {standby} does not fail over by itself"
        )
    if not lease.is_arbiter_reachable:
        permit = f"; {site} writes by the vow of its standby" if lease.permit_from == FROM_STANDBY else ""
        return f"{site} does not reach the arbiter{permit}: no site can be promoted"
    return ""
