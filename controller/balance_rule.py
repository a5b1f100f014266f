"""The rule by which leaderships return to their preferred brokers."""

from __future__ import annotations

from msgspec import Struct


class BalanceRule(Struct, frozen=True, kw_only=True):
    """The interval of the check, and the percentage of a broker's preferred leaderships that may be
    elsewhere.
    """

    interval_s: float
    imbalance_percentage: int
