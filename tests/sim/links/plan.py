"""What a seed of two sites stands for, and the names of everything in its world."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from wire.rules.links import FailoverMode, SyncPolicy

LINK: Final = "a-b"
SITES: Final = ("a", "b")
ZOOKEEPERS: Final = {"a": ("za",), "b": ("zb",)}
"""One server for each site; the arbiter is an ensemble of three."""
ARBITERS: Final = ("r1", "r2", "r3")
MIRROR_HOSTS: Final = {"a": "ma", "b": "mb"}
"""Where the mirror runs that writes into the site."""
OPERATOR_HOST: Final = "op"

CLOCK_SPEED_MAX: Final = 0.004
"""Two clocks differ by less than the bound of the lease (`dr/agent/core/lease.py`)."""
PARTITIONS: Final = 2
TOPIC: Final = "t"
GROUP: Final = "g"


def other(site: str) -> str:
    """The other site."""
    return "b" if site == "a" else "a"


def site_of(node_id: int) -> str:
    """The site of a broker, by the range of its node id."""
    return SITES[node_id // 1000]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """What a seed stands for."""

    seed: int
    brokers: int
    """Of each site."""
    sync: SyncPolicy
    sync_timeout_ms: int
    mode: FailoverMode
    lease_ms: int
    faults_s: float
    calm: float
    has_operator: bool
    """An operator moves the link about, also while nothing is wrong."""
    begins_lost: bool
    """The first fault is that the active site is lost to all but its clients."""

    @classmethod
    def of(cls, seed: int) -> LinkPlan:
        """The plan of a seed."""
        chance = Random(seed * 6271 + 11)
        return cls(
            seed=seed,
            brokers=chance.choice((1, 1, 2)),
            sync=chance.choice((SyncPolicy.NONE, SyncPolicy.NONE, SyncPolicy.BLOCK, SyncPolicy.DEGRADE)),
            sync_timeout_ms=chance.choice((500, 2000)),
            mode=chance.choice((FailoverMode.OBSERVE, FailoverMode.AUTOMATIC, FailoverMode.AUTOMATIC)),
            lease_ms=chance.choice((1000, 2000)),
            faults_s=chance.choice((8.0, 15.0)),
            calm=chance.choice((0.5, 1.0, 2.0)),
            has_operator=chance.random() < 0.7,
            begins_lost=chance.random() < 0.6,
        )

    def node_ids(self, site: str) -> tuple[int, ...]:
        """Of one site's brokers."""
        return tuple(1000 * SITES.index(site) + number for number in range(1, self.brokers + 1))
