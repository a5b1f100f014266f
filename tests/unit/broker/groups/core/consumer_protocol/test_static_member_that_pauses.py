"""A static member of a KIP-848 group leaves temporarily while it has partitions to give up."""

from __future__ import annotations

import pytest

from tests.support.memory.group_script import GroupScript


@pytest.fixture
def scene() -> GroupScript:
    """The member `a` is asked to give up t-1, and leaves with epoch -2 before it confirms that."""
    made = GroupScript()
    for line in (
        "topics t=2",
        "beat g member=a epoch=0 topics=t instance=one owns=none timeout=10000",
        "beat g member=a epoch=1 owns=t-0,t-1",
        "beat g member=b epoch=0 topics=t owns=none",
        "beat g member=a epoch=1",
        "beat g member=a epoch=-2 instance=one",
    ):
        made.answer(line)
    return made


def test_partitions_that_it_had_to_give_up_are_free(scene: GroupScript) -> None:
    assert "b epoch 2 owns t-1" in scene.answer("beat g member=b epoch=2 owns=none")


def test_its_session_counts_and_not_its_rebalance_timeout(scene: GroupScript) -> None:
    assert scene.answer("advance 10000") == "nothing"
    assert "c epoch 2 owns t-0" in scene.answer("beat g member=c epoch=0 topics=t instance=one owns=none")
