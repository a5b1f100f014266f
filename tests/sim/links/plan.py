"""The plan of a seed of two sites, and the names of all nodes in its world."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from wire.rules.links import FailoverMode, SyncPolicy

LINK: Final = "a-b"
SITES: Final = ("a", "b")
ZOOKEEPERS: Final = {"a": ("za",), "b": ("zb",)}
"""One server for each site; the arbiter is an ensemble of three."""
ARBITERS: Final = ("r1", "r2", "r3")
MIRROR_HOSTS: Final = {"a": "ma", "b": "mb"}
"""Where the mirror runs that writes into the site."""
OPERATOR_HOSTS: Final = ("op", "op2")

CLOCK_SPEED_MAX: Final = 0.004
"""Two clocks differ by less than the bound of the lease (`dr/agent/core/lease.py`)."""
LONG_LEASE_MS: Final = 8000
"""Permits outlast the time that a failover from a silent site takes."""
PARTITIONS: Final = 2
TOPIC: Final = "t"
GROUP: Final = "g"


def other(site: str) -> str:
    """The other site."""
    return "b" if site == "a" else "a"


def site_of(node_id: int) -> str:
    """The site of a broker, by the range of its node id."""
    return SITES[node_id // 1000]


class Story(enum.Enum):
    """The fault that a seed is about (`stories.py`)."""

    RANDOM = "random"
    """Random faults, while an operator moves the link about."""
    LAG = "lag"
    """The active site is lost while the mirror lags; it comes back with records of its own."""
    VOWS = "vows"
    """The active site writes by the standby's vows alone when it is lost."""
    LATE = "late"
    """The leader stops between its append and its answer, and wakes after the promotion."""
    TWICE = "twice"
    """The promoted site is lost too, before the first one has given its own records up."""
    FIRST_COPY = "first copy"
    """The active site is lost before the standby has what it held when the link was made."""
    STALE_MIRROR = "stale mirror"
    """A mirror stops with batches in hand, and wakes after the account of the failover is kept."""
    TWO_OPERATORS = "two operators"
    """One operator's request arrives after the move by another one."""
    DEGRADED = "degraded"
    """A leader that has stopped waiting for its standby is lost."""
    SUCCESSOR = "successor"
    """The controller of a promoted site ends soon after it has raised leader epochs."""
    LEASE_REMOVED = "lease removed"
    """An operator removes the lease, and another one fails over from the silent active site."""
    EMPTIED = "emptied"
    """The arbiter loses its data around the loss of the active site."""
    POLICY = "policy"
    """An operator makes a link a sync link while its standby lags; then the active site is lost."""
    LOST_DISK = "lost disk"
    """The standby comes back without its logs; the active site is lost before they are copied."""
    ABORTED = "aborted"
    """An operator's process dies in the middle of a move, and another operator aborts the move."""
    ALTERED = "altered"
    """An operator changes the link's policies while another one moves it."""


