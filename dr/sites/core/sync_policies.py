"""Changes a sync link's policy: an operator sets it, a failover from a lost site suspends it, and
the agents restore it.

Under `block` and `bound` a site waits for the other one without a time limit. That is intended
while both live. After one is lost it is an outage: the promoted site would wait for the lost one.
So such a failover writes a record with `degrade` and the former policy together, in one write; a
run cannot end between the two. The promoted site applies the former policy again when the other one
has all records. A change needs no new epoch: the record's revision grows, and of two concurrent
changes the first one stored wins. `reinstating` and `leasing` change the link's other policies in
the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from dr.sites.core.record_changes import changed
from wire.control.broker_pb2 import DescribePartitionsReply
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import SYNC_TIMEOUT_MS, FailoverMode, SyncPolicy, needs_standby, sync_policy


def altered(record: LinkRecord, *, policy: SyncPolicy, timeout_ms: int, now_ms: int, bound_ms: int = 0) -> LinkRecord:
    """The record with an operator's policy, which also ends a suspension; `timeout_ms` 0 keeps the
    current one.

    The record itself if nothing changes.
    """
    known_ms = record.sync_timeout_ms or SYNC_TIMEOUT_MS
    wanted_ms = 0 if policy is SyncPolicy.NONE else timeout_ms or known_ms
    wanted_bound_ms = bound_ms or record.sync_bound_ms if policy is SyncPolicy.BOUND else 0
    known = (record.sync_policy, record.sync_timeout_ms, record.sync_bound_ms)
    is_same = known == (policy.value, wanted_ms, wanted_bound_ms)
    if is_same and not is_suspended(record):
        return record
    return changed(
        record,
        sync_policy=policy.value,
        sync_timeout_ms=wanted_ms,
        sync_bound_ms=wanted_bound_ms,
        sync_policy_to_restore="",
        revision=record.revision + 1,
        updated_at_ms=now_ms,
    )


def reinstating(record: LinkRecord, *, policy: str, now_ms: int) -> LinkRecord:
    """The record with another policy for the own records of a returning site; the record itself if
    nothing changes.
    """
    if record.reinstate_policy == policy:
        return record
    return changed(record, reinstate_policy=policy, revision=record.revision + 1, updated_at_ms=now_ms)


def leasing(
    record: LinkRecord,
    *,
    lease_ms: int | None = None,
    mode: str | None = None,
    lag_records_max: int | None = None,
    lag_ms_max: int | None = None,
    now_ms: int,
) -> LinkRecord:
    """The record with another lease, another failover mode or other limits (None: unchanged); the
    record itself if nothing changes. Without a lease there is no mode.
    """
    wanted = {
        "lease_ms": record.lease_ms if lease_ms is None else lease_ms,
        "failover_mode": record.failover_mode if mode is None else mode,
        "failover_lag_records_max": record.failover_lag_records_max if lag_records_max is None else lag_records_max,
        "failover_lag_ms_max": record.failover_lag_ms_max if lag_ms_max is None else lag_ms_max,
    }
    if lease_ms == 0 and mode is None:
        wanted["failover_mode"] = FailoverMode.MANUAL.value
    if lease_ms and not record.lease_ms and mode is None:
        wanted["failover_mode"] = FailoverMode.OBSERVE.value
    if all(getattr(record, name) == value for name, value in wanted.items()):
        return record
    return changed(record, **wanted, revision=record.revision + 1, updated_at_ms=now_ms)


def suspended(record: LinkRecord) -> LinkRecord:
    """The record of a site that is promoted after the other one was lost: it does not wait for that
    site. Any other policy than `block` and `bound` stays.
    """
    if not needs_standby(sync_policy(record)):
        return record
    return changed(
        record,
        sync_policy=SyncPolicy.DEGRADE.value,
        sync_policy_to_restore=record.sync_policy,
        sync_timeout_ms=record.sync_timeout_ms or SYNC_TIMEOUT_MS,
    )


def is_suspended(record: LinkRecord) -> bool:
    """True from a failover from a lost site until the other site has everything, if the link's
    policy was `block` or `bound`.
    """
    return bool(record.sync_policy_to_restore)


def restored(record: LinkRecord, *, now_ms: int) -> LinkRecord:
    """The record with the suspended policy in force again."""
    return changed(
        record,
        sync_policy=record.sync_policy_to_restore,
        sync_policy_to_restore="",
        revision=record.revision + 1,
        updated_at_ms=now_ms,
    )


def may_restore(record: LinkRecord, *, site: str, replies: Iterable[DescribePartitionsReply | None]) -> bool:
    """True if `site` is the site that waits, and each of its brokers (None: no answer) reports that
    the other site has all visible records.
    """
    if not is_suspended(record) or record.active_site != site:
        return False
    known = list(replies)
    return bool(known) and all(
        reply is not None and not any(item.is_degraded for item in reply.partitions) for reply in known
    )


def policy_sentence(record: LinkRecord) -> str:
    """Describe what acks=all waits for under the record; empty for a link that never waits."""
    policy = sync_policy(record)
    other = record.target_site if record.active_site == record.source_site else record.source_site
    if policy is SyncPolicy.NONE:
        return ""
    if is_suspended(record):
        return (
            f"acks=all does not wait for {other} until it has everything again; then {record.sync_policy_to_restore} "
            "is in force by itself"
        )
    if policy is SyncPolicy.BLOCK:
        return f"acks=all waits for {other} without end (block)"
    if policy is SyncPolicy.BOUND:
        return f"acks=all waits while {other} is more than {record.sync_bound_ms} ms behind (bound)"
    return f"acks=all waits for {other}, at most {record.sync_timeout_ms} ms while it is silent (degrade)"
