"""DescribeConfigs: each topic of a request has its own configs, and values, sources and synonyms
are those that Apache Kafka 4.3.1 gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from broker.handlers.configs import describe_configs
from broker.handlers.configs.config_requests import BROKER_RESOURCE as BROKER
from broker.handlers.configs.describe_configs import TOPIC_RESOURCE as TOPIC
from broker.handlers.configs.logger_levels import LOGGER_RESOURCE
from broker.settings.config import BrokerSettings
from broker.settings.core.topic_configs import ConfigLayer, ConfigSource

DYNAMIC, DEFAULT = int(ConfigSource.DYNAMIC_BROKER), int(ConfigSource.DEFAULT)
OVERRIDES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "short": {"retention.ms": "1000"},
    "also-plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "also-short": {"retention.ms": "1000"},
}


async def no_other_site(*_: object) -> None:
    """No other site coordinates a group."""


def doors_of(topics: Mapping[str, Mapping[str, str]], *layers: ConfigLayer) -> Any:
    return SimpleNamespace(
        cluster=SimpleNamespace(
            image=SimpleNamespace(topics={name: SimpleNamespace(configs=configs) for name, configs in topics.items()})
        ),
        configs=SimpleNamespace(
            current=SimpleNamespace(node_id=1),
            static=BrokerSettings.model_construct(),
            layers=layers,
            for_all={},
            for_this={},
        ),
        group_configs=SimpleNamespace(answer_of_their_site=no_other_site),
    )


async def described(doors: Any, names: Iterable[str], *, kind: int, keys: list[str] | None = None) -> Any:
    """The results of a request of the highest version."""
    context: Any = SimpleNamespace(api_version=describe_configs.MAX_VERSION, is_own_tool=True)
    resources = [SimpleNamespace(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names]
    request = SimpleNamespace(resources=resources, include_synonyms=True, include_documentation=False)
    return (await describe_configs.handle(request, context, doors)).results


async def config_of(
    doors: Any, name: str, *, kind: int, key: str
) -> tuple[str | None, int, list[tuple[str, str, int]]]:
    """Value, source and synonyms of one config."""
    (result,) = await described(doors, [name], kind=kind, keys=[key])
    (config,) = result.configs
    return config.value, config.config_source, [(one.name, one.value, one.source) for one in config.synonyms]


@pytest.mark.parametrize("keys", [None, ["retention.ms"]], ids=["all", "named"])
async def test_each_topic_of_a_request_is_described_with_its_own_configs(keys: list[str] | None) -> None:
    doors = doors_of(OVERRIDES, ConfigLayer(ConfigSource.STATIC, {"log.retention.ms": "5000"}))
    for result in await described(doors, OVERRIDES, kind=TOPIC, keys=keys):
        found = {config.name: config for config in result.configs}
        assert keys is None or set(found) == set(keys)
        overridden = {
            name: config.value for name, config in found.items() if config.config_source == ConfigSource.TOPIC
        }
        wanted = OVERRIDES[result.resource_name]
        assert overridden == {name: value for name, value in wanted.items() if keys is None or name in keys}
        assert found["retention.ms"].value == wanted.get("retention.ms", "5000")


@pytest.mark.parametrize(
    ("key", "properties", "value", "synonyms"),
    [
        ("retention.ms", {}, "604800000", []),
        (
            "retention.ms",
            {"log.retention.ms": "5000"},
            "5000",
            [("log.retention.ms", "5000", DYNAMIC), ("log.retention.hours", "168", DEFAULT)],
        ),
        ("segment.bytes", {}, "1073741824", [("log.segment.bytes", "1073741824", DEFAULT)]),
        ("leader.replication.throttled.replicas", {}, "", []),
    ],
)
async def test_synonyms_of_a_topic_begin_with_the_finest_property(
    key: str, properties: dict[str, str], value: str, synonyms: list[tuple[str, str, int]]
) -> None:
    doors = doors_of({"plain": {}}, ConfigLayer(ConfigSource.DYNAMIC_BROKER, properties))
    source = synonyms[0][2] if synonyms else DEFAULT
    assert await config_of(doors, "plain", kind=TOPIC, key=key) == (value, source, synonyms)


@pytest.mark.parametrize(
    ("key", "value", "source", "synonyms"),
    [
        (
            "log.retention.ms",
            "5000",
            DYNAMIC,
            [("log.retention.ms", "5000", DYNAMIC), ("log.retention.hours", "168", DEFAULT)],
        ),
        ("log.retention.minutes", None, DEFAULT, []),
        ("log.retention.hours", "168", DEFAULT, [("log.retention.hours", "168", DEFAULT)]),
        (
            "log.cleanup.policy",
            "compact,delete",
            DYNAMIC,
            [("log.cleanup.policy", " compact , delete", DYNAMIC), ("log.cleanup.policy", "delete", DEFAULT)],
        ),
    ],
)
async def test_a_broker_property_has_the_synonyms_that_follow_its_own_name(
    key: str, value: str | None, source: int, synonyms: list[tuple[str, str, int]]
) -> None:
    properties = {"log.retention.ms": "5000", "log.cleanup.policy": " compact , delete"}
    doors = doors_of({}, ConfigLayer(ConfigSource.DYNAMIC_BROKER, properties))
    assert await config_of(doors, "1", kind=BROKER, key=key) == (value, source, synonyms)


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("cleanup.policy", " compact ,  delete", "compact,delete"),
        ("retention.ms", " 50 ", "50"),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("retention.ms", "soon", "soon"),
    ],
)
async def test_a_value_is_shown_as_it_is_understood(key: str, text: str, shown: str) -> None:
    value, source, synonyms = await config_of(doors_of({"own": {key: text}}), "own", kind=TOPIC, key=key)
    assert (value, source, synonyms[0]) == (shown, ConfigSource.TOPIC, (key, shown, ConfigSource.TOPIC))


async def test_a_logger_has_a_level_without_a_type_and_without_synonyms() -> None:
    (result,) = await described(doors_of({}), ["1"], kind=LOGGER_RESOURCE, keys=["root"])
    (config,) = result.configs
    assert (config.config_source, config.config_type, config.synonyms) == (ConfigSource.BROKER_LOGGER, 0, ())
