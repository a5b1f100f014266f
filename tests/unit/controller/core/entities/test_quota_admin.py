"""Client quotas at the controller: granted and refused ones, those sent to brokers, and those that
other programs wrote.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from controller.brokers.images import PendingChanges, TopicMessages
from controller.core.decisions import Publish
from controller.core.entity_commands import AlterClientQuotas, ClientQuotasRead, QuotaChange
from controller.core.state.facts import ClientQuotaReplaced
from tests.support.memory.site_model import SiteModel
from wire.rules.client_quotas import CLIENT_ID, IP, USER, QuotaEntity

ALICE: QuotaEntity = ((USER, "alice"),)
ANYBODY: QuotaEntity = ((USER, None),)
HOST: QuotaEntity = ((IP, "10.0.0.1"),)


@pytest.fixture
def model() -> SiteModel:
    site = SiteModel()
    site.alive(1, 2, 3)
    site.take_over()
    return site


def change(entity: QuotaEntity, values: Mapping[str, float], *remove: str) -> QuotaChange:
    return QuotaChange(entity=entity, set_values=values, remove=remove)


def alter(model: SiteModel, *changes: QuotaChange, is_validate_only: bool = False) -> list[ErrorCode]:
    decision = model.give(AlterClientQuotas(changes=changes, is_validate_only=is_validate_only))
    return [outcome.error for outcome in decision.quotas]


def test_each_entity_of_a_request_stands_for_itself(model: SiteModel) -> None:
    errors = alter(
        model,
        change(ALICE, {"producer_byte_rate": 1.0}),
        change(HOST, {"producer_byte_rate": 1.0}),
        change((), {}),
        change(ANYBODY, {"request_percentage": 5.0}),
    )
    assert errors == [ErrorCode.none, ErrorCode.invalid_request, ErrorCode.invalid_request, ErrorCode.none]
    assert model.cluster.quotas == {ALICE: {"producer_byte_rate": 1.0}, ANYBODY: {"request_percentage": 5.0}}


def test_a_quota_that_is_not_named_stays_and_an_entity_without_quotas_goes(model: SiteModel) -> None:
    alter(model, change(ALICE, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}))
    alter(model, change(ALICE, {"producer_byte_rate": 3.0}, "request_percentage"))
    assert model.cluster.quotas == {ALICE: {"producer_byte_rate": 3.0, "consumer_byte_rate": 2.0}}
    alter(model, change(ALICE, {}, "producer_byte_rate", "consumer_byte_rate"))
    assert model.cluster.quotas == {}


def test_a_quota_of_any_name_may_be_removed(model: SiteModel) -> None:
    alter(model, change(ALICE, {"producer_byte_rate": 1.0}))
    assert alter(model, change(ALICE, {}, "nonsense")) == [ErrorCode.none]
    assert model.cluster.quotas == {ALICE: {"producer_byte_rate": 1.0}}


def test_an_entity_named_twice_is_refused_and_a_dry_run_changes_nothing(model: SiteModel) -> None:
    twice = change(ALICE, {"producer_byte_rate": 1.0})
    assert alter(model, twice, twice) == [ErrorCode.invalid_request] * 2
    assert alter(model, twice, is_validate_only=True) == [ErrorCode.none]
    assert alter(model, change(ALICE, {"nonsense": 1.0}), is_validate_only=True) == [ErrorCode.invalid_request]
    assert model.cluster.quotas == {}


def test_a_change_that_changes_nothing_is_not_written(model: SiteModel) -> None:
    alter(model, change(HOST, {"connection_creation_rate": 5.0}))
    decision = model.give(AlterClientQuotas(changes=(change(HOST, {"connection_creation_rate": 5.0}),)))
    assert (decision.facts, decision.effects) == ((), ())


def test_quotas_written_by_others_are_taken_over_and_not_written_again(model: SiteModel) -> None:
    alter(model, change(ALICE, {"producer_byte_rate": 1.0}))
    client: QuotaEntity = ((USER, "alice"), (CLIENT_ID, "app"))
    decision = model.give(ClientQuotasRead(quotas={client: {"consumer_byte_rate": 2.0}}))
    assert model.cluster.quotas == {client: {"consumer_byte_rate": 2.0}}
    assert all(isinstance(fact, ClientQuotaReplaced) and not fact.must_store for fact in decision.facts)


def test_brokers_get_changed_and_removed_quotas_and_all_in_a_whole_image(model: SiteModel) -> None:
    image, pending = ClusterImage(site="a", node_id=1), PendingChanges()
    for entity, values, remove in (
        (ALICE, {"producer_byte_rate": 1.0}, ()),
        (HOST, {"connection_creation_rate": 2.0}, ()),
        (ALICE, {}, ("producer_byte_rate",)),
    ):
        decision = model.give(AlterClientQuotas(changes=(change(entity, values, *remove),)))
        for effect in decision.effects:
            assert isinstance(effect, Publish)
            pending.add(effect)
        image = apply_batch(image, pending.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages()))
        assert image.quotas == model.cluster.quotas
    whole = PendingChanges()
    whole.add_image()
    fresh = apply_batch(
        ClusterImage(site="a", node_id=2), whole.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages())
    )
    assert fresh.quotas == model.cluster.quotas == {HOST: {"connection_creation_rate": 2.0}}
    again = apply_batch(fresh, whole.batch(model.cluster, node_id=1, broker_epoch=1, topics=TopicMessages()))
    assert again.quotas is fresh.quotas
