"""The faults that fail a rehearsal."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dr.rehearsal.core.judgement import RehearsalFacts, judge_rehearsal
from dr.sites.core.evidence import GroupPartition
from wire.protocol.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = GroupPartition("g", "t", 0)
GOOD = RehearsalFacts(
    ends={T0: 100, T1: 7},
    kept_below={T0: 100, T1: 7},
    groups_before={GROUP: 40},
    groups_after={GROUP: 41},
    load_sent=10,
    digests_compared=2,
)


def unmet(facts: RehearsalFacts) -> list[str]:
    return [one.name for one in judge_rehearsal(facts) if not one.is_met]


def test_nothing_is_wrong_with_good_facts() -> None:
    assert unmet(GOOD) == []


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (replace(GOOD, absent=(T1,)), "coverage"),
        (replace(GOOD, promotion_problem="refused"), "promotion"),
        (replace(GOOD, unwritable=("t-0 takes no writes",)), "promotion"),
        (replace(GOOD, kept_below={T0: 99, T1: 7}), "records"),
        (replace(GOOD, kept_below={T0: 100}), "records"),
        (replace(GOOD, groups_after={}), "groups"),
        (replace(GOOD, groups_after={GROUP: 39}), "groups"),
        (replace(GOOD, groups_after={GROUP: 101}), "groups"),
        (replace(GOOD, load_problems=("1 record was not read back",)), "clients"),
        (replace(GOOD, digests_differ=("t-0",)), "digests"),
        (replace(GOOD, digests_unknown=("t-0",)), "digests"),
        (replace(GOOD, shared_file_changes=("written",)), "shared files"),
        (replace(GOOD, mirror_after="has not reported for 20 s"), "mirror"),
    ],
)
def test_each_fault_fails_its_own_check(changed: RehearsalFacts, name: str) -> None:
    assert unmet(changed) == [name]


def test_a_mirror_that_was_silent_before_is_not_the_rehearsals_fault() -> None:
    assert unmet(replace(GOOD, mirror_before="silent", mirror_after="silent")) == []


def test_a_group_of_a_partition_that_was_not_cloned_is_left_out() -> None:
    before = {**GOOD.groups_before, GroupPartition("g", "other", 0): 5}
    assert unmet(replace(GOOD, groups_before=before)) == []
