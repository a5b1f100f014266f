"""The playbook against the model link: undisturbed, interrupted everywhere, two operators at once,
and every refusal.
"""

from __future__ import annotations

import itertools

import pytest

from dr.failover.core.steps import FailoverPolicy, Step
from dr.sites.core.evidence import Evidence, TransactionalProducer
from dr.sites.core.loss import LossAccount
from dr.sites.core.unprotected_topics import UnprotectedTopic
from tests.unit.dr.core.link_model import KEY, PLACE, ModelLink, ModelPartition, Operator
from wire.control.cluster_pb2 import LinkPhase
from wire.protocol.ids import TopicPartition


def link_with_records(*, written: int, mirrored: int) -> ModelLink:
    link = ModelLink()
    for number in range(written):
        assert link.a.write(f"v{number}")
        if number + 1 == mirrored:
            link.mirror()
    return link


def assert_promoted(link: ModelLink) -> None:
    assert link.b.write("after")
    assert not link.a.write("stale")
    assert link.b.record.epoch == 2
    assert link.b.accounts[2].to_site == "b"


def test_f1_a_source_that_answers_is_fenced_drained_and_nothing_is_lost() -> None:
    link = link_with_records(written=20, mirrored=7)
    operator = Operator(link)
    assert operator.run().step is Step.DONE
    assert [line.split(":")[0] for line in operator.story] == [
        "prepare",
        "fence",
        "drain",
        "raise",
        "promote",
        "notify",
        "done",
    ]
    kept = link.b.accounts[2].partitions[0]
    assert (kept.kept_below, kept.known_lost_records, kept.is_source_end_exact) == (20, 0, True)
    assert link.a.record.epoch == 2
    assert_promoted(link)


