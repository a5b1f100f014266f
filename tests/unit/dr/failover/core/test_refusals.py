"""The playbook's refusals: each gives its reason, and the site that is active remains active
with its writers (F3, F-d, F-e).
"""

from __future__ import annotations

from dr.failover.core.steps import FailoverPolicy, Step
from tests.unit.dr.core.link_model import ModelLink, Operator
from tests.unit.dr.failover.core.failover_links import link_with_records
from wire.control.cluster_pb2 import LinkPhase


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
    assert not operator.playbook.may_be_raised(link.evidence("b")), "the run must not be repeated by itself"
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
