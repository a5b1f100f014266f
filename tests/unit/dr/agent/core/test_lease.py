"""The right to write under a lease: the machine's rules one by one, and two sites with an arbiter
under clocks that drift and messages that are late; mutants show that each rule is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dr.agent.core import lease
from dr.agent.core.lease import LeaseStep, LinkLeaseMachine, VowTimes
from tests.unit.dr.agent.core.lease_world import LeaseWorld, TwoWriters
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord

SEEDS = range(400)
DURATION_MS = 20_000


def link(*, epoch: int = 2, active: str = "a", phase: LinkPhase = LinkPhase.MIRRORING, lease_ms: int = 1_000) -> Any:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        epoch=epoch,
        active_site=active,
        phase=phase,
        lease_ms=lease_ms,
    )


def held(*, epoch: int = 2, active: str = "a", is_open: bool = True, wait_ms: int = 1_000) -> ArbiterRecord:
    return ArbiterRecord(link="a-b", epoch=epoch, active_site=active, is_open=is_open, lease_ms=1_000, wait_ms=wait_ms)


def decided(record: LinkRecord, arbiter: ArbiterRecord | None, *, is_requested: bool = False, **given: Any) -> Any:
    machine = LinkLeaseMachine("a")
    if is_requested:
        machine.request_open(record.epoch)
    machine.observe(arbiter, now_ms=0.0)
    return machine.decide(record, arbiter, **{"may_be_held_elsewhere": True, "now_ms": 0.0, **given})


def test_l_a_a_permit_is_renewed_only_for_the_epoch_that_the_arbiter_names_open_for_this_site() -> None:
    assert decided(link(), held()).step is LeaseStep.RENEW
    assert decided(link(), held(is_open=False)).step is LeaseStep.WAIT
    for elsewhere in (held(active="b"), held(epoch=3), held(epoch=3, active="b")):
        found = decided(link(), elsewhere)
        assert found.step is LeaseStep.NONE
        assert "active in epoch 2 only by its own record" in found.problem


def test_without_a_lease_nothing_is_done_and_without_the_role_the_permit_ends() -> None:
    assert decided(link(lease_ms=0), held()).step is LeaseStep.NONE
    assert decided(link(active="b"), held()).step is LeaseStep.RELEASE
    assert decided(link(phase=LinkPhase.FENCED), held()).step is LeaseStep.RELEASE


def test_l_b_an_epoch_is_opened_when_the_longest_permit_has_run_out_by_the_slowest_clock() -> None:
    closed = held(is_open=False, wait_ms=1_000)
    early = decided(link(), closed, is_requested=True, now_ms=1_009.0)
    assert (early.step, early.problem) == (
        LeaseStep.WAIT,
        "brokers of b may hold permits of an earlier epoch for 1 ms",
    )
    opened = decided(link(), closed, is_requested=True, now_ms=1_010.0)
    assert opened.step is LeaseStep.OPEN
    assert (opened.record.epoch, opened.record.is_open) == (2, True)
    assert decided(link(), closed, is_requested=True, may_be_held_elsewhere=False).step is LeaseStep.OPEN


def test_l_b_the_time_counts_from_when_no_permit_can_have_been_renewed() -> None:
    closed = held(is_open=False, wait_ms=1_000)
    assert decided(link(), closed, is_requested=True, not_renewed_since_ms=-1_009.0).step is LeaseStep.WAIT
    assert decided(link(), closed, is_requested=True, not_renewed_since_ms=-1_010.0).step is LeaseStep.OPEN
    later = decided(link(), closed, is_requested=True, not_renewed_since_ms=500.0, now_ms=1_010.0)
    assert later.step is LeaseStep.OPEN


def test_l_c_an_epoch_stays_closed_until_its_failover_is_completed() -> None:
    found = decided(link(), held(is_open=False), now_ms=5_000.0)
    assert found.step is LeaseStep.WAIT
    assert "closed until its failover is completed" in found.problem


@pytest.mark.parametrize("known", [None, held(epoch=1, active="b")])
def test_l_d_only_an_older_record_of_the_arbiter_is_replaced(known: ArbiterRecord | None) -> None:
    found = decided(link(), known, is_requested=True)
    assert found.step is LeaseStep.RAISE
    assert (found.record.epoch, found.record.active_site, found.record.is_open) == (2, "a", False)


def test_l_e_an_arbiter_that_has_lost_its_data_is_known_by_a_later_epoch_or_one_that_was_open() -> None:
    assert decided(link(epoch=2), None).record.has_lost_former
    assert not decided(link(epoch=1), None).record.has_lost_former
    assert decided(link(epoch=1), None, was_open=True).record.has_lost_former
    before = held(epoch=1, active="b", is_open=False)
    before.has_lost_former = True  # its wait may not be over
    assert decided(link(epoch=2), before).record.has_lost_former
    before.is_open = True
    assert not decided(link(epoch=2), before).record.has_lost_former


def lost_and_closed() -> ArbiterRecord:
    record = held(is_open=False)
    record.has_lost_former = True
    return record


def test_l_e_after_a_loss_of_data_a_whole_lease_is_waited_for_although_no_holder_is_known() -> None:
    given = {"may_be_held_elsewhere": False, "not_renewed_since_ms": -5_000.0, "is_requested": True}
    assert decided(link(), lost_and_closed(), now_ms=1_009.0, **given).step is LeaseStep.WAIT
    assert decided(link(), lost_and_closed(), now_ms=1_010.0, **given).step is LeaseStep.OPEN


def test_l_e_an_epoch_that_was_open_before_the_loss_needs_another_request() -> None:
    machine = LinkLeaseMachine("a")
    machine.request_open(2)
    for _ in range(2):
        machine.observe(lost_and_closed(), now_ms=0.0, was_open=True)
        found = machine.decide(link(), lost_and_closed(), may_be_held_elsewhere=False, now_ms=5_000.0, was_open=True)
        assert found.step is LeaseStep.WAIT
    machine.request_open(2)
    machine.observe(lost_and_closed(), now_ms=5_000.0, was_open=True)
    found = machine.decide(link(), lost_and_closed(), may_be_held_elsewhere=False, now_ms=5_000.0, was_open=True)
    assert found.step is LeaseStep.OPEN


def test_a_site_that_writes_without_a_lease_gets_one_without_a_wait() -> None:
    machine = LinkLeaseMachine("a")
    machine.request_open(2, is_writing=True)
    machine.observe(lost_and_closed(), now_ms=0.0, was_open=True)
    found = machine.decide(link(), lost_and_closed(), may_be_held_elsewhere=False, now_ms=0.0, was_open=True)
    assert found.step is LeaseStep.OPEN


def test_the_wait_covers_the_longest_lease_that_was_in_force() -> None:
    before = ArbiterRecord(link="a-b", epoch=1, active_site="b", is_open=True, lease_ms=7_000, wait_ms=9_000)
    assert decided(link(lease_ms=1_000), before).record.wait_ms == 7_000
    before.is_open = False  # permits of the epoch before that one may still be valid
    assert decided(link(lease_ms=1_000), before).record.wait_ms == 9_000


def test_a_standby_vows_for_the_epoch_and_the_site_that_it_knows_and_only_under_a_lease() -> None:
    assert lease.may_vow(link(), epoch=2, asking_site="a")
    assert not lease.may_vow(link(), epoch=1, asking_site="a")
    assert not lease.may_vow(link(epoch=3, active="b"), epoch=3, asking_site="a")
    assert not lease.may_vow(link(lease_ms=0), epoch=2, asking_site="a")


def test_the_last_vow_counts_from_when_it_was_first_seen() -> None:
    vows = VowTimes()
    assert vows.observe({}, now_ms=1.0) is None
    assert vows.observe({"a-1": 7}, now_ms=2.0) == 2.0
    assert vows.observe({"a-1": 7, "a-2": 8}, now_ms=3.0) == 3.0
    assert vows.observe({"a-1": 7, "a-2": 8}, now_ms=4.0) == 3.0
    assert vows.observe({"a-1": 9, "a-2": 8}, now_ms=5.0) == 5.0
    assert vows.observe({"a-2": 8}, now_ms=6.0) == 3.0  # the broker has released its vow
    assert vows.observe({}, now_ms=7.0) is None


def test_two_sites_never_hold_permits_at_one_moment() -> None:
    grants = {"a": 0, "b": 0}
    for seed in SEEDS:
        world = LeaseWorld(seed)
        world.run(DURATION_MS)
        for name, site in world.sites.items():
            grants[name] += site.grants
    assert min(grants.values()) > 1_000  # both sites were active in many of the runs


def _at_once(self: LinkLeaseMachine, record: Any, arbiter: Any, **given: Any) -> Any:
    return DECIDE(self, record, arbiter, **{**given, "may_be_held_elsewhere": False})


def _long_absent(self: LinkLeaseMachine, record: Any, arbiter: Any, **given: Any) -> Any:
    since_ms = given["not_renewed_since_ms"]
    long_ago_ms = None if since_ms is None else since_ms - 800
    return DECIDE(self, record, arbiter, **{**given, "not_renewed_since_ms": long_ago_ms})


def _first_vow(self: VowTimes, vows: Mapping[str, int], *, now_ms: float) -> float | None:
    return OBSERVE(self, dict.fromkeys(vows, 1), now_ms=now_ms)


DECIDE = LinkLeaseMachine.decide
OBSERVE = VowTimes.observe
MUTANTS = {
    "a promotion that waits for no permit": (LinkLeaseMachine, "decide", _at_once),
    "a wait that is shorter than a permit": (
        lease,
        "run_out_at_ms",
        lambda *, closed_at_ms, wait_ms: closed_at_ms + wait_ms / 4,
    ),
    "a permit that is longer than the wait": (
        lease,
        "permit_until_ms",
        lambda *, asked_at_ms, lease_ms: asked_at_ms + 2 * lease_ms,
    ),
    "a site that is held to be absent for longer than it is": (LinkLeaseMachine, "decide", _long_absent),
    "a standby that counts from its first vow": (VowTimes, "observe", _first_vow),
    "a standby that vows whatever it knows": (lease, "may_vow", lambda *_, **__: True),
}


def run_all() -> None:
    for seed in SEEDS:
        LeaseWorld(seed).run(DURATION_MS)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_model_finds(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    with pytest.raises(TwoWriters):
        run_all()