def test_the_look_that_follows_the_raise_asks_the_target_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers wait until this look ends."""
    link = link_with_records(written=5, mirrored=5)
    operator = Operator(link)
    looks: list[tuple[bool, bool]] = []
    look = link.evidence

    def noted(to_site: str) -> Evidence:
        looks.append((operator.playbook.wants_source, operator.playbook.wants_groups))
        return look(to_site)

    monkeypatch.setattr(link, "evidence", noted)
    before_the_raise = 0
    for step in operator.steps():
        if step is Step.RAISE:
            before_the_raise = len(looks)
    assert looks[before_the_raise - 1] == (True, True)
    assert looks[before_the_raise] == (False, False)


def test_f2_a_dead_source_is_not_waited_for_and_its_known_loss_is_counted() -> None:
    link = link_with_records(written=10, mirrored=4)
    link.mirror(batch_max=3)
    link.a.is_up = False
    operator = Operator(link)
    assert operator.run().step is Step.DONE
    lost = link.b.accounts[2].partitions[0]
    assert (lost.kept_below, lost.known_lost_records, lost.is_source_end_exact) == (7, 3, False)
    assert "records that the old site acknowledged at or above 7 are lost" in lost.sentence
    assert_promoted(link)


@pytest.mark.parametrize("source_state", ["alive", "dead", "dies_after_fence", "dies_after_raise"])
@pytest.mark.parametrize("crash_before", range(12))
def test_f7_a_run_interrupted_before_any_step_is_finished_by_another_operator(
    source_state: str, crash_before: int
) -> None:
    link = link_with_records(written=12, mirrored=3)
    link.a.is_up = source_state != "dead"
    first = Operator(link)
    for count, step in enumerate(first.steps()):
        if source_state == "dies_after_fence" and step is Step.DRAIN:
            link.a.is_up = False
        if source_state == "dies_after_raise" and step is Step.ACCOUNT:
            link.a.is_up = False
        if count == crash_before:
            break
    second = Operator(link)
    outcome = second.run()
    assert outcome.step is Step.DONE or "active for link a-b already" in outcome.reason
    assert_promoted(link)
    kept = link.b.accounts[2].partitions[0].kept_below
    assert link.b.partitions[KEY].log[:kept] == link.a.partitions[KEY].log[:kept]
    assert all(epoch >= link.b.record.leader_epoch_floor for epoch, _ in link.b.partitions[KEY].log[kept:])


@pytest.mark.parametrize("source_state", ["alive", "dead", "dies_after_fence"])
@pytest.mark.parametrize("crash_before", range(12))
def test_a_site_promoted_over_a_lost_one_does_not_wait_for_it_wherever_the_run_was_interrupted(
    source_state: str, crash_before: int
) -> None:
    link = link_with_records(written=12, mirrored=3)
    for site in (link.a, link.b):
        site.record.sync_policy, site.record.sync_timeout_ms = "block", 5_000
    link.a.is_up = source_state != "dead"
    first = Operator(link)
    for count, step in enumerate(first.steps()):
        if source_state == "dies_after_fence" and step is Step.DRAIN:
            link.a.is_up = False
        if count == crash_before:
            break
    Operator(link).run()
    assert_promoted(link)
    expected = ("block", "") if link.a.is_up else ("degrade", "block")
    assert (link.b.record.sync_policy, link.b.record.sync_policy_to_restore) == expected
    assert link.b.record.sync_timeout_ms == 5_000


def test_a_site_that_could_not_be_fenced_is_not_waited_for_either() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.record.sync_policy = link.b.record.sync_policy = "block"
    link.a.may_be_fenced = False
    assert Operator(link, policy=FailoverPolicy(accepts_data_loss=True)).run().step is Step.DONE
    assert (link.b.record.sync_policy, link.b.record.sync_policy_to_restore) == ("degrade", "block")


@pytest.mark.parametrize("turns", list(itertools.product([0, 1], repeat=7)))
def test_f7_two_operators_of_the_same_failover_end_in_one_epoch(turns: tuple[int, ...]) -> None:
    link = link_with_records(written=5, mirrored=5)
    operators = [Operator(link), Operator(link)]
    runs = [operator.steps() for operator in operators]
    for turn in turns:
        next(runs[turn], None)
    for run in runs:
        for _ in run:
            pass
    assert_promoted(link)
    assert all(operator.outcome is not None for operator in operators)
    assert link.b.accounts[2].partitions[0].kept_below == 5


@pytest.mark.parametrize("turns", list(itertools.product([0, 1], repeat=8)))
def test_f7_one_promotes_while_another_gives_back_and_one_of_them_wins(turns: tuple[int, ...]) -> None:
    link = link_with_records(written=6, mirrored=2)
    link.is_link_up = False
    bold = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=100, settle_ms=50))
    careful = Operator(link, policy=FailoverPolicy(drain_timeout_ms=100, settle_ms=50))
    runs = [bold.steps(), careful.steps()]
    for turn in turns:
        next(runs[turn], None)
        assert not (link.a.is_writable() and link.b.is_writable())
    for run in runs:
        for _ in run:
            assert not (link.a.is_writable() and link.b.is_writable())
    active = {site.record.active_site for site in (link.a, link.b) if site.record.epoch == link.b.record.epoch}
    assert len(active) == 1
    assert link.a.is_writable() != link.b.is_writable()


@pytest.mark.parametrize("crash_before", range(8))
def test_opposite_failovers_never_leave_both_sites_writable(crash_before: int) -> None:
    link = link_with_records(written=6, mirrored=6)
    to_b, to_a = Operator(link, to_site="b").steps(), Operator(link, to_site="a")
    for _ in range(crash_before):
        next(to_b, None)
    to_a.run()
    for _ in to_b:
        assert not (link.a.is_writable() and link.b.is_writable())
    assert link.a.is_writable() != link.b.is_writable()


def test_f3_a_lag_over_the_limit_is_refused_and_the_flag_accepts_it() -> None:
    link = link_with_records(written=10, mirrored=4)
    link.mirror(batch_max=1)
    link.a.is_up = False
    refused = Operator(link, policy=FailoverPolicy(lag_records_max=4)).run()
    assert refused.step is Step.REFUSE
    assert "5 records known at the active site are not at b" in refused.reason
    assert link.b.record.epoch == 1
    assert Operator(link, policy=FailoverPolicy(lag_records_max=4, accepts_data_loss=True)).run().step is Step.DONE


def test_f_d_a_live_source_that_cannot_be_drained_gets_its_writes_back() -> None:
    link = link_with_records(written=10, mirrored=4)
    operator = Operator(link)
    for step in operator.steps():
        if step is Step.FENCE:
            for number in range(6):
                assert link.a.write(f"late-{number}")
            link.is_link_up = False
    refused = operator.outcome
    assert refused is not None
    assert refused.step is Step.REFUSE
    assert "6 records" in refused.reason
    assert "after writes were stopped for" in refused.reason
    assert any(line.startswith("give_back") for line in operator.story)
    assert link.a.write("goes on")
    assert link.a.record.active_site == link.b.record.active_site == "a"
    assert not link.b.write("refused")


def test_f_e_a_source_that_answers_but_cannot_be_fenced_is_not_abandoned_without_consent() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.may_be_fenced = False
    refused = Operator(link).run()
    assert refused.step is Step.REFUSE
    assert "could not be fenced" in refused.reason
    assert Operator(link, policy=FailoverPolicy(accepts_data_loss=True, settle_ms=50)).run().step is Step.DONE


def test_a_site_that_is_active_already_is_refused() -> None:
    refused = Operator(ModelLink(), to_site="a").run()
    assert refused.step is Step.REFUSE
    assert "a is active for link a-b already, since epoch 1" in refused.reason


def test_a_target_that_does_not_answer_is_refused_before_anything_changes() -> None:
    link = ModelLink()
    link.b.is_up = False
    refused = Operator(link).run()
    assert refused.step is Step.REFUSE
    assert link.a.record.phase == LinkPhase.MIRRORING


def test_a_site_that_the_link_does_not_join_is_refused() -> None:
    assert "link a-b joins a and b, not c" in Operator(ModelLink(), to_site="c").run().reason


def test_going_back_to_a_site_with_records_of_its_own_is_refused_until_it_failed_back() -> None:
    link = link_with_records(written=10, mirrored=4)
    link.a.is_up = False
    assert Operator(link).run().step is Step.DONE
    link.a.is_up = True
    link.a.adopt(link.b.record)
    refused = Operator(link, to_site="a").run()
    assert refused.step is Step.REFUSE
    assert "a is not a copy of b: flights-0 differs from offset 4 on" in refused.reason
    assert link.b.record.epoch == 2
    assert link.b.write("b goes on")


def test_a_partition_that_never_reached_the_target_is_counted_as_lost() -> None:
    link = link_with_records(written=2, mirrored=2)
    young = type(KEY)("flights", 1)
    link.a.partitions[young] = ModelPartition(log=[(0, "x"), (0, "y")])
    link.is_link_up = False
    assert Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=100)).run().step is Step.DONE
    lost = {(item.partition, item.known_lost_records) for item in link.b.accounts[2].partitions}
    assert lost == {(0, 0), (1, 2)}


def test_ends_observed_under_a_removed_fence_are_not_trusted() -> None:
    link = link_with_records(written=6, mirrored=2)
    link.is_link_up = False
    first = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=60_000, settle_ms=50))
    run = first.steps()
    assert [next(run), next(run), next(run)] == [Step.FENCE, Step.DRAIN, Step.DRAIN]
    assert first.playbook.source.is_fence_proven
    Operator(link, policy=FailoverPolicy(drain_timeout_ms=100)).run()
    assert link.a.write("more")
    link.a.is_up = False
    for _ in run:
        pass
    lost = link.b.accounts[3].partitions[0]
    assert not lost.is_source_end_exact
    assert link.b.is_writable()


def link_with_a_late_commit(offset: int) -> ModelLink:
    """All records are mirrored, and so is a commit of 7; another one has just been acknowledged."""
    link = link_with_records(written=12, mirrored=12)
    assert link.a.commit(7)
    link.carry_groups()
    assert link.a.commit(offset)
    return link


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
    assert f"are {groups.last_contact_ms} ms old" in groups.sentence


def test_f2_where_no_mirror_said_how_far_groups_are_the_account_says_so() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.is_up = False
    assert Operator(link).run().step is Step.DONE
    groups = link.b.accounts[2].groups
    assert groups is not None
    assert "the age of their offsets is unknown" in groups.sentence


def test_an_account_is_read_back_as_it_was_kept() -> None:
    link = link_with_a_late_commit(12)
    Operator(link).run()
    kept = link.b.accounts[2]
    assert LossAccount.from_json(kept.to_json()) == kept


NEW = TopicPartition("made-last", 0)


def test_f2_partitions_of_a_lost_site_that_were_not_mirrored_yet_are_named() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.b.unprotected = (UnprotectedTopic(topic=NEW.topic, partitions=(0,), reason="not here"),)
    link.a.is_up = False
    assert Operator(link).run().step is Step.DONE
    kept, unprotected = link.b.accounts[2].partitions
    assert (kept.topic, kept.is_protected) == (KEY.topic, True)
    assert unprotected.sentence.startswith("made-last-0: not protected")
    assert not link.b.accounts[2].is_exact


def test_f1_a_partition_without_a_record_is_waited_for_too() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.partitions[NEW] = ModelPartition()
    operator = Operator(link)
    assert operator.run().step is Step.DONE
    assert NEW in link.b.partitions
    assert "prepare: 1 partitions are not here yet (made-last-0); writers continue meanwhile" in operator.story
    link = link_with_records(written=3, mirrored=3)
    link.a.partitions[NEW] = ModelPartition()
    link.is_link_up = False
    refused = Operator(link).run()
    assert "1 partitions are not here yet (made-last-0)" in refused.reason
    accepted = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=500))
    assert accepted.run().step is Step.DONE
    sentences = [loss.sentence for loss in link.b.accounts[link.b.record.epoch].partitions]
    assert "made-last-0: not protected: it was not mirrored yet, 0 records and the partition are lost" in sentences


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
