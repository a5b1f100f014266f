"""Loads a broker's settings from properties, and checks what no single key shows.

Callers: `cli` (from a properties file) and tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.authentication.inter_broker import check_inter_broker, inter_broker_listener
from broker.authentication.listener_security import (
    SECURITY_KEYS,
    ListenerSecurity,
    is_security_key,
    protocols_of,
    read_listener_security,
)
from broker.settings.config import BrokerSettings
from broker.settings.core.topic_configs import LogConfig
from broker.settings.foreign_configs import (
    CONTROLLER_KEYS,
    foreign_keys,
    reason_without_effect,
    without_controller_listeners,
)
from broker.settings.group_settings import (
    check_group_settings,
)
from runtime.configuration import ConfigurationError, load_settings, similar_key, unknown_keys
from runtime.logs import get_logger
from runtime.security.protection import check_site_protection
from wire.access.metrics import METRICS_KEYS
from wire.access.settings import CONTROL_KEYS
from wire.access.zookeeper import ZOOKEEPER_KEYS
from wire.rules.delegation_tokens import FORMER_SECRET_KEY, SECRET_KEY
from wire.rules.topic_config_kinds import InvalidTopicConfig
from wire.rules.topic_configs import TOPIC_CONFIGS

log = get_logger(__name__)


SITE_NODES: Final = 1000
"""Node ids of site number N are N * 1000 to N * 1000 + 999, so that the sites of an exact link
never share one.
"""


_OTHER_SPELLINGS: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}


def load_broker_settings(properties: Mapping[str, str]) -> BrokerSettings:
    """Settings from properties; ConfigurationError names key, value and what is accepted. Keys
    without effect are logged.
    """
    mapping: dict[str, object] = dict(properties)
    if mapping.get("broker.id", mapping.get("node.id")) != mapping.get("node.id", mapping.get("broker.id")):
        raise ConfigurationError(
            "broker.id",
            mapping["broker.id"],
            f"it is another name of node.id={mapping['node.id']}: give one of the two",
        )
    for other, key in _OTHER_SPELLINGS.items():
        if other in mapping:
            mapping.setdefault(key, mapping.pop(other))
    check_site_protection(properties)
    mapping.update(without_controller_listeners(properties))
    mapping["properties"] = dict(properties)
    settings = load_settings(BrokerSettings, mapping)
    _check_listeners(settings)
    settings = _with_inter_broker_listener(settings)
    _check_node_id(settings)
    check_group_settings(settings)
    _check_mirror_principals(settings)
    _check_topic_defaults(properties)
    _warn_of_idle(mapping)
    return settings


def _check_mirror_principals(settings: BrokerSettings) -> None:
    if settings.mirror_principals and not settings.authorizer_class:
        raise ConfigurationError(
            "antipode.mirror.principals",
            settings.properties["antipode.mirror.principals"],
            "no principal has limits without an authorizer: set authorizer.class.name",
        )


def _check_listeners(settings: BrokerSettings) -> None:
    names = {listener.name for listener in settings.listeners}
    for advertised in settings.advertised_listeners:
        if advertised.name not in names:
            raise ConfigurationError(
                "advertised.listeners", advertised.name, f"no such listener; accepted: {', '.join(sorted(names))}"
            )
    if settings.inter_broker_listener and settings.inter_broker_listener not in names:
        raise ConfigurationError(
            "inter.broker.listener.name",
            settings.inter_broker_listener,
            f"no such listener; accepted: {', '.join(sorted(names))}",
        )


def _with_inter_broker_listener(settings: BrokerSettings) -> BrokerSettings:
    """The settings with the listener that `security.inter.broker.protocol` chooses. Checks that
    brokers can log in at each other there.
    """
    security = listener_security(settings)
    name = inter_broker_listener(
        {name: found.protocol.value for name, found in security.items()},
        given=settings.inter_broker_listener,
        protocol=settings.inter_broker_protocol,
    )
    check_inter_broker(security[name])
    return settings.model_copy(update={"inter_broker_listener": name}) if settings.inter_broker_protocol else settings


def listener_security(settings: BrokerSettings) -> dict[str, ListenerSecurity]:
    """The security of each listener, its files read. ConfigurationError."""
    protocols = protocols_of((listener.name for listener in settings.listeners), settings.listener_protocols)
    return read_listener_security(settings.properties, protocols)


def _check_topic_defaults(properties: Mapping[str, str]) -> None:
    """The site's defaults of topic configs, such as `log.retention.ms`, so that a dry run finds a
    wrong one too.
    """
    try:
        LogConfig.from_topic_configs(properties, {})
    except InvalidTopicConfig as error:
        raise ConfigurationError(error.key, error.value, error.accepted or str(error)) from error


def _check_node_id(settings: BrokerSettings) -> None:
    first = settings.site_number * SITE_NODES
    if settings.site_number and not first <= settings.node_id < first + SITE_NODES:
        raise ConfigurationError(
            "node.id",
            settings.node_id,
            f"site number {settings.site_number} has ids {first} to {first + SITE_NODES - 1}",
        )


def read_keys() -> frozenset[str]:
    """Every key that a broker process reads, its controller candidate included."""
    settings = {field.alias or name for name, field in BrokerSettings.model_fields.items()}
    defaults = {found.name for definition in TOPIC_CONFIGS.values() for found in definition.broker_properties}
    own = (
        METRICS_KEYS | CONTROLLER_KEYS | CONTROL_KEYS | ZOOKEEPER_KEYS | SECURITY_KEYS | {SECRET_KEY, FORMER_SECRET_KEY}
    )
    return frozenset(settings | defaults | own | _OTHER_SPELLINGS.keys())


def _warn_of_idle(mapping: Mapping[str, object]) -> None:
    """Log for each key that is not read here the reason, or that it is not known and which one may
    be meant.
    """
    read = read_keys()
    for key in unknown_keys(BrokerSettings, mapping):
        if key in read or key == "properties" or is_security_key(key):
            continue
        reason = reason_without_effect(key)
        if reason is None:
            meant = similar_key(key, read | foreign_keys())
            log.warning("configuration key is not known to this broker", key=key, **({"meant": meant} if meant else {}))
        else:
            log.warning("configuration key has no effect here", key=key, reason=reason)
