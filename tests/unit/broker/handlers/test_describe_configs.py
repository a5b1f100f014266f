"""Configs of many topics in one answer: topics with the same overrides have the same configs, other
topics have their own.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.handlers.configs import describe_configs
from broker.settings.core.topic_configs import ConfigLayer, ConfigSource

OVERRIDES = {
    "plain": {},
    "short": {"retention.ms": "1000"},
    "also-plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "also-short": {"retention.ms": "1000"},
}


async def no_other_site(*_: object) -> None:
    """No other site coordinates a group."""


@pytest.mark.parametrize("keys", [None, ["retention.ms"]], ids=["all", "named"])
async def test_each_topic_of_a_request_is_described_with_its_own_configs(keys: list[str] | None) -> None:
    doors: Any = SimpleNamespace(
        cluster=SimpleNamespace(
            image=SimpleNamespace(
                topics={name: SimpleNamespace(configs=configs) for name, configs in OVERRIDES.items()}
            )
        ),
        configs=SimpleNamespace(
            current=SimpleNamespace(node_id=1),
            layers=[ConfigLayer(ConfigSource.STATIC, {"log.retention.ms": "5000"})],
        ),
        group_configs=SimpleNamespace(answer_of_their_site=no_other_site),
    )
    context: Any = SimpleNamespace(api_version=describe_configs.MAX_VERSION, is_own_tool=True)
    resources = [
        SimpleNamespace(resource_type=describe_configs.TOPIC_RESOURCE, resource_name=name, configuration_keys=keys)
        for name in OVERRIDES
    ]
    request = SimpleNamespace(resources=resources, include_synonyms=True, include_documentation=False)
    answer = await describe_configs.handle(request, context, doors)
    for result in answer.results:
        found = {config.name: config for config in result.configs}
        assert keys is None or set(found) == set(keys)
        overridden = {
            name: config.value for name, config in found.items() if config.config_source == ConfigSource.TOPIC
        }
        wanted = OVERRIDES[result.resource_name]
        assert overridden == {name: value for name, value in wanted.items() if keys is None or name in keys}
        assert found["retention.ms"].value == wanted.get("retention.ms", "5000")
