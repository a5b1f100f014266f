"""DescribeConfigs: configs of topics and of brokers, and the source of each value.

Behaviour: the active site (`broker/site/active_site.py`) describes topics that a link mirrors here;
while it does not answer, and for Antipode's own programs, this site's copy is described. Sources
and types have Kafka's numbers; synonyms list all configured values, the effective one first. A
broker describes its own configs, and for an empty name those that were altered for all brokers. The
loggers of a broker are configs too: their levels (KIP-412). Configs of a group have the source that
Kafka numbers 8. Versions: 1 to 4. Not done: client metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.configs.config_requests import BROKER_RESOURCE
from broker.handlers.configs.group_config_requests import GROUP_RESOURCE, GroupConfigRequests
from broker.handlers.configs.logger_levels import LOGGER_RESOURCE, refusal_of
from broker.metadata.cluster import Cluster
from broker.metadata.core.topic_names import is_valid_topic_name
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.settings.config import BrokerSettings
from broker.settings.config_documentation import documentation_of
from broker.settings.core.broker_configs import TOPIC_PROPERTIES, is_dynamic, kind_of
from broker.settings.core.group_configs import GROUP_CONFIGS
from broker.settings.core.topic_configs import ConfigSource, ResolvedConfig, synonyms
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.active_site import ActiveSite, answered_elsewhere
from runtime.logs import logger_levels
from wire.rules.topic_config_kinds import INT_MAX, ConfigKind, TopicConfig
from wire.rules.topic_configs import TOPIC_CONFIGS

API_KEY = 32
MIN_VERSION = 1
MAX_VERSION = 4

TOPIC_RESOURCE = 2
_TYPE_CODES = {
    ConfigKind.BOOLEAN: 1,
    ConfigKind.STRING: 2,
    ConfigKind.INT: 3,
    ConfigKind.LONG: 5,
    ConfigKind.DOUBLE: 6,
    ConfigKind.LIST: 7,
}
ACTIVE_SITE_TIMEOUT_MS = 2_000
"""Short, because this site can answer from its copy."""


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    configs: DynamicConfigs
    group_configs: GroupConfigRequests


def topics_of(request: Any) -> list[str]:
    """The topics that a request about configs names. A resource of another type has an empty name,
    so that it is never forwarded.
    """
    return [
        resource.resource_name if resource.resource_type == TOPIC_RESOURCE else "" for resource in request.resources
    ]


class _Entry(NamedTuple):
    """One config with all its configured values, the effective one first. Without a default a value
    may be None.
    """

    name: str
    found: Sequence[tuple[str, str | None, ConfigSource]]
    kind: ConfigKind
    is_read_only: bool = False
    documentation: str | None = None


_Described = dict[tuple[frozenset[tuple[str, str]], frozenset[str]], tuple[Any, ...]]
"""Configs of topics, cached by their overrides and the request's options: most topics of a request
share them, so they are computed once.
"""


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeConfigs request."""
    build = builder(API_KEY, context.api_version)
    if not context.is_own_tool:
        names = topics_of(request)
        answer = await answered_elsewhere(
            request,
            context,
            doors,
            handle,
            entries="resources",
            results="results",
            names=names,
            timeout_ms=ACTIVE_SITE_TIMEOUT_MS,
        )
        if answer is not None:
            return answer
    handed_back = await doors.group_configs.answer_of_their_site(context, request)
    if handed_back is not None:
        return handed_back
    described: _Described = {}
    results = tuple(_describe(doors, build, request, resource, described) for resource in request.resources)
    return build.response(results=results)


