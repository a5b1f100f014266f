"""Judges a drill: compares each stated expectation of the plan with the measurement, in words for
the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dr.drill.core.checkers import CatchUp
from dr.drill.core.measures import Measured, Outage

EQUAL = "equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One expectation, the finding, and whether it was met."""

    name: str
    wanted: str
    found: str
    is_met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a plan; a limit of None is not judged."""

    recovery_point_records_max: int | None = None
    recovery_point_ms_max: float | None = None
    producer_recovery_ms_max: float | None = None
    consumer_recovery_ms_max: float | None = None
    consumer_catch_up_ms_max: float | None = None
    duplicates_max: int | None = None
    gaps_max: int | None = None
    order_violations_max: int | None = None
    undelivered_max: int | None = None
    redelivered_max: int | None = None
    loss_is_as_accounted: bool | None = None
    sites_equal: Sequence[str] = ()


def judge(limits: Limits, measured: Measured) -> list[Verdict]:
    """A verdict for every expectation that is stated."""
    verdicts = list(_bounds(limits, measured))
    if limits.loss_is_as_accounted:
        count = len(measured.unaccounted)
        verdicts.append(
            Verdict(
                name="loss is as accounted",
                wanted="every missing record at or above the offset that the failover said is kept",
                found="so it is" if count == 0 else f"{count} records are missing below it",
                is_met=count == 0,
            )
        )
    for name in limits.sites_equal:
        found = measured.reconciliations.get(name, "not run")
        verdicts.append(Verdict(name=f"sites equal ({name})", wanted=EQUAL, found=found, is_met=found == EQUAL))
    return verdicts


def _bounds(limits: Limits, measured: Measured) -> Iterator[Verdict]:
    rows: tuple[tuple[str, float | None, float | None, str], ...] = (
        ("recovery point", limits.recovery_point_records_max, len(measured.missing), "records"),
        ("recovery point", limits.recovery_point_ms_max, measured.recovery_point_ms, "ms"),
        ("recovery time of producers", limits.producer_recovery_ms_max, _duration(measured.producer_outage), "ms"),
        ("recovery time of consumers", limits.consumer_recovery_ms_max, _duration(measured.consumer_outage), "ms"),
        ("catch-up of consumers", limits.consumer_catch_up_ms_max, _catch_up_ms(measured.catch_up), "ms"),
        ("duplicates", limits.duplicates_max, len(measured.duplicates), "records"),
        ("gaps", limits.gaps_max, len(measured.gaps), "places"),
        ("order", limits.order_violations_max, len(measured.order_violations), "violations"),
        ("undelivered", limits.undelivered_max, len(measured.undelivered), "records"),
        ("delivered again", limits.redelivered_max, measured.redelivered, "records"),
    )
    for name, limit, found, unit in rows:
        if limit is not None:
            yield Verdict(
                name=name,
                wanted=f"at most {limit:g} {unit}",
                found="nothing came after the fault" if found is None else f"{found:.0f} {unit}",
                # Clients that never came back have no duration to compare, and meet no limit.
                is_met=found is not None and found <= limit,
            )


def _duration(outage: Outage | None) -> float | None:
    return None if outage is None else outage.duration_ms


def _catch_up_ms(catch_up: CatchUp | None) -> float | None:
    if catch_up is None:
        return 0.0
    return None if math.isinf(catch_up.duration_ms) else catch_up.duration_ms
