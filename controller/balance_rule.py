"""When leaderships go back to the brokers that are preferred for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceRule:
    """How often it is looked at, and how many in a hundred of a broker's preferred leaderships may
    be elsewhere.
    """

    interval_s: float
    imbalance_percentage: int
