"""The effects of a command to `core/partition.py`. `broker/replication/replicas.py` acts on each.

Structs, because an append makes three of them, and nothing else is made as fast.
"""

from __future__ import annotations

from msgspec import Struct

from broker.replication.core.wake_ups import Change


class LogGrew(Struct, frozen=True):
    """Records were appended; the log ended at `former`."""

    former: int


class FirstFetchAwaited(Struct, frozen=True):
    """Records were appended that these in-sync replicas do not fetch yet."""

    replicas: tuple[int, ...]


class HighWatermarkMoved(Struct, frozen=True):
    """Consumers may read up to `offset`, and records below it satisfy acks=all."""

    former: int
    offset: int


class MirrorableEndMoved(Struct, frozen=True):
    """Mirrors and tools may read up to `offset`."""

    former: int
    offset: int


class IsrProposed(Struct, frozen=True):
    """The controller is to be asked for these in-sync replicas (KIP-497)."""

    isr: tuple[int, ...]


class LeadershipBegan(Struct, frozen=True):
    """This broker leads under this leader epoch."""

    leader_epoch: int


class LeadershipLost(Struct, frozen=True):
    """This broker ceased to lead; its last leader epoch."""

    leader_epoch: int


class StandbyGivenUp(Struct, frozen=True):
    """The standby sent nothing for too long; acknowledgements do not wait for it."""

    acknowledged: int
    high_watermark: int


class StandbyCaughtUp(Struct, frozen=True):
    """The standby has all records again that became visible without it."""

    acknowledged: int


class Wake(Struct, frozen=True):
    """Wake the requests that wait for this change."""

    change: Change


Effect = (
    LogGrew
    | FirstFetchAwaited
    | HighWatermarkMoved
    | MirrorableEndMoved
    | IsrProposed
    | LeadershipBegan
    | LeadershipLost
    | StandbyGivenUp
    | StandbyCaughtUp
    | Wake
)
Effects = tuple[Effect, ...]

NO_EFFECTS: Effects = ()
FETCHED: Effects = (Wake(Change.FOLLOWER_FETCHED),)
LOG_REPLACED: Effects = (Wake(Change.LOG_REPLACED),)
