"""The ready drills fit any pair of sites, and each one ends with the pair as it began."""

from __future__ import annotations

import itertools

import pytest

from dr.drill.core.expectations import Limits
from dr.drill.library import names, ready_plan
from dr.drill.plan.site_verbs import FailOver, Reinstate, SwitchOver
from runtime.process import OperationalFailure

PAIR = {
    "link": "berlin-paris",
    "active": "paris",
    "standby": "berlin",
    "active_broker": "paris/broker-1001",
    "standby_broker": "berlin/broker-1",
    "topic": "drill-1",
}


@pytest.mark.parametrize("name", names())
def test_a_ready_drill_is_a_plan_for_the_pair_that_it_is_asked_for(name: str) -> None:
    plan = ready_plan(name, PAIR)
    assert plan.link == "berlin-paris"
    sites = {getattr(step, "site", "") for step in plan.steps} | {getattr(step, "to", "") for step in plan.steps}
    assert sites <= {"", "paris", "berlin"}
    assert "$" not in str(plan)
    judged = Limits(**plan.expect.model_dump())
    assert (judged.duplicates_max, judged.gaps_max, judged.order_violations_max) == (0, 0, 0)


@pytest.mark.parametrize("name", names())
def test_a_ready_drill_makes_the_site_active_again_that_was_active(name: str) -> None:
    moves = [step for step in ready_plan(name, PAIR).steps if isinstance(step, FailOver | SwitchOver | Reinstate)]
    targets = [step.to for step in moves if isinstance(step, FailOver | SwitchOver)]
    assert not targets or targets[-1] == "paris"
    for move, following in itertools.pairwise(moves):
        if isinstance(move, FailOver):
            assert isinstance(following, Reinstate), "a site that was failed away from is taken back"


def test_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(OperationalFailure, match=r"no drill is called 'flood'; accepted: .*site-lost"):
        ready_plan("flood")
