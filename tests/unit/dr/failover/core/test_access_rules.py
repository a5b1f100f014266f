"""ACLs, SCRAM users and quotas in a failover: a planned move waits until the last changes are at
the standby, or gives the writes back; an unplanned one says how old they are.
"""

from __future__ import annotations

from dr.failover.core.steps import FailoverPolicy, Step
from dr.sites.core.access_rules import AccessLoss
from dr.sites.core.loss import LossAccount
from tests.unit.dr.core.link_model import ModelLink, Operator
from wire.protocol.ids import UNKNOWN


def link_with_a_late_change() -> ModelLink:
    """All records are mirrored, and an operator has just changed an ACL at the active site."""
    link = ModelLink()
    for number in range(12):
        assert link.a.write(f"v{number}")
    link.mirror()
    link.carries_access = True
    link.carry_groups()
    link.a.access = "changed just before the move"
    return link


def account_of(link: ModelLink) -> AccessLoss | None:
    kept = link.b.accounts[link.b.record.epoch]
    assert LossAccount.from_json(kept.to_json()) == kept
    return kept.access


def test_f_f_the_standby_has_every_access_rule_as_of_the_fence() -> None:
    link = link_with_a_late_change()
    assert Operator(link).run().step is Step.DONE
    assert link.b.carried_access == link.a.access
    account = account_of(link)
    assert account is not None
    assert account.is_exact
    assert "every change of ACLs before the fence is kept" in account.sentence


def test_f_f_a_mirror_that_does_not_carry_the_last_change_is_a_reason_to_stop_that_names_it() -> None:
    link = link_with_a_late_change()
    link.carries_access = False
    refused = Operator(link).run()
    assert refused.step is Step.REFUSE
    assert "the last changes of ACLs are not here yet" in refused.reason
    assert "7000 ms ago" in refused.reason
    assert link.a.write("v12")  # the fence is given back
    accepted = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=500))
    assert accepted.run().step is Step.DONE
    account = account_of(link)
    assert account is not None
    assert not account.is_exact


def test_f_g_writers_are_not_stopped_while_the_mirror_cannot_carry_access_rules() -> None:
    link = link_with_a_late_change()
    link.b.access_problems = {"ACLs": "not mirrored to the standby: it has no authorizer"}
    operator = Operator(link)
    for _ in operator.steps():
        assert link.a.is_writable()
    assert operator.outcome is not None
    assert "the mirror cannot carry ACLs (not mirrored to the standby: it has no authorizer)" in operator.outcome.reason
    assert "sync.topic.acls.enabled=false" in operator.outcome.reason
    assert link.a.record.epoch == 1


def test_a_move_does_not_wait_for_a_mirror_that_carries_no_access_rules() -> None:
    link = link_with_a_late_change()
    link.b.carried_access, link.carries_access = None, False
    assert Operator(link).run().step is Step.DONE


def test_after_the_loss_of_the_source_the_account_names_the_age_of_the_access_rules() -> None:
    link = link_with_a_late_change()
    link.a.is_up = False
    accepted = Operator(link, policy=FailoverPolicy(drain_timeout_ms=500))
    assert accepted.run().step is Step.DONE
    account = account_of(link)
    assert account is not None
    assert not account.is_exact
    assert "the mirror last copied all ACLs 7000 ms before" in account.sentence
    assert (
        "the age of ACLs, SCRAM users and quotas is unknown"
        in AccessLoss(is_exact=False, last_contact_ms=UNKNOWN).sentence
    )
