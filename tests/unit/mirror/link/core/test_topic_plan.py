"""The plan of changes that the target needs: topics, partitions and configs."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mirror.link.core.topic_plan import (
    Action,
    AlterConfigs,
    CreateTopic,
    Finding,
    GrowTopic,
    TopicView,
    plan,
    requests_of,
)
from wire.client.requests.topic_requests import PARTITIONS_AT_ONCE, TOPICS_AT_ONCE

ID = UUID(int=1)


def view(partitions: int = 2, configs: Mapping[str, str] | None = None, *, topic_id: UUID = ID) -> TopicView:
    return TopicView(topic_id=topic_id, partition_count=partitions, configs=configs)


def test_a_missing_topic_is_created_with_the_sources_id_and_configs() -> None:
    wanted = plan({"t": view(3, {"a": "1", "secret": "2", "x.y": "3"})}, {}, excluded_configs=["secret", "x[.].*"])
    assert wanted.actions == (CreateTopic(name="t", topic_id=ID, partition_count=3, configs={"a": "1"}),)
    assert not wanted.agreed


def test_growth_and_configs_follow_and_local_changes_are_undone() -> None:
    wanted = plan({"t": view(3, {"a": "1", "b": "2"})}, {"t": view(2, {"b": "9", "c": "3"})})
    assert wanted.actions == (
        GrowTopic(name="t", partition_count=3),
        AlterConfigs(name="t", set={"a": "1", "b": "2"}, remove=("c",)),
    )
    assert wanted.agreed == {"t"}


def test_unknown_configs_are_not_changed() -> None:
    assert plan({"t": view(configs={"a": "1"})}, {"t": view()}).actions == ()


def test_a_topic_whose_configs_are_hidden_is_not_created_without_them() -> None:
    """A compacted topic must not get a copy that deletes old records."""
    wanted = plan({"hidden": view(), "seen": view(configs={})}, {})
    assert [action.name for action in wanted.actions] == ["seen"]
    assert wanted.troubles["hidden"].finding is Finding.HIDDEN
    assert "DESCRIBE_CONFIGS" in wanted.troubles["hidden"].reason


ACTIONS = st.one_of(
    st.builds(
        CreateTopic, name=st.text(), topic_id=st.uuids(), partition_count=st.integers(1, 3_000), configs=st.just({})
    ),
    st.builds(GrowTopic, name=st.text(), partition_count=st.integers(1, 3_000)),
    st.builds(AlterConfigs, name=st.text(), set=st.just({}), remove=st.just(())),
)


@given(st.lists(ACTIONS, max_size=300))
def test_requests_have_all_actions_in_order_within_the_bounds(actions: list[Action]) -> None:
    requests = list(requests_of(actions))
    for kind in (CreateTopic, GrowTopic, AlterConfigs):
        of_kind = [action for request in requests for action in request if isinstance(action, kind)]
        assert of_kind == [action for action in actions if isinstance(action, kind)]
    for request in requests:
        assert len({type(action) for action in request}) == 1
        assert len(request) <= TOPICS_AT_ONCE
        partitions = sum(getattr(action, "partition_count", 0) for action in request)
        assert len(request) == 1 or partitions <= PARTITIONS_AT_ONCE


def test_many_small_topics_make_few_requests_and_none_makes_none() -> None:
    topics = {f"t{number}": view(4, {}) for number in range(1_000)}
    assert [len(request) for request in requests_of(plan(topics, {}).actions)] == [100] * 10
    assert not list(requests_of(()))


def test_the_remedy_for_a_copy_that_is_never_deleted_names_the_topic_at_the_target() -> None:
    source = {"made": TopicView(topic_id=UUID(int=1), partition_count=1)}
    target = {name: TopicView(topic_id=UUID(int=2), partition_count=1) for name in ("made", "gone")}
    troubles = plan(source, target, name_at_target="a.{}".format).troubles
    assert troubles["made"].reason.endswith("when topic a.made is deleted at the target, it is mirrored anew")
    assert troubles["gone"].reason.endswith("until topic a.gone is deleted there")


def test_a_recreated_topic_is_reported_with_both_ids() -> None:
    other = UUID(int=2)
    source = {"replaced": view(topic_id=other), "shrunk": view(1)}
    wanted = plan(source, {"replaced": view(), "shrunk": view(2), "gone": view()})
    assert not wanted.actions
    assert {name: trouble.finding for name, trouble in wanted.troubles.items()} == {
        "replaced": Finding.REPLACED,
        "shrunk": Finding.SHRUNK,
        "gone": Finding.GONE,
    }
    assert str(ID) in wanted.troubles["replaced"].reason
    assert str(other) in wanted.troubles["replaced"].reason