COMMANDED: Final = (Story.LEASE_REMOVED, Story.EMPTIED, Story.POLICY, Story.LOST_DISK)
"""Stories of operators' commands and lost data in the middle of what the agents do
(`command_stories.py`).
"""
TWO_COMMANDS: Final = (Story.ABORTED, Story.ALTERED)
"""Stories of one operator's command in the middle of another operator's (`command_stories.py`)."""
DIRECTED: Final = tuple(
    story for story in Story if story not in (Story.RANDOM, Story.LAG, Story.SUCCESSOR, *COMMANDED, *TWO_COMMANDS)
)
SUCCESSOR_EVERY: Final = 10
SUCCESSOR_SEED: Final = 8
"""The seeds 8, 18, 28 and so on play `Story.SUCCESSOR`."""
COMMANDED_EVERY: Final = 20
COMMANDED_SEED: Final = 4
"""The seeds 4, 24, 44 and so on play the stories of `COMMANDED` in turn."""
TWO_COMMANDS_SEED: Final = 0
"""The seeds 20, 40, 60 and so on play those of `TWO_COMMANDS`; all others choose by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """The choices that follow from a seed."""

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
    story: Story

    @classmethod
    def of(cls, seed: int) -> LinkPlan:
        """The plan of a seed."""
        chance = Random(seed * 6271 + 11)
        story = chance.choice((Story.RANDOM, Story.LAG, chance.choice(DIRECTED)))
        if seed % SUCCESSOR_EVERY == SUCCESSOR_SEED:
            story = Story.SUCCESSOR
        if seed % COMMANDED_EVERY == COMMANDED_SEED:
            story = COMMANDED[seed // COMMANDED_EVERY % len(COMMANDED)]
        if seed % COMMANDED_EVERY == TWO_COMMANDS_SEED:
            story = TWO_COMMANDS[seed // COMMANDED_EVERY % len(TWO_COMMANDS)]
        modes = (FailoverMode.OBSERVE, FailoverMode.AUTOMATIC, FailoverMode.AUTOMATIC)
        policies = (SyncPolicy.NONE, SyncPolicy.NONE, SyncPolicy.BLOCK, SyncPolicy.DEGRADE)
        plan = cls(
            seed=seed,
            brokers=chance.choice((1, 1, 2)),
            sync=chance.choice(policies),
            sync_timeout_ms=chance.choice((500, 2000)),
            mode=chance.choice(modes),
            lease_ms=chance.choice((1000, 2000)),
            faults_s=chance.choice((8.0, 15.0)),
            calm=chance.choice((0.5, 1.0, 2.0)),
            has_operator=story is Story.RANDOM and chance.random() < 0.7,
            story=story,
        )
        return replace(plan, **plan.needed(chance))

    def needed(self, chance: Random) -> dict[str, Any]:
        """The fields of the plan that the story needs to have certain values."""
        match self.story:
            case Story.LAG:
                return {"lease_ms": chance.choice((1000, 2000, LONG_LEASE_MS))}
            case Story.VOWS:
                return {"sync": SyncPolicy.NONE, "mode": FailoverMode.OBSERVE, "lease_ms": LONG_LEASE_MS}
            case Story.LATE:
                return {"sync": SyncPolicy.NONE, "mode": FailoverMode.OBSERVE, "brokers": 2, "lease_ms": 1000}
            case Story.TWICE:
                return {"sync": SyncPolicy.NONE, "lease_ms": 1000}
            case Story.FIRST_COPY:
                return {"sync": SyncPolicy.NONE, "mode": FailoverMode.AUTOMATIC, "lease_ms": 1000}
            case Story.DEGRADED:
                return {"sync": SyncPolicy.DEGRADE, "mode": FailoverMode.AUTOMATIC, "lease_ms": 1000}
            case Story.STALE_MIRROR:
                return {"sync": SyncPolicy.NONE, "mode": FailoverMode.OBSERVE}
            case Story.SUCCESSOR:
                return {"sync": SyncPolicy.NONE, "mode": FailoverMode.OBSERVE, "brokers": 2, "lease_ms": 1000}
            case _:
                return self._needed_for_commands(chance)

    def _needed_for_commands(self, chance: Random) -> dict[str, Any]:
        match self.story:
            case Story.LEASE_REMOVED:
                return {"sync": SyncPolicy.NONE, "lease_ms": chance.choice((1000, 2000))}
            case Story.EMPTIED:
                return {"sync": chance.choice((SyncPolicy.NONE, SyncPolicy.DEGRADE)), "mode": FailoverMode.AUTOMATIC}
            case Story.POLICY:
                return {"sync": SyncPolicy.NONE, "mode": FailoverMode.AUTOMATIC, "lease_ms": 1000}
            case Story.LOST_DISK:
                return {"mode": FailoverMode.AUTOMATIC, "brokers": 1, "lease_ms": 1000}
            case _:
                return {}

    @property
    def sort(self) -> tuple[Story, SyncPolicy, FailoverMode]:
        """Seeds with the same one show the same faults of the product."""
        return self.story, self.sync, self.mode

    def node_ids(self, site: str) -> tuple[int, ...]:
        """The node ids of one site's brokers."""
        return tuple(1000 * SITES.index(site) + number for number in range(1, self.brokers + 1))
