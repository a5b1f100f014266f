"""The rule by which leaderships return to their preferred brokers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceRule:
    """The interval of the check, and the percentage of a broker's preferred leaderships that may be
    elsewhere.
    """

    interval_s: float
    imbalance_percentage: int
