"""Two sites, their arbiter and the line between them as a model: machines of
`dr/agent/core/lease.py` under clocks that drift, messages that are late or lost, and failovers at
any time.

Whenever a site is granted a permit, no permit of the other one may be valid by true time.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from dr.agent.core import lease
from dr.agent.core.lease import LeaseStep, LinkLeaseMachine, VowTimes
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.rules.links import other_site, supersedes

LEASE_MS = 1_000
LOST_SHARE = 0.1
DELAY_MS_MAX = 200
RETRY_MS = 50
SESSION_MS = 100
DRIFT_MAX = lease.CLOCK_DRIFT_MAX / 2


class TwoWriters(AssertionError):
    """Two sites may acknowledge writes at one moment."""


@dataclass
class Site:
    """One site: its record, its clock, its machine, and its permit."""

    name: str
    rate: float
    offset_ms: float
    record: LinkRecord
    machine: LinkLeaseMachine
    reaches_arbiter: bool = True
    reaches_peer: bool = True
    permit_until_ms: float = float("-inf")
    opened_epoch: int = 0
    grants: int = 0
    is_present: bool = False
    """Whether its session at the arbiter lives."""
    presence_changes: int = 0
    cuts: int = 0
    peer_absent: tuple[int, float] | None = None
    """The count of changes and since when, as the site saw it."""
    vows_given: dict[str, int] = field(default_factory=dict)
    """By site, the number of its last vow."""
    vow_times: VowTimes = field(default_factory=VowTimes)
    vow_count: int = 0

    def clock_ms(self, true_ms: float) -> float:
        """The time that the site's clock shows."""
        return self.offset_ms + true_ms * self.rate

    def true_ms(self, clock_ms: float) -> float:
        """The true time at which the clock shows this time."""
        return (clock_ms - self.offset_ms) / self.rate