def _describe(doors: Doors, build: Any, request: Any, resource: Any, described: _Described) -> Any:
    error, message = _refusal(doors, resource)
    if error is not ErrorCode.none:
        configs: tuple[Any, ...] = ()
    elif resource.resource_type == TOPIC_RESOURCE:
        configs = _topic_configs(doors, build, request, resource, described)
    else:
        configs = _parts(build, request, _entries(doors, resource), resource.configuration_keys or ())
    return build.part(
        "DescribeConfigsResult",
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _topic_configs(doors: Doors, build: Any, request: Any, resource: Any, described: _Described) -> Any:
    overrides = doors.cluster.image.topics[resource.resource_name].configs
    asked = resource.configuration_keys or ()
    key = (frozenset(overrides.items()), frozenset(asked))
    if key not in described:
        described[key] = _parts(build, request, _topic_entries(doors, overrides), asked)
    return described[key]


def _entries(doors: Doors, resource: Any) -> Iterator[_Entry]:
    """Return the entries of a broker or its loggers."""
    if resource.resource_type == LOGGER_RESOURCE:
        return _logger_entries()
    if resource.resource_type == GROUP_RESOURCE:
        return _group_entries(doors, resource.resource_name)
    return _broker_entries(doors.configs) if resource.resource_name else _default_entries(doors.configs)


def _parts(build: Any, request: Any, entries: Iterable[_Entry], asked: Collection[str]) -> tuple[Any, ...]:
    return tuple(_part(build, request, entry) for entry in entries if not asked or entry.name in asked)


def _refusal(doors: Doors, resource: Any) -> tuple[ErrorCode, str | None]:
    name, own = resource.resource_name, str(doors.configs.current.node_id)
    if resource.resource_type == BROKER_RESOURCE:
        if name in ("", own):
            return ErrorCode.none, None
        return ErrorCode.invalid_request, f"Unexpected broker id, expected {own} or empty string, but received {name}"
    if resource.resource_type == LOGGER_RESOURCE:
        return refusal_of(name, node_id=doors.configs.current.node_id)
    if resource.resource_type == GROUP_RESOURCE:
        return (ErrorCode.none, None) if name else (ErrorCode.invalid_request, "Group name must not be empty")
    if resource.resource_type != TOPIC_RESOURCE:
        message = "only topics, groups and the broker that receives the request can be described"
        return ErrorCode.invalid_request, message
    if not is_valid_topic_name(name):
        return ErrorCode.invalid_topic_exception, f"{name!r} is not a topic name"
    is_known = name in doors.cluster.image.topics
    return (ErrorCode.none if is_known else ErrorCode.unknown_topic_or_partition), None


def _part(build: Any, request: Any, entry: _Entry) -> Any:
    _, value, source = entry.found[0]
    shown = entry.found if request.include_synonyms else ()
    return build.part(
        "DescribeConfigsResourceResult",
        name=entry.name,
        value=value,
        read_only=entry.is_read_only,
        config_source=int(source),
        is_sensitive=False,
        synonyms=tuple(
            build.part("DescribeConfigsSynonym", name=name, value=text, source=int(source))
            for name, text, source in shown
        ),
        config_type=_TYPE_CODES[entry.kind],
        documentation=entry.documentation if getattr(request, "include_documentation", False) else None,
    )


def _topic_entries(doors: Doors, overrides: Mapping[str, str]) -> Iterator[_Entry]:
    for name, definition in TOPIC_CONFIGS.items():
        found = synonyms(definition, doors.configs.layers, overrides)
        yield _Entry(
            name,
            [(_synonym_name(resolved, name), resolved.text, resolved.source) for resolved in found],
            definition.kind,
            documentation=definition.documentation,
        )


def _synonym_name(resolved: ResolvedConfig, name: str) -> str:
    """The name of a synonym, as in Kafka: the topic config's name for an override, else the broker
    property's name.
    """
    if resolved.broker_property is not None or resolved.source is ConfigSource.TOPIC:
        return resolved.broker_property or name
    properties = TOPIC_CONFIGS[name].broker_properties
    return properties[0].name if properties else name


def _logger_entries() -> Iterator[_Entry]:
    for name, level in logger_levels().items():
        yield _Entry(name, [(name, level, ConfigSource.BROKER_LOGGER)], ConfigKind.STRING)


def _group_entries(doors: Doors, group: str) -> Iterator[_Entry]:
    """The configs of a group. The group need not exist: it may have configs before its first member
    joins.
    """
    own = doors.cluster.image.group_configs.get(group, {})
    for name, definition in GROUP_CONFIGS.items():
        found = synonyms(definition, doors.configs.layers, own)
        texts = [
            (name, resolved.text, ConfigSource.GROUP)
            if resolved.source is ConfigSource.TOPIC
            else (_broker_property(definition, resolved), resolved.text, resolved.source)
            for resolved in found
        ]
        yield _Entry(name, texts, definition.kind, documentation=definition.documentation)


def _broker_property(definition: TopicConfig, resolved: ResolvedConfig) -> str:
    return resolved.broker_property or definition.broker_properties[0].name


def _default_entries(configs: DynamicConfigs) -> Iterator[_Entry]:
    for name, value in sorted(configs.for_all.items()):
        found = [(name, value, ConfigSource.DYNAMIC_DEFAULT)]
        yield _Entry(name, found, _kind(name, configs.static), documentation=documentation_of(name))


def _broker_entries(configs: DynamicConfigs) -> Iterator[_Entry]:
    aliases = {field.alias: name for name, field in BrokerSettings.model_fields.items() if field.alias is not None}
    defaults = {name: _default_text(name) for name in aliases}
    defaults |= {name: _topic_default(name) for name in TOPIC_PROPERTIES if name not in aliases}
    defaults |= {name: None for name in configs.for_this if name not in defaults}  # certificates
    for name in sorted(defaults):
        found: list[tuple[str, str | None, ConfigSource]] = [
            (name, layer.properties[name], layer.source) for layer in configs.layers if name in layer.properties
        ]
        default = defaults[name]
        if default is not None or not found:
            found.append((name, default, ConfigSource.DEFAULT))
        yield _Entry(
            name,
            found,
            _kind(name, configs.static),
            is_read_only=not is_dynamic(name),
            documentation=documentation_of(name),
        )


def _topic_default(name: str) -> str | None:
    """The default of a topic property. If several properties set one topic config, only the
    coarsest has a default, in its own unit.
    """
    definition = TOPIC_PROPERTIES[name]
    last = definition.broker_properties[-1]
    if last.name != name:
        return None
    return definition.default if last.factor == 1 else str(int(definition.default) // last.factor)


def _default_text(alias: str) -> str | None:
    field = next(field for field in BrokerSettings.model_fields.values() if field.alias == alias)
    return None if field.is_required() else _text(field.default)


def _kind(name: str, settings: BrokerSettings) -> ConfigKind:
    known = kind_of(name)
    if known is not None:
        return known
    fields = BrokerSettings.model_fields.items()
    field_name = next((field_name for field_name, field in fields if field.alias == name), "")
    match getattr(settings, field_name, ""):
        case bool():
            return ConfigKind.BOOLEAN
        case int() as number:
            return ConfigKind.LONG if number > INT_MAX else ConfigKind.INT
        case float():
            return ConfigKind.DOUBLE
        case tuple() | list():
            return ConfigKind.LIST
        case _:
            return ConfigKind.STRING


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case dict():
            return ",".join(f"{name}:{entry}" for name, entry in value.items())
        case tuple() if not hasattr(value, "_fields"):
            return ",".join(map(str, value))
        case _:
            return str(value)
