"""Refused changes of topics: shown as long as they last, and since when."""

from __future__ import annotations

from uuid import UUID

import pytest

from mirror.link.core.refusals import Refusals, way_out_of
from mirror.link.core.topic_plan import Action, AlterConfigs, CreateTopic, DeleteCopy, GrowTopic

GROW = GrowTopic(name="orders", partition_count=4)
ALTER = AlterConfigs(name="orders", set={"flavour": "mild"}, remove=())
CREATE = CreateTopic(name="bills", topic_id=UUID(int=1), partition_count=1, configs={})
DELETE = DeleteCopy(name="bills", topic_id=UUID(int=1))


class Rounds:
    """Rounds of one mirror, a second apart."""

    def __init__(self) -> None:
        self.refusals = Refusals()
        self._now_ms = 0

    def round(self, *outcomes: tuple[Action, str], is_compared: bool = False, is_present: bool = True) -> list[str]:
        """The refusals after a round, each with its first time."""
        self._now_ms += 1000
        orders = {"orders"}
        self.refusals.take(
            outcomes,
            compared=orders if is_compared else (),
            present=orders if is_present else (),
            now_ms=self._now_ms,
        )
        return [f"{refusal.topic} {refusal.reason} {refusal.since_ms}" for refusal in self.refusals]


def test_refused_configs_stand_until_a_round_that_compares_finds_nothing_to_change() -> None:
    rounds = Rounds()
    assert rounds.round((ALTER, "no"), is_compared=True) == ["orders no 1000"]
    assert rounds.round() == ["orders no 1000"]
    assert rounds.round((ALTER, "still no"), is_compared=True) == ["orders still no 1000"]
    assert rounds.round(is_compared=True) == []


def test_configs_that_were_set_at_last_are_refused_no_more() -> None:
    rounds = Rounds()
    rounds.round((ALTER, "no"), is_compared=True)
    assert rounds.round((ALTER, ""), is_compared=True) == []


def test_refused_configs_of_a_topic_that_is_gone_are_gone() -> None:
    rounds = Rounds()
    rounds.round((ALTER, "no"), is_compared=True)
    assert rounds.round(is_present=False) == []


def test_an_action_planned_in_each_round_is_refused_only_as_long_as_it_is_repeated() -> None:
    rounds = Rounds()
    assert rounds.round((CREATE, "no"), (GROW, "no room")) == ["bills no 1000", "orders no room 1000"]
    assert rounds.round((CREATE, ""), (GROW, "no room")) == ["orders no room 1000"]
    assert rounds.round() == []


def test_a_topic_may_have_its_growth_and_its_configs_refused() -> None:
    rounds = Rounds()
    rounds.round((GROW, "no room"), (ALTER, "no"), is_compared=True)
    assert rounds.round((GROW, "no room")) == ["orders no 1000", "orders no room 1000"]


def test_new_and_healed_problems_are_reported_once() -> None:
    refusals = Refusals()
    reported = [
        refusals.take(outcomes, compared=(), present=(), now_ms=1)
        for outcomes in ([(GROW, "no")], [(GROW, "no")], [(GROW, "never")], [])
    ]
    assert [([one.reason for one in new], [one.reason for one in healed]) for new, healed in reported] == [
        (["no"], []),
        ([], []),
        (["never"], []),
        ([], ["never"]),
    ]


@pytest.mark.parametrize("action", [CREATE, GROW, ALTER, DELETE])
def test_every_change_has_a_way_out(action: Action) -> None:
    assert way_out_of(action)
