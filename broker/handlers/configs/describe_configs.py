"""DescribeConfigs: configs of topics and of brokers, and the source of each value.

Behaviour: the active site (`broker/site/active_site.py`) describes topics that a link mirrors here;
while it does not answer, and for Antipode's own programs, this site's copy is described. Sources,
types and synonyms are Kafka's: the values that are configured under each name, the effective one
first; of several broker properties for one config those from the finest on. A broker describes its
own configs, and for an empty name those that were altered for all brokers. The loggers of a broker
are configs too: their levels (KIP-412). Configs of a group have the source that Kafka numbers 8.
Versions: 1 to 4. Not done: client metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.handlers.configs.config_requests import BROKER_RESOURCE
from broker.handlers.configs.group_config_requests import GROUP_RESOURCE, GroupConfigRequests
from broker.handlers.configs.logger_levels import LOGGER_RESOURCE, refusal_of
from broker.handlers.configs.topic_config_changes import TOPIC_RESOURCE, topics_of
from broker.metadata.cluster import Cluster
from broker.metadata.core.topic_names import is_valid_topic_name
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.settings.config import BrokerSettings
from broker.settings.config_documentation import documentation_of
from broker.settings.core.broker_configs import TOPIC_PROPERTIES, is_dynamic, kind_of
from broker.settings.core.group_configs import GROUP_CONFIGS
from broker.settings.core.topic_configs import ConfigLayer, ConfigSource, ResolvedConfig, resolve, synonyms
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.active_site import READ_TIMEOUT_MS, ActiveSite, answered_elsewhere
from runtime.logs import logger_levels
from wire.rules.topic_config_kinds import INT_MAX, ConfigKind, TopicConfig
from wire.rules.topic_configs import TOPIC_CONFIGS

API_KEY = 32
MIN_VERSION = 1
MAX_VERSION = 4

_UNKNOWN_TYPE = 0
_TYPE_CODES = {
    ConfigKind.BOOLEAN: 1,
    ConfigKind.STRING: 2,
    ConfigKind.INT: 3,
    ConfigKind.LONG: 5,
    ConfigKind.DOUBLE: 6,
    ConfigKind.LIST: 7,
}


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    configs: DynamicConfigs
    group_configs: GroupConfigRequests


_Synonym = tuple[str, str, ConfigSource]
"""The name, the value and the source of a configured value."""


class _Entry(NamedTuple):
    """One config: its value, where that comes from, and all configured values, the effective one
    first. Without a default the value may be None.
    """

    name: str
    value: str | None
    source: ConfigSource
    kind: ConfigKind | None
    synonyms: Sequence[_Synonym] = ()
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
            timeout_ms=READ_TIMEOUT_MS,
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
    shown = entry.synonyms if request.include_synonyms else ()
    return build.part(
        "DescribeConfigsResourceResult",
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=int(entry.source),
        is_sensitive=False,
        synonyms=tuple(
            build.part("DescribeConfigsSynonym", name=name, value=text, source=int(source))
            for name, text, source in shown
        ),
        config_type=_UNKNOWN_TYPE if entry.kind is None else _TYPE_CODES[entry.kind],
        documentation=entry.documentation if getattr(request, "include_documentation", False) else None,
    )


def _topic_entries(doors: Doors, overrides: Mapping[str, str]) -> Iterator[_Entry]:
    layers = doors.configs.layers
    for name, definition in TOPIC_CONFIGS.items():
        in_force = resolve(definition, layers, overrides)
        value = definition.shown(in_force.text)
        own = [(name, value, ConfigSource.TOPIC)] if name in overrides else []
        properties = [found.name for found in definition.broker_properties]
        configured = _configured(properties, layers, _TOPIC_DEFAULTS)
        yield _Entry(
            name,
            value,
            in_force.source,
            definition.kind,
            [*own, *_from(properties[:1], configured)],
            documentation=definition.documentation,
        )


def _configured(
    names: Sequence[str], layers: Sequence[ConfigLayer], defaults: Mapping[str, str | None]
) -> Iterator[_Synonym]:
    """All values of these properties, by their source, the defaults last."""
    for layer in layers:
        yield from ((name, layer.properties[name], layer.source) for name in names if name in layer.properties)
    for name in names:
        default = defaults[name]
        if default is not None:
            yield name, default, ConfigSource.DEFAULT


def _from(names: Sequence[str], configured: Iterable[_Synonym]) -> list[_Synonym]:
    """The values from the first that has one of the names on."""
    return list(dropwhile(lambda synonym: synonym[0] not in names, configured))


def _logger_entries() -> Iterator[_Entry]:
    for name, level in logger_levels().items():
        yield _Entry(name, level, ConfigSource.BROKER_LOGGER, kind=None)


def _group_entries(doors: Doors, group: str) -> Iterator[_Entry]:
    """The configs of a group. The group need not exist: it may have configs before its first member
    joins.
    """
    own = doors.cluster.image.group_configs.get(group, {})
    for name, definition in GROUP_CONFIGS.items():
        found = [
            (name, resolved.text, ConfigSource.GROUP)
            if resolved.source is ConfigSource.TOPIC
            else (_broker_property(definition, resolved), resolved.text, resolved.source)
            for resolved in synonyms(definition, doors.configs.layers, own)
        ]
        _, value, source = found[0]
        yield _Entry(name, value, source, definition.kind, found, documentation=definition.documentation)


def _broker_property(definition: TopicConfig, resolved: ResolvedConfig) -> str:
    return resolved.broker_property or definition.broker_properties[0].name


def _default_entries(configs: DynamicConfigs) -> Iterator[_Entry]:
    for name, value in sorted(configs.for_all.items()):
        source = ConfigSource.DYNAMIC_DEFAULT
        yield _Entry(
            name,
            _shown(name, value),
            source,
            _kind(name, configs.static),
            [(name, value, source)],
            documentation=documentation_of(name),
        )


def _broker_entries(configs: DynamicConfigs) -> Iterator[_Entry]:
    aliases = {field.alias: name for name, field in BrokerSettings.model_fields.items() if field.alias is not None}
    defaults = {name: _default_text(name) for name in aliases}
    defaults |= {name: default for name, default in _TOPIC_DEFAULTS.items() if name not in aliases}
    defaults |= {name: None for name in configs.for_this if name not in defaults}  # certificates
    for name in sorted(defaults):
        definition = TOPIC_PROPERTIES.get(name)
        properties = [name] if definition is None else [found.name for found in definition.broker_properties]
        found = _from([name], _configured(properties, configs.layers, defaults))
        yield _Entry(
            name,
            _shown(name, found[0][1]) if found else defaults[name],
            found[0][2] if found else ConfigSource.DEFAULT,
            _kind(name, configs.static),
            found,
            is_read_only=not is_dynamic(name),
            documentation=documentation_of(name),
        )


def _shown(name: str, text: str) -> str:
    definition = TOPIC_PROPERTIES.get(name)
    return text if definition is None else definition.shown(text)


def _topic_default(name: str) -> str | None:
    """The default of a topic property. If several properties set one topic config, only the
    coarsest has a default, in its own unit.
    """
    definition = TOPIC_PROPERTIES[name]
    last = definition.broker_properties[-1]
    if last.name != name:
        return None
    return definition.default if last.factor == 1 else str(int(definition.default) // last.factor)


_TOPIC_DEFAULTS: Final = {name: _topic_default(name) for name in TOPIC_PROPERTIES}


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
