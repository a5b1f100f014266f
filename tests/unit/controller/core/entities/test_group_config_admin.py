"""Configs of groups at the controller: stored ones, those sent to brokers, and those that other
programs wrote.
"""

from __future__ import annotations

import pytest

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from controller.brokers.images import PendingChanges, TopicMessages
from controller.core.decisions import Publish
from controller.core.entity_commands import AlterGroupConfigs, GroupConfigChange, GroupConfigsRead
from controller.core.state.facts import GroupConfigsReplaced
from tests.support.memory.site_model import SiteModel

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.fixture
def model() -> SiteModel:
    site = SiteModel()
    site.alive(1, 2, 3)
    site.take_over()
    return site


def alter(model: SiteModel, *changes: GroupConfigChange) -> list[GroupConfigsReplaced]:
    decision = model.give(AlterGroupConfigs(changes=changes))
    return [fact for fact in decision.facts if isinstance(fact, GroupConfigsReplaced)]


def test_configs_are_set_removed_and_replaced(model: SiteModel) -> None:
    alter(model, GroupConfigChange(group="g", set_values={SESSION: "50000", INTERVAL: "6000"}))
    alter(model, GroupConfigChange(group="g", remove=(SESSION,)))
    assert model.cluster.group_configs == {"g": {INTERVAL: "6000"}}
    alter(model, GroupConfigChange(group="g", set_values={SESSION: "55000"}, replaces_all=True))
    assert model.cluster.group_configs == {"g": {SESSION: "55000"}}
    alter(model, GroupConfigChange(group="g", replaces_all=True))
    assert model.cluster.group_configs == {}


def test_a_change_that_changes_nothing_is_not_stored(model: SiteModel) -> None:
    change = GroupConfigChange(group="g", set_values={SESSION: "50000"})
    assert len(alter(model, change)) == 1
    assert alter(model, change) == []
    assert alter(model, GroupConfigChange(group="h", remove=(SESSION,))) == []


def test_changes_of_other_tools_are_applied_and_not_stored_again(model: SiteModel) -> None:
    alter(model, GroupConfigChange(group="g", set_values={SESSION: "50000"}))
    decision = model.give(GroupConfigsRead(configs={"h": {INTERVAL: "7000"}}))
    replaced = [fact for fact in decision.facts if isinstance(fact, GroupConfigsReplaced)]
    assert [(fact.group, dict(fact.configs), fact.must_store) for fact in replaced] == [
        ("g", {}, False),
        ("h", {INTERVAL: "7000"}, False),
    ]


def test_brokers_learn_of_configs_by_image_and_by_change(model: SiteModel) -> None:
    alter(model, GroupConfigChange(group="g", set_values={SESSION: "50000"}))
    whole = PendingChanges()
    whole.add_image()
    image = ClusterImage(site="a", node_id=1)
    image = apply_batch(image, whole.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages()))
    assert image.group_configs == {"g": {SESSION: "50000"}}
    for change in (
        GroupConfigChange(group="h", set_values={INTERVAL: "6000"}),
        GroupConfigChange(group="g", remove=(SESSION,)),
    ):
        decision = model.give(AlterGroupConfigs(changes=(change,)))
        pending = PendingChanges()
        for effect in decision.effects:
            assert isinstance(effect, Publish)
            pending.add(effect)
        image = apply_batch(image, pending.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages()))
    assert image.group_configs == {"h": {INTERVAL: "6000"}}
