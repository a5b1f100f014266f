"""The links of several standbys under random schedules: sites that are lost and return, lines that
are cut, agents that decide on old answers and act late or not at all.

Promised, at every moment: no record of a link is replaced by an older one or by one of an earlier
promotion, and of one epoch there is one active site. At the end, when every site answers: one site
writes, every other one is its standby by one link, and no link is left over. Each mutant removes
one rule, and the schedules find it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from dr.agent.core import following
from dr.agent.core.following import Change
from tests.unit.dr.agent.core.following_world import Sites, link
from wire.control.cluster_pb2 import LinkRecord

SCHEDULES = 150
STEPS = 60


class Schedule:
    """One random history of four sites."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sites = Sites(link("a-b", "a", "b"), link("a-c", "a", "c"), link("a-d", "a", "d"))
        self.sites.settle()
        self.late: list[tuple[str, Change]] = []
        self.epochs: dict[tuple[str, str], tuple[int, int, int]] = {}
        self.floors: dict[tuple[str, str], int] = {}
        self.actives: dict[tuple[str, int], str] = {}

    def run(self) -> None:
        """Makes some random steps, then heals every fault and lets all agents finish."""
        for _ in range(STEPS):
            self.chance.choice((self._act, self._act, self._act, self._act, self._act_late, self._break, self._move))()
            self._check()
        self.sites.down.clear()
        self.sites.cut.clear()
        for site, change in self.late:
            self.sites.make(site, change)
            self._check()
        self.sites.settle()
        self._check()
        self._check_end()

    def _up(self) -> list[str]:
        return sorted(self.sites.stores.keys() - self.sites.down)

    def _act(self) -> None:
        """An agent decides, and makes its changes at once, late, or never."""
        if not self._up():
            return
        site = self.chance.choice(self._up())
        for change in self.sites.due(site):
            fate = self.chance.random()
            if fate < 0.6:
                self.sites.make(site, change)
            elif fate < 0.8:
                self.late.append((site, change))

    def _act_late(self) -> None:
        if self.late:
            site, change = self.late.pop(self.chance.randrange(len(self.late)))
            if site not in self.sites.down:
                self.sites.make(site, change)

    def _break(self) -> None:
        site = self.chance.choice(sorted(self.sites.stores))
        other = self.chance.choice(sorted(self.sites.stores.keys() - {site}))
        if self.chance.random() < 0.5:
            self.sites.down ^= {site}
        else:
            self.sites.cut ^= {frozenset((site, other))}

    def _move(self) -> None:
        """An operator promotes a standby whose active site is down, or agrees and is drained.

        The promoted site is a standby of the site that writes: no operator promotes the copy of a
        copy that is behind by a promotion.
        """
        newest = max(
            (record for links in self.sites.stores.values() for record in links.values()),
            key=lambda record: record.leader_epoch_floor,
        )
        ready = [
            (name, site)
            for site in self._up()
            for name, record in self.sites.stores[site].items()
            if record.active_site == newest.active_site != site
            and record.leader_epoch_floor == newest.leader_epoch_floor
            and site in (record.source_site, record.target_site)
        ]
        if ready:
            name, site = self.chance.choice(ready)
            self.sites.promote(name, site)

    def _check(self) -> None:
        for site, links in self.sites.stores.items():
            for name, record in links.items():
                version = (record.epoch, record.phase, record.revision)
                assert version >= self.epochs.get((site, name), version), (site, name)
                self.epochs[site, name] = version
                floor = record.leader_epoch_floor
                assert floor >= self.floors.get((site, name), floor), (site, name)
                self.floors[site, name] = floor
                active = self.actives.setdefault((name, record.epoch), record.active_site)
                assert active == record.active_site, (site, name, record.epoch)

    def _check_end(self) -> None:
        stores = self.sites.stores
        (writer,) = self.sites.writers()
        assert {record.active_site for links in stores.values() for record in links.values()} == {writer}
        standbys = sorted(next(iter({r.source_site, r.target_site} - {writer})) for r in stores[writer].values())
        assert standbys == sorted(stores.keys() - {writer})
        for site in standbys:
            assert len(stores[site]) == 1, (site, sorted(stores[site]))


def run_all() -> None:
    for seed in range(SCHEDULES):
        try:
            Schedule(seed).run()
        except (AssertionError, ValueError, KeyError) as error:
            raise AssertionError(f"schedule {seed}: {error!r}") from error


def test_the_links_of_four_sites_end_as_a_star_around_one_writer() -> None:
    run_all()


def _never(*_: object, **__: object) -> None:
    return None


def _ignore_order(original: Callable[..., Change | None]) -> Callable[..., Change | None]:
    """S-b: follow every other active site, whenever it was promoted."""

    def mutated(site: str, record: LinkRecord, answers: object, *, now_ms: int) -> Change | None:
        lowered = LinkRecord()
        lowered.CopyFrom(record)
        lowered.leader_epoch_floor = -1
        return original(site, lowered, answers, now_ms=now_ms)

    return mutated


@pytest.mark.parametrize(
    ("rule", "mutant"),
    [
        pytest.param("_introduction", lambda _: _never, id="standbys do not know each other"),
        pytest.param("_following", lambda _: _never, id="no standby follows"),
        pytest.param("_following", _ignore_order, id="an earlier promotion is followed"),
        pytest.param("_departure", lambda _: _never, id="a lost site keeps the link"),
        pytest.param("_joins", lambda _: lambda *_: [], id="a promoted site joins no link"),
    ],
)
def test_a_mutant_without_one_rule_is_found(
    rule: str, mutant: Callable[[Callable[..., Change | None]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, rule, mutant(getattr(following, rule)))
    with pytest.raises(AssertionError):
        run_all()
