"""The measurements of a drill, from the clients' histories: recovery point, recovery time, and the
anomalies, as plain numbers.

The recovery point: the acknowledged records that the active site lacks at the end, and the age of
the oldest of them when the fault began. The recovery time as clients see it: the longest pause
between two acknowledgements (or deliveries) that ends after a fault. Pure; `execution.py` collects
the histories.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dr.drill.core import checkers
from dr.drill.core.checkers import Anomaly, CatchUp
from dr.drill.core.history import Acknowledged, Delivered, LogRecord
from dr.drill.core.snapshot_baseline import SnapshotLoss, snapshot_baseline
from dr.sites.core.loss import LossAccount
from wire.protocol.ids import TopicPartition

NEVER = 1 << 62
"""An offset that no log reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The longest pause of a client around a fault."""

    fault: str
    fault_at_ms: float
    began_at_ms: float
    ended_at_ms: float

    @property
    def duration_ms(self) -> float:
        """The duration in ms."""
        return self.ended_at_ms - self.began_at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All counts. Anomalies are listed with their partitions and offsets. An outage of None means
    that no fault happened, or that the client received nothing after it.
    """

    acknowledged: int = 0
    failed: int = 0
    delivered: int = 0
    missing: tuple[Anomaly, ...] = ()
    recovery_point_ms: float = 0
    producer_outage: Outage | None = None
    consumer_outage: Outage | None = None
    catch_up: CatchUp | None = None
    """The slowest of all groups; None if no fault ended while records were there."""
    duplicates: tuple[Anomaly, ...] = ()
    gaps: tuple[Anomaly, ...] = ()
    order_violations: tuple[Anomaly, ...] = ()
    undelivered: tuple[Anomaly, ...] = ()
    redelivered: int = 0
    unaccounted: tuple[Anomaly, ...] = ()
    reconciliations: Mapping[str, str] = field(default_factory=dict)
    snapshots: tuple[SnapshotLoss, ...] = ()
    """The losses of regular backups at the time of the fault, for comparison; empty without a
    fault.
    """


def longest_pause(times_ms: Sequence[float], *, fault: str, fault_at_ms: float, until_ms: float) -> Outage | None:
    """The longest pause between neighbours of the sorted times that ends after the fault and begins
    before `until_ms`.
    """
    best: Outage | None = None
    for began, ended in itertools.pairwise(times_ms):
        if ended < fault_at_ms or began > until_ms:
            continue
        if best is None or ended - began > best.duration_ms:
            best = Outage(fault=fault, fault_at_ms=fault_at_ms, began_at_ms=began, ended_at_ms=ended)
    return best


def recovery_point_ms(missing: Iterable[Anomaly], acknowledged: Iterable[Acknowledged], *, fault_at_ms: float) -> float:
    """Age (ms) of the oldest lost record when the fault began; 0 when none is lost."""
    values = {anomaly.detail for anomaly in missing}
    times = [ack.acknowledged_at_ms for ack in acknowledged if ack.value in values]
    return max(0.0, fault_at_ms - min(times)) if times else 0.0


def unaccounted_losses(
    missing: Iterable[Anomaly],
    accounts: Collection[LossAccount],
    acknowledged: Iterable[Acknowledged],
    log: Iterable[LogRecord],
) -> list[Anomaly]:
    """Missing records that no failover's account allows to be lost.

    An account covers records that the old site acknowledged at or above the offset that is kept:
    records acknowledged before the account was made, and records that a disconnected site
    acknowledged afterwards. The latter have offsets that the final log gives to other records, or
    does not reach. Any other missing record was acknowledged by a later active site; only the
    account of a later failover covers it.
    """
    acknowledged_at_ms = {ack.value: ack.acknowledged_at_ms for ack in acknowledged}
    taken: dict[TopicPartition, set[int]] = {}
    for record in log:
        taken.setdefault(TopicPartition(record.topic, record.partition), set()).add(record.offset)
    last = max((account.epoch for account in accounts), default=0)
    kept = {
        account.epoch: {TopicPartition(item.topic, item.partition): item.kept_below for item in account.partitions}
        for account in accounts
    }

    def is_accounted(anomaly: Anomaly, account: LossAccount) -> bool:
        if anomaly.offset < kept[account.epoch].get(anomaly.place, NEVER):
            return False
        offsets = taken.get(anomaly.place, set())
        # An earlier account does not cover such offsets: the sites that were active later may have
        # acknowledged and lost them.
        is_past_the_end = account.epoch == last and anomaly.offset > max(offsets, default=-1)
        is_of_the_old_site = acknowledged_at_ms.get(anomaly.detail, 0) <= account.accounted_at_ms
        return is_of_the_old_site or anomaly.offset in offsets or is_past_the_end

    return [anomaly for anomaly in missing if not any(is_accounted(anomaly, account) for account in accounts)]


