"""A site as its brokers describe it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from mirror.link.ports import Unreachable
from mirror.sites.kafka_site import KafkaSite
from runtime.addresses import HostPort
from tests.support.clients.scripted_broker import NO_TIME, ScriptedBroker
from tests.support.processes.ports import LOOPBACK
from wire.client.cluster_metadata import ClusterMetadata, TopicMetadata
from wire.client.connection import ConnectionOptions
from wire.client.topic_calls import RESOURCE_TOPIC


def site_with(monkeypatch: pytest.MonkeyPatch, **ids: UUID | None) -> KafkaSite:
    """One with topics of these names and ids."""
    site = KafkaSite([HostPort(LOOPBACK, 1)], ConnectionOptions(client_id="test"))
    topics = {name: TopicMetadata(name, topic_id, ErrorCode.none, False, {}) for name, topic_id in ids.items()}

    async def metadata(*_: Any) -> ClusterMetadata:
        return ClusterMetadata("cluster", 1, {}, topics)

    monkeypatch.setattr(site._client, "metadata", metadata)
    return site


async def test_topics_without_ids_are_not_passed_over_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in clusters whose inter.broker.protocol.version is below 2.8."""
    assert (await site_with(monkeypatch, orders=UUID(int=1)).topics()).keys() == {"orders"}
    with pytest.raises(Unreachable, match="gives topics no ids, among them orders"):
        await site_with(monkeypatch, orders=None, payments=None).topics()


async def test_topics_are_the_same_object_while_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_with(monkeypatch, orders=UUID(int=1))
    answers = [ClusterMetadata("cluster", 1, {}, {}) for _ in range(2)]
    given = iter([answers[0], answers[0], answers[1]])

    async def metadata(*_: Any) -> ClusterMetadata:
        return next(given)

    monkeypatch.setattr(site._client, "metadata", metadata)
    first = await site.topics()
    assert await site.topics() is first
    assert await site.topics() is not first


async def test_a_topic_whose_configs_are_hidden_does_not_hide_those_of_others() -> None:
    """The mirror's principal lacks DESCRIBE_CONFIGS on one topic."""

    def described(request: Any, header: Any) -> dict[str, Any]:
        return {"throttle_time": NO_TIME, "results": [result(asked.resource_name) for asked in request.resources]}

    def result(name: str) -> dict[str, Any]:
        return {
            "error_code": ErrorCode.topic_authorization_failed if name == "hidden" else ErrorCode.none,
            "error_message": None,
            "resource_type": RESOURCE_TOPIC,
            "resource_name": name,
            "configs": [],
        }

    broker = ScriptedBroker()
    broker.on(32, described)
    async with broker:
        site = KafkaSite([broker.address], ConnectionOptions(client_id="test"))
        assert await site.configs(["hidden", "seen"]) == {"seen": {}}
        await site.close()
