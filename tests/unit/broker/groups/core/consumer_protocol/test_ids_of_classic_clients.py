"""A classic client has got a member id, and a member of the newer protocol joins before it."""

from __future__ import annotations

import pytest

from tests.support.memory.group_script import GroupScript


@pytest.fixture
def scene() -> GroupScript:
    """A group with an offset, in which `c-1` was handed out; a KIP-848 member came and left."""
    made = GroupScript()
    for line in (
        "topics t=2",
        "commit g t-0=5",
        "join g client=c topics=t",
        "beat g member=a epoch=0 topics=t owns=none",
        "beat g member=a epoch=-1",
    ):
        made.answer(line)
    return made


def test_the_group_can_be_deleted(scene: GroupScript) -> None:
    scene.answer("advance 60000")
    assert " none" in scene.answer("delete g")
    assert scene.answer("show g") == "Dead"


def test_a_later_rebalance_waits_for_no_client_that_is_gone(scene: GroupScript) -> None:
    scene.answer("join g client=d topics=t version=3")
    scene.answer("advance 3000")
    scene.answer("sync g member=d-2 generation=1 assign=d-2:x")
    scene.answer("join g client=e topics=t version=3")
    assert "generation 2" in scene.answer("join g client=d member=d-2 topics=t")
