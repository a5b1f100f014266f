"""Claims of slots: under any interleaving and interruption, no daemon writes a slot that another
one has taken over, nor from an old position.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field

from mirror.translate.notes.core.claims import Claim, ClaimName, outlived, rivals_of, successor_of

SLOTS = 4
DAEMONS = 3
STEPS = 400

Steps = Generator[None]


def claim(name: str, slots: set[int] | None, *, epoch: int = 0) -> Claim:
    return Claim(
        name=ClaimName(name, 1, epoch), mirror=f"process {name}", slots=None if slots is None else frozenset(slots)
    )


def test_claims_with_a_slot_in_common_are_rivals() -> None:
    own = claim("own", {1, 2})
    neighbour, rival, whole, empty = claim("a", {3}), claim("b", {2, 3}), claim("c", None), claim("d", set())
    before = claim("own", {1}, epoch=-1)
    outgrown = claim("a", {1}, epoch=-1)
    claims = [before, outgrown, neighbour, own, rival, whole, empty]
    assert rivals_of(own, claims) == [rival, whole]
    assert rivals_of(claim("own", None), claims) == [neighbour, rival, whole, empty]
    assert outlived(own, claims) == [before, outgrown]


def test_a_whole_claim_ends_when_it_is_replaced_and_a_shared_one_when_all_was_taken() -> None:
    shared, whole = claim("shared", {1}), claim("whole", None)
    assert successor_of(shared, [shared, claim("other", {1, 2})]) is None
    assert successor_of(shared, [whole]) is whole
    assert successor_of(whole, [whole, shared]) is shared
    assert successor_of(whole, [whole]) is None


class Fenced(Exception):
    """The target refuses the epoch."""


@dataclass
class Target:
    """Coordinators, the link's topic with its open transactions, and a log for each slot."""

    epochs: dict[str, int] = field(default_factory=dict)
    claims: dict[ClaimName, Claim] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    logs: dict[int, list[int]] = field(default_factory=lambda: {slot: [] for slot in range(SLOTS)})
    # The open transaction of each id: slots' records and next positions.
    opened: dict[str, dict[int, list[int]]] = field(default_factory=dict)

    def fence(self, name: str) -> int:
        """InitProducerId: the coordinator aborts the open transaction of the id."""
        self.epochs[name] = self.epochs.get(name, -1) + 1
        self.opened.pop(name, None)
        return self.epochs[name]

    def demand(self, name: str, epoch: int) -> None:
        if self.epochs[name] != epoch:
            raise Fenced

    def write(self, name: str, epoch: int, slot: int, numbers: list[int]) -> None:
        self.demand(name, epoch)
        self.opened.setdefault(name, {}).setdefault(slot, []).extend(numbers)

    def commit(self, name: str, epoch: int) -> None:
        self.demand(name, epoch)
        for slot, numbers in self.opened.pop(name, {}).items():
            self.logs[slot] += numbers
            self.positions[slot] = numbers[-1] + 1


class Daemon:
    """Writes 0, 1, 2... to each of its slots, in the steps that the mirror takes; another one may
    run between any two.
    """

    def __init__(self, name: str, target: Target, chance: random.Random) -> None:
        self._name, self._target, self._chance = name, target, chance
        # The slots that it believes to own: any slots, at any time.
        self.slots: frozenset[int] = frozenset()
        self._before = ClaimName(name, 0, -1)
        self.commits = 0
        self.steps = self._run()

    def _run(self) -> Steps:
        while True:
            try:
                yield from self._open()
            except Fenced:
                yield

    def _open(self) -> Steps:
        target, slots = self._target, self.slots
        epoch = target.fence(self._name)
        yield
        own = Claim(name=ClaimName(self._name, 0, epoch), mirror=self._name, slots=slots)
        target.demand(self._name, epoch)
        target.claims.pop(self._before, None)
        target.claims[own.name] = own
        self._before = own.name
        yield
        claims = list(target.claims.values())
        rivals, gone = rivals_of(own, claims), outlived(own, claims)
        yield
        for rival in rivals:
            target.fence(rival.name.transactional_id)
            yield
        positions = dict(target.positions)
        yield
        target.demand(self._name, epoch)
        for dead in [*rivals, *gone]:
            target.claims.pop(dead.name, None)
        yield
        while slots == self.slots:
            for slot in sorted(slots):
                first = positions.get(slot, 0)
                numbers = list(range(first, first + self._chance.randint(1, 3)))
                target.write(self._name, epoch, slot, numbers)
                positions[slot] = numbers[-1] + 1
                yield
            target.commit(self._name, epoch)
            self.commits += bool(slots)
            yield


def test_each_record_is_mirrored_once_and_in_order_whichever_daemon_owns_a_slot() -> None:
    for seed in range(150):
        chance = random.Random(seed)
        target = Target()
        daemons = [Daemon(f"mirror.{number}", target, chance) for number in range(DAEMONS)]
        for step in range(STEPS):
            number = chance.randrange(DAEMONS)
            if chance.random() < 0.02:
                daemons[number].slots = frozenset(slot for slot in range(SLOTS) if chance.random() < 0.5)
            if chance.random() < 0.01:
                # Killed, and started again under another id.
                daemons[number] = Daemon(f"mirror.{number}.{step}", target, chance)
            next(daemons[number].steps)
            for slot, log in target.logs.items():
                assert log == list(range(len(log))), (seed, slot, log)
        share_and_go_on(daemons, target, seed)


def share_and_go_on(daemons: list[Daemon], target: Target, seed: int) -> None:
    """Every daemon writes if the slots do not overlap. The claims of ended daemons are gone."""
    for number, daemon in enumerate(daemons):
        daemon.slots = frozenset(range(number, SLOTS, DAEMONS))
    before = [daemon.commits for daemon in daemons]
    for _ in range(60):
        for daemon in daemons:
            next(daemon.steps)
    assert all(daemon.commits > one for daemon, one in zip(daemons, before, strict=True)), seed
    assert all(log == list(range(len(log))) for log in target.logs.values()), seed
    living = [one for one in target.claims.values() if one.slots]
    assert len(living) == DAEMONS, (seed, living)