def surviving(delivered: Iterable[Delivered], missing: Collection[Anomaly]) -> list[Delivered]:
    """Deliveries of records that the final log still has. A consumer that read a lost tail rightly
    reads those offsets again.
    """
    lost = {anomaly.detail for anomaly in missing}
    return [given for given in delivered if given.value not in lost]


def measure(
    *,
    acknowledged: Sequence[Acknowledged],
    failed: int,
    delivered: Mapping[str, Sequence[Delivered]],
    log: Sequence[LogRecord],
    accounts: Collection[LossAccount],
    fault: tuple[str, float] | None,
    healed_at_ms: Sequence[float],
    ends_at_ms: float,
    reconciliations: Mapping[str, str],
    sending_until_ms: float | None = None,
) -> Measured:
    """Compute all measurements. `delivered` is by group; `fault` is the fault whose outage is
    measured, `healed_at_ms` the end of each fault, `sending_until_ms` the time until which a
    producer tried to send that never ended by itself.
    """
    missing = checkers.unseen(acknowledged, log)
    existing: dict[TopicPartition, list[int]] = {}
    for record in log:
        existing.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
    for offsets in existing.values():
        offsets.sort()
    lost = {anomaly.detail for anomaly in missing}
    still_there = [ack for ack in acknowledged if ack.value not in lost]
    kept = {group: surviving(given, missing) for group, given in delivered.items()}
    acks = sorted(ack.acknowledged_at_ms for ack in acknowledged)
    deliveries = sorted(given.at_ms for group in delivered.values() for given in group)
    return Measured(
        acknowledged=len(acknowledged),
        failed=failed,
        delivered=len(deliveries),
        missing=tuple(missing),
        recovery_point_ms=0 if fault is None else recovery_point_ms(missing, acknowledged, fault_at_ms=fault[1]),
        producer_outage=_pause(_with_end(acks, fault, sending_until_ms), fault, ends_at_ms),
        consumer_outage=_pause(deliveries, fault, ends_at_ms),
        catch_up=_catch_up(still_there, delivered, healed_at_ms),
        duplicates=tuple(checkers.duplicates(log)),
        # Without the lost records, whose offsets the promoted site gives to other records.
        gaps=(
            *checkers.inconsistent_offsets(still_there, [given for group in kept.values() for given in group], log),
            *(anomaly for group in kept.values() for anomaly in checkers.skips(group, existing)),
        ),
        order_violations=(
            *checkers.send_order(still_there),
            *(anomaly for group in kept.values() for anomaly in checkers.steps_back(group)),
        ),
        undelivered=tuple(
            anomaly for group, given in kept.items() for anomaly in _undelivered(still_there, given, delivered[group])
        ),
        redelivered=sum(checkers.redelivered(group) for group in kept.values()),
        unaccounted=tuple(unaccounted_losses(missing, accounts, acknowledged, log)),
        reconciliations=reconciliations,
        snapshots=() if fault is None else snapshot_baseline(acks, fault_at_ms=fault[1]),
    )


def _with_end(acks: Sequence[float], fault: tuple[str, float] | None, until_ms: float | None) -> Sequence[float]:
    """The acknowledgements and the end of the last pause, if producers were sending until then:
    records that were on their way when the fault came must not pass for a recovery.
    """
    came_back = fault is not None and bool(acks) and acks[-1] >= fault[1]
    return acks if until_ms is None or not came_back else [*acks, max(until_ms, acks[-1])]


def _pause(times_ms: Sequence[float], fault: tuple[str, float] | None, until_ms: float) -> Outage | None:
    if fault is None:
        return None
    return longest_pause(times_ms, fault=fault[0], fault_at_ms=fault[1], until_ms=until_ms)


def _catch_up(
    acknowledged: Sequence[Acknowledged], delivered: Mapping[str, Sequence[Delivered]], healed_at_ms: Sequence[float]
) -> CatchUp | None:
    found = []
    for given in delivered.values():
        topics = {item.topic for item in given}
        found.append(
            checkers.slowest_catch_up((ack for ack in acknowledged if ack.topic in topics), given, healed_at_ms)
        )
    return max((each for each in found if each is not None), key=lambda each: each.duration_ms, default=None)


def _undelivered(
    acknowledged: Iterable[Acknowledged], given: Sequence[Delivered], all_given: Sequence[Delivered]
) -> list[Anomaly]:
    # Of all deliveries, because the only records that a group received of a topic may be lost ones.
    topics = {item.topic for item in all_given}
    return checkers.never_delivered((ack for ack in acknowledged if ack.topic in topics), given)
