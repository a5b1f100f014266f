"""A tenure: the epoch that a candidate gets with its election and checks with every write."""

from __future__ import annotations

from msgspec import Struct


class Tenure(Struct, frozen=True, kw_only=True):
    """`epoch` fences brokers; `epoch_version` is the version of `/controller_epoch`, which fences
    ZooKeeper.
    """

    controller_id: int
    epoch: int
    epoch_version: int


class Deposed(Exception):
    """This candidate may have ceased to be the active controller. It drops its state and takes part
    in the next election.
    """
