"""An administrator removes a member of a KIP-848 group: LeaveGroup names its member id."""

from __future__ import annotations

from tests.support.memory.group_script import GroupScript


def test_its_partitions_go_to_the_others() -> None:
    scene = GroupScript()
    for line in (
        "topics t=2",
        "beat g member=a epoch=0 topics=t owns=none",
        "beat g member=b epoch=0 topics=t owns=none",
    ):
        scene.answer(line)
    assert "#3 none" in scene.answer("leave g member=a")
    assert "unknown_member_id" in scene.answer("beat g member=a epoch=1")
    assert "b epoch 3 owns t-0 t-1" in scene.answer("beat g member=b epoch=2")
