"""Offsets of an open transaction whose topic or group is deleted: the end of the transaction does
not bring them back. A topic that is created again would be read from the former topic's offset.
"""

from __future__ import annotations

import pytest

from tests.support.memory.group_script import GroupScript
from tests.unit.broker.groups.core.test_group_handover import stable_classic


@pytest.mark.parametrize("before", ["t-0=3 u-0=4", "u-0=4"], ids=["with an earlier commit", "without one"])
def test_a_deleted_topic_keeps_no_offset_of_an_open_transaction(before: str) -> None:
    scene = GroupScript()
    first, _ = stable_classic(scene)
    scene.answer(f"commit g {before} member={first} generation=1")
    scene.answer(f"pend g t-0=50 u-0=60 producer=7/0 member={first} generation=1")
    scene.answer("topics-gone g t")
    scene.answer("end producer=7/0 commit")
    assert "t-0" not in scene.answer("fetch g")
    assert "u-0=60" in scene.answer("fetch g")
    assert scene.replayed().durable_state() == scene.groups.durable_state()


def test_a_deleted_group_keeps_no_offset_of_an_open_transaction() -> None:
    scene = GroupScript()
    scene.answer("commit g t-0=3")
    scene.answer("pend g t-0=50 t-1=60 producer=7/0")
    scene.answer("delete g")
    scene.answer("end producer=7/0 commit")
    assert scene.answer("fetch g") == "nothing"
    assert scene.answer("show g") == "Dead"
    assert scene.replayed().durable_state() == scene.groups.durable_state()


@pytest.mark.parametrize("gone", ["topics-gone g t", "delete g", "forget g t-0 t-1"])
def test_a_group_that_only_open_transactions_know_loses_their_offsets(gone: str) -> None:
    scene = GroupScript()
    scene.answer("pend g t-0=50 t-1=60 producer=7/0")
    assert scene.groups.names() == ("g",)
    scene.answer(gone)
    scene.answer("end producer=7/0 commit")
    assert scene.answer("fetch g") == "nothing"
    assert scene.answer("show g") == "Dead"
    assert scene.replayed().durable_state() == scene.groups.durable_state()


def test_an_offset_that_is_deleted_before_its_transaction_ends_stays_deleted() -> None:
    scene = GroupScript()
    scene.answer("commit g u-0=4")
    scene.answer("pend g t-0=50 producer=7/0")
    scene.answer("forget g t-0")
    scene.answer("end producer=7/0 commit")
    assert scene.answer("fetch g").startswith("u-0=4")
    assert scene.replayed().durable_state() == scene.groups.durable_state()
