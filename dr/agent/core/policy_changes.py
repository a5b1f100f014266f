"""The record of a link after a request to change its policies. Pure; caller:
`answers/link_changes.py`.
"""

from __future__ import annotations

from dr.sites.core.sync_policies import altered, leasing, reinstating
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import AlterLinkRequest
from wire.rules.links import KEPT_POLICY, MANUAL_POLICY, SyncPolicy


def with_policies(stored: LinkRecord, request: AlterLinkRequest, *, now_ms: int) -> LinkRecord:
    """The record with the policies that a request names; the record itself when it has them.
    ValueError: the sync policy is none.
    """
    record = stored
    if request.sync_policy != KEPT_POLICY:
        known = {policy.value: policy for policy in SyncPolicy}
        if request.sync_policy not in known:
            accepted = ", ".join(map(repr, (*known, KEPT_POLICY)))
            raise ValueError(f"sync policy {request.sync_policy!r}: accepted are {accepted}")
        policy = known[request.sync_policy]
        record = altered(
            record,
            policy=policy,
            timeout_ms=request.sync_timeout_ms,
            bound_ms=request.sync_bound_ms,
            now_ms=now_ms,
        )
    if request.reinstate_policy:
        wanted = "" if request.reinstate_policy == MANUAL_POLICY else request.reinstate_policy
        record = reinstating(record, policy=wanted, now_ms=now_ms)
    return leasing(
        record,
        lease_ms=request.lease_ms if request.HasField("lease_ms") else None,
        mode=_mode(request.failover_mode) if request.failover_mode else None,
        lag_records_max=request.failover_lag_records_max if request.HasField("failover_lag_records_max") else None,
        lag_ms_max=request.failover_lag_ms_max if request.HasField("failover_lag_ms_max") else None,
        now_ms=now_ms,
    )


def _mode(text: str) -> str:
    return "" if text == MANUAL_POLICY else text