class LeaseWorld:
    """The model of one link with a lease. `run` continues until there are no more events."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.now_ms = 0.0
        first = LinkRecord(
            name="a-b",
            source_site="a",
            target_site="b",
            active_site="a",
            epoch=1,
            phase=LinkPhase.MIRRORING,
            lease_ms=LEASE_MS,
        )
        self.sites = {name: self._site(name, first) for name in ("a", "b")}
        self.arbiter: ArbiterRecord | None = None
        self.version = 0
        self.holders: set[str] = set()

    def _site(self, name: str, record: LinkRecord) -> Site:
        rate = 1 + self._chance.uniform(-DRIFT_MAX, DRIFT_MAX)
        return Site(name, rate, self._chance.uniform(0, 1e6), record, LinkLeaseMachine(name))

    def after(self, delay_ms: float, event: Callable[[], None]) -> None:
        """Schedules the event after this delay."""
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._order), event))

    def _sent(self, event: Callable[[], None]) -> None:
        """Sends a message, which arrives late or is lost."""
        if self._chance.random() >= LOST_SHARE:
            self.after(self._chance.uniform(0, DELAY_MS_MAX) ** 2 / DELAY_MS_MAX, event)

    def run(self, duration_ms: float) -> None:
        """Renewals every third of a lease, and some failovers and cuts."""
        for site in self.sites.values():
            for number in range(int(duration_ms * 3 / LEASE_MS)):
                self.after(number * LEASE_MS / 3 + self._chance.uniform(0, 50), partial(self._tend, site))
        self.sites["a"].machine.request_open(1)
        for _ in range(self._chance.randint(1, 4)):
            self.after(self._chance.uniform(0, duration_ms), self._fail_over)
        for _ in range(self._chance.randint(0, 6)):
            self.after(self._chance.uniform(0, duration_ms), self._change_line)
        while self._events:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()

    def _change_line(self) -> None:
        site = self.sites[self._chance.choice("ab")]
        if self._chance.random() < 0.5:
            site.reaches_arbiter = not site.reaches_arbiter
            site.cuts += 1
            if not site.reaches_arbiter:
                self.after(SESSION_MS, partial(self._expire, site, site.cuts))
                self.after(self._chance.uniform(0, 2 * LEASE_MS), self._fail_over)
        else:
            for one in self.sites.values():
                one.reaches_peer = not one.reaches_peer

    def _expire(self, site: Site, cuts: int) -> None:
        if site.cuts == cuts and site.is_present:
            site.is_present = False
            site.presence_changes += 1

    def _see_peer(self, site: Site, seen: tuple[bool, int]) -> float | None:
        """The own clock's time since which the other site is absent; None if it is present."""
        is_present, changes = seen
        if is_present:
            site.peer_absent = None
        elif site.peer_absent is None or site.peer_absent[0] != changes:
            site.peer_absent = changes, site.clock_ms(self.now_ms)
        return None if site.peer_absent is None else site.peer_absent[1]

    def _see_vows(self, site: Site) -> float | None:
        """The own clock's time since which the site has given no vow; None if it has given none."""
        return site.vow_times.observe(site.vows_given, now_ms=site.clock_ms(self.now_ms))

    def _look(self, site: Site) -> None:
        peer = self.sites[other_site(site.record, site.name)]
        seen = peer.is_present, peer.presence_changes
        self._sent(partial(self._note_peer, site, seen))

    def _note_peer(self, site: Site, seen: tuple[bool, int]) -> None:
        self._see_peer(site, seen)

    def _fail_over(self) -> None:
        """A person or an agent promotes the passive site: its record is raised first."""
        newest = max((site.record for site in self.sites.values()), key=lambda record: record.epoch)
        target = self.sites[other_site(newest, newest.active_site)]
        if not target.reaches_arbiter:
            return
        raised = LinkRecord()
        raised.CopyFrom(newest)
        raised.epoch, raised.active_site = newest.epoch + 1, target.name
        target.record = raised
        self._tend(target)
        self.after(self._chance.uniform(0, 300), partial(self._request_open, target, raised.epoch))

    def _request_open(self, site: Site, epoch: int) -> None:
        site.machine.request_open(epoch)
        self._tend(site)

    def _tend(self, site: Site) -> None:
        peer = self.sites[other_site(site.record, site.name)]
        if site.reaches_peer and supersedes(peer.record, site.record):
            self._sent(partial(self._adopt, site, peer.record))
        record = site.record
        if record.active_site != site.name:
            self._see_vows(site)
            site.permit_until_ms = float("-inf")
            if site.reaches_arbiter:
                self._sent(lambda: self._released(site))
                self._sent(lambda: self._look(site))
            return
        if site.reaches_arbiter:
            self._sent(lambda: self._read(site, record))
        elif site.reaches_peer and site.opened_epoch == record.epoch:
            asked_at_ms = site.clock_ms(self.now_ms)
            self._sent(lambda: self._vowed(site, peer, record, asked_at_ms))

    def _adopt(self, site: Site, newer: LinkRecord) -> None:
        if supersedes(newer, site.record):
            site.record = newer

    def _released(self, site: Site) -> None:
        if site.permit_until_ms == float("-inf") and site.record.active_site != site.name:
            self.holders.discard(site.name)

    def _read(self, site: Site, record: LinkRecord) -> None:
        if not site.is_present:
            site.is_present = True
            site.presence_changes += 1
        held, version, holders = self.arbiter, self.version, set(self.holders)
        peer = self.sites[other_site(record, site.name)]
        seen = peer.is_present, peer.presence_changes
        self._sent(lambda: self._settle(site, record, held, version, holders, seen))

    def _settle(
        self,
        site: Site,
        record: LinkRecord,
        held: ArbiterRecord | None,
        version: int,
        holders: set[str],
        seen: tuple[bool, int],
    ) -> None:
        absent_since_ms, vowed_since_ms = self._see_peer(site, seen), self._see_vows(site)
        elsewhere = holders - {site.name}
        times = [absent_since_ms] * bool(elsewhere) + ([] if vowed_since_ms is None else [vowed_since_ms])
        known = [since_ms for since_ms in times if since_ms is not None]
        site.machine.observe(held, now_ms=site.clock_ms(self.now_ms))
        decision = site.machine.decide(
            record,
            held,
            may_be_held_elsewhere=bool(times),
            now_ms=site.clock_ms(self.now_ms),
            not_renewed_since_ms=max(known) if known and len(known) == len(times) else None,
        )
        if decision.record is not None:
            wanted = decision.record
            self._sent(lambda: self._store(site, wanted, version))
        elif decision.step is LeaseStep.WAIT and site.machine.is_requested(record.epoch):
            self.after(RETRY_MS, lambda: self._tend(site))
        elif decision.step is LeaseStep.RENEW:
            asked_at_ms = site.clock_ms(self.now_ms)
            self._sent(lambda: self._renewed(site, record, version, asked_at_ms))

    def _store(self, site: Site, wanted: ArbiterRecord, version: int) -> None:
        if self.version == version:
            self.arbiter, self.version = wanted, version + 1
            if wanted.is_open:
                self.holders -= set(self.sites) - {site.name}
                site.vows_given.clear()
            self._sent(lambda: self._tend(site))

    def _renewed(self, site: Site, record: LinkRecord, version: int, asked_at_ms: float) -> None:
        if self.version != version or not site.is_present:
            return
        self.holders.add(site.name)
        self._sent(lambda: self._grant(site, record, asked_at_ms))

    def _vowed(self, site: Site, peer: Site, record: LinkRecord, asked_at_ms: float) -> None:
        if lease.may_vow(peer.record, epoch=record.epoch, asking_site=site.name):
            peer.vow_count += 1
            peer.vows_given[site.name] = peer.vow_count
            self._sent(lambda: self._grant(site, record, asked_at_ms))

    def _grant(self, site: Site, record: LinkRecord, asked_at_ms: float) -> None:
        if site.record.epoch != record.epoch:
            return
        until_ms = lease.permit_until_ms(asked_at_ms=asked_at_ms, lease_ms=LEASE_MS)
        if until_ms <= site.clock_ms(self.now_ms):
            return
        site.permit_until_ms = max(site.permit_until_ms, until_ms)
        site.opened_epoch = record.epoch
        site.grants += 1
        other = self.sites[other_site(record, site.name)]
        if other.true_ms(other.permit_until_ms) > self.now_ms:
            raise TwoWriters(f"at {self.now_ms:.0f}: {site.name} in epoch {record.epoch} beside {other.name}")
