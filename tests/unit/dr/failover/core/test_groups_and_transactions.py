"""Group offsets, transactional producers and committed transactions at a failover: the standby
has them as of the fence, or the playbook refuses and names what is missing (F-f). The account of
a dead source gives the age of its groups' offsets (F2).
"""

from __future__ import annotations

import pytest

from dr.failover.core.steps import FailoverPolicy, Step
from dr.sites.core.evidence import TransactionalProducer
from tests.unit.dr.core.link_model import KEY, PLACE, ModelLink, Operator
from tests.unit.dr.failover.core.failover_links import link_with_a_late_commit, link_with_records


@pytest.mark.parametrize("offset", [12, 2], ids=["further", "rewound"])
@pytest.mark.parametrize("crash_before", range(9))
def test_f_f_what_a_group_committed_before_the_fence_is_there_after_it(offset: int, crash_before: int) -> None:
    link = link_with_a_late_commit(offset)
    for count, _ in enumerate(Operator(link).steps()):
        if count == crash_before:
            break
    outcome = Operator(link).run()
    assert outcome.step is Step.DONE or "active for link a-b already" in outcome.reason
    assert link.b.offsets == {PLACE: offset}
    assert not link.a.commit(13)
    assert link.b.commit(13)
    groups = link.b.accounts[2].groups
    assert groups is not None
    assert (groups.known_lost_offsets, groups.is_exact) == (0, True)


def test_f_f_a_mirror_that_does_not_carry_groups_is_a_reason_to_stop_that_names_them() -> None:
    link = link_with_a_late_commit(12)
    link.carries_groups = False
    refused = Operator(link).run()
    assert refused.step is Step.REFUSE
    assert "1 committed offsets are not here yet (group board, flights-0: 12 there, 7 here)" in refused.reason
    assert link.a.commit(12)  # the fence is given back
    accepted = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=500))
    assert accepted.run().step is Step.DONE
    groups = link.b.accounts[link.b.record.epoch].groups
    assert groups is not None
    assert (groups.known_lost_offsets, groups.is_exact) == (1, True)
    assert "group board, flights-0: 12 there, 7 here" in groups.sentence


def test_f_f_groups_that_no_coordinator_tells_of_are_not_taken_for_groups_without_offsets() -> None:
    link = link_with_a_late_commit(12)
    link.a.group_problems = ("no coordinator for 1 partitions of __consumer_offsets (0)",)
    refused = Operator(link).run()
    assert refused.step is Step.REFUSE
    assert "cannot be compared: no coordinator" in refused.reason


def test_f2_a_dead_sources_groups_are_as_old_as_the_mirrors_last_round() -> None:
    link = link_with_a_late_commit(12)
    link.a.is_up = False
    link.now_ms += 700
    assert Operator(link).run().step is Step.DONE
    groups = link.b.accounts[2].groups
    assert groups is not None
    assert not link.b.accounts[2].is_exact
    assert groups.last_contact_ms >= 700
    assert f"the mirror last copied all offsets {groups.last_contact_ms} ms before" in groups.sentence


def test_f2_where_no_mirror_said_how_far_groups_are_the_account_says_so() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.is_up = False
    assert Operator(link).run().step is Step.DONE
    groups = link.b.accounts[2].groups
    assert groups is not None
    assert "the age of their offsets is unknown" in groups.sentence


BOOKING = TransactionalProducer(producer_id=7, producer_epoch=3, is_carried=False)


def link_with_a_late_producer() -> ModelLink:
    """All records are mirrored, and a producer has just begun its next epoch."""
    link = link_with_records(written=12, mirrored=12)
    link.a.producers = {"booking": BOOKING._replace(producer_epoch=2)}
    link.carry_groups()
    link.a.producers = {"booking": BOOKING}
    return link


def test_f_f_the_standby_knows_every_producer_as_of_the_fence() -> None:
    link = link_with_a_late_producer()
    assert Operator(link).run().step is Step.DONE
    assert link.b.producers == {"booking": BOOKING._replace(is_carried=True)}


@pytest.mark.parametrize(
    "here",
    [
        pytest.param(None, id="none"),
        pytest.param(BOOKING, id="its own"),
        pytest.param(BOOKING._replace(producer_epoch=2, is_carried=True), id="an older epoch"),
        pytest.param(BOOKING._replace(producer_id=6, is_carried=True), id="another producer"),
    ],
)
def test_f_f_a_mirror_that_does_not_carry_producers_is_a_reason_to_stop_that_names_them(
    here: TransactionalProducer | None,
) -> None:
    """A producer that the promoted site does not know is fenced there."""
    link = link_with_a_late_producer()
    link.carries_producers = False
    link.b.producers = {} if here is None else {"booking": here}
    refused = Operator(link).run()
    assert refused.step is Step.REFUSE
    assert "1 transactional ids are not here yet (booking)" in refused.reason
    assert link.a.write("v12")  # the fence is given back
    accepted = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=500))
    assert accepted.run().step is Step.DONE


@pytest.mark.parametrize("silent", ["a", "b"])
def test_f_f_a_site_of_an_earlier_release_that_reports_no_producers_is_moved_all_the_same(silent: str) -> None:
    link = link_with_a_late_producer()
    link.carries_producers = False
    link.site(silent).producers = None
    assert Operator(link).run().step is Step.DONE


def test_f_f_ids_that_the_source_has_from_its_own_mirror_need_not_be_carried_back() -> None:
    link = link_with_a_late_producer()
    link.carries_producers = False
    link.a.producers, link.b.producers = {"booking": BOOKING._replace(is_carried=True)}, {"booking": BOOKING}
    assert Operator(link).run().step is Step.DONE


def test_f_f_a_transaction_that_is_committed_and_not_marked_yet_is_waited_for() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.committing_transactions = 1
    operator = Operator(link)
    for count, step in enumerate(operator.steps()):
        if step is Step.DRAIN and count == 5:
            link.a.partitions[KEY].log.append((0, "marker"))
            link.a.committing_transactions = 0
    assert operator.outcome is not None
    assert operator.outcome.step is Step.DONE
    assert link.b.accounts[2].partitions[0].kept_below == 4
    stuck = link_with_records(written=3, mirrored=3)
    stuck.a.committing_transactions = 2
    assert "2 committed transactions are not marked at a yet" in Operator(stuck).run().reason
