"""DescribeConfigs: configs of topics (override, site-wide default, default) and of brokers.

Behaviour: a topic of a passive site is described as its active site has it. Sources and types have Kafka's numbers.
Versions: 1 to 4. Not done: dynamic broker configs, loggers, client metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from broker.config import BrokerSettings
from broker.core.topic_configs import resolve
from broker.core.topic_names import is_valid_topic_name
from broker.entities import builder
from broker.handlers.create_topics import CONFIG_SOURCE_CODES
from broker.services import BrokerServices, RequestContext
from wire.topic_configs import TOPIC_CONFIGS, ConfigKind, TopicConfig

API_KEY = 32
MIN_VERSION = 1
MAX_VERSION = 4

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_TYPE_CODES = {
    ConfigKind.BOOLEAN: 1,
    ConfigKind.STRING: 2,
    ConfigKind.INT: 3,
    ConfigKind.LONG: 5,
    ConfigKind.DOUBLE: 6,
    ConfigKind.LIST: 7,
}
_STATIC_BROKER, _DEFAULT = 4, 5
_FIELD_TYPES = {bool: 1, int: 3}
_STRING_TYPE = 2


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a DescribeConfigs request."""
    build = builder(API_KEY, context.api_version)
    results = tuple(_describe(services, build, request, resource) for resource in request.resources)
    return build.response(results=results)


def _describe(services: BrokerServices, build: Any, request: Any, resource: Any) -> Any:
    error, message, configs = ErrorCode.none, None, ()
    if resource.resource_type == TOPIC_RESOURCE:
        routed = services.image.routed_topic(resource.resource_name)
        if not is_valid_topic_name(resource.resource_name):
            error, message = ErrorCode.invalid_topic_exception, f"{resource.resource_name!r} is not a topic name"
        elif routed is None:
            error = ErrorCode.unknown_topic_or_partition
        else:
            configs = tuple(_topic_configs(services, build, request, resource, routed.topic.configs))
    elif resource.resource_type == BROKER_RESOURCE and resource.resource_name in ("", str(services.config.node_id)):
        configs = tuple(_broker_configs(services.config, build, resource)) if resource.resource_name else ()
    else:
        error = ErrorCode.invalid_request
        message = "only topics and the broker that is asked can be described"
    return build.part(
        "DescribeConfigsResult",
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _is_asked(resource: Any, name: str) -> bool:
    return not resource.configuration_keys or name in resource.configuration_keys


def _topic_configs(services: BrokerServices, build: Any, request: Any, resource: Any, overrides: Any) -> Iterator[Any]:
    for name, definition in TOPIC_CONFIGS.items():
        if not _is_asked(resource, name):
            continue
        resolved = resolve(definition, services.config.properties, overrides)
        synonyms = _synonyms(services, build, definition, overrides) if request.include_synonyms else ()
        yield build.part(
            "DescribeConfigsResourceResult",
            name=name,
            value=resolved.text,
            read_only=False,
            config_source=CONFIG_SOURCE_CODES[resolved.source],
            is_sensitive=False,
            synonyms=tuple(synonyms),
            config_type=_TYPE_CODES[definition.kind],
            documentation=definition.documentation if getattr(request, "include_documentation", False) else None,
        )


def _synonyms(services: BrokerServices, build: Any, definition: TopicConfig, overrides: Any) -> Iterator[Any]:
    seen = set()
    for properties, own in ((services.config.properties, overrides), (services.config.properties, {}), ({}, {})):
        resolved = resolve(definition, properties, own)
        if resolved.source in seen:
            continue
        seen.add(resolved.source)
        yield build.part(
            "DescribeConfigsSynonym",
            name=resolved.broker_property or definition.name,
            value=resolved.text,
            source=CONFIG_SOURCE_CODES[resolved.source],
        )


def _broker_configs(settings: BrokerSettings, build: Any, resource: Any) -> Iterator[Any]:
    for field_name, field in type(settings).model_fields.items():
        name = field.alias
        if name is None or not _is_asked(resource, name):
            continue
        value = getattr(settings, field_name)
        yield build.part(
            "DescribeConfigsResourceResult",
            name=name,
            value=settings.properties.get(name) or _text(value),
            read_only=True,
            config_source=_STATIC_BROKER if name in settings.properties else _DEFAULT,
            is_sensitive=False,
            synonyms=(),
            config_type=_FIELD_TYPES.get(type(value), _STRING_TYPE),
            documentation=None,
        )


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return ",".join(map(str, value))
    return str(value)
