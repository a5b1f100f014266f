"""Consumer instances of principals whose Kafka user changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from bridge.config import load_bridge_settings
from bridge.consumers import Consumers, InstanceKey
from bridge.core.instance_settings import InstanceRequest, instance_settings
from bridge.core.refusals import Refused
from bridge.metrics import BridgeMetrics

KEY = InstanceKey("anna", "g", "i")
WANTED = instance_settings(InstanceRequest(name="i"))
FORMER, NEW = {"sasl.username": "orders"}, {"sasl.username": "guests"}


@pytest.fixture
async def consumers() -> AsyncIterator[Consumers]:
    settings = load_bridge_settings({"bootstrap.servers": "127.0.0.1:1"})
    found = Consumers(settings, BridgeMetrics(CollectorRegistry()))
    yield found
    await found.stop()


async def test_an_instance_ends_when_another_kafka_user_acts_for_its_owner(consumers: Consumers) -> None:
    """Its consumer has the rights of the former user."""
    made = consumers.create("anna", "g", WANTED, FORMER)
    assert consumers.find(KEY, FORMER) is made
    with pytest.raises(Refused) as refused:
        consumers.find(KEY, NEW)
    assert refused.value.error_code == 40403
    with pytest.raises(Refused):
        consumers.find(KEY, FORMER)


async def test_its_name_is_free_for_the_new_user(consumers: Consumers) -> None:
    made = consumers.create("anna", "g", WANTED, FORMER)
    with pytest.raises(Refused):
        consumers.create("anna", "g", WANTED, FORMER)
    other = consumers.create("anna", "g", WANTED, NEW)
    assert consumers.find(KEY, NEW) is other is not made
