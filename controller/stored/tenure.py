"""A tenure: what a candidate holds from its election on, and proves with every write."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """`epoch` fences brokers; `epoch_version` is the version of `/controller_epoch`, which fences
    ZooKeeper.
    """

    controller_id: int
    epoch: int
    epoch_version: int


class Deposed(Exception):
    """This candidate is no longer, or may no longer be, the active controller; it drops its state
    and stands again.
    """
