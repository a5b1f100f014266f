"""The broker's effective configuration: dynamic configs over the properties file over the defaults.

Dynamic configs are in ZooKeeper (`config_store.py`), for all brokers of the site and for this one;
`take` replaces both at once. A stored property that this broker cannot use is ignored with a
warning; it never stops a broker. Code that must act on a change registers with `on_change`; other
code reads `current` and `properties` when needed.

Callers: broker/main.py, the config handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from broker.settings.config import BrokerSettings
from broker.settings.core.broker_configs import check_values, is_certificate_property, is_dynamic
from broker.settings.core.topic_configs import ConfigLayer, ConfigSource
from broker.settings.loading import listener_security
from runtime.configuration import ConfigurationError, load_settings
from runtime.logs import get_logger
from wire.rules.topic_config_kinds import InvalidTopicConfig

log = get_logger(__name__)

Listener = Callable[[BrokerSettings], None]


class DynamicConfigs:
    """Static settings, and the dynamic ones that override them."""

    def __init__(self, static: BrokerSettings) -> None:
        self.static = static
        self.current = static
        self.for_all: dict[str, str] = {}
        self.for_this: dict[str, str] = {}
        self._listeners: list[Listener] = []
        self._is_reported = True

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties in force, by Kafka's names; only those that were set somewhere."""
        return self.current.properties

    @property
    def layers(self) -> list[ConfigLayer]:
        """The sources of properties, the strongest first."""
        return [
            ConfigLayer(ConfigSource.DYNAMIC_BROKER, self.for_this),
            ConfigLayer(ConfigSource.DYNAMIC_DEFAULT, self.for_all),
            ConfigLayer(ConfigSource.STATIC, self.static.properties),
        ]

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with the settings in force after each change of them."""
        self._listeners.append(listener)

    def check(self, for_all: Mapping[str, str], for_this: Mapping[str, str]) -> None:
        """ConfigurationError or InvalidTopicConfig when these could not be taken whole."""
        self._merged(for_all, for_this)

    def take(self, for_all: Mapping[str, str], for_this: Mapping[str, str]) -> None:
        """These are stored now; calls the listeners when other values are in force."""
        usable_for_all = self._usable(for_all)
        usable_for_this = self._usable(for_this, below=usable_for_all)
        self.for_all, self.for_this = usable_for_all, usable_for_this
        merged = self._merged(usable_for_all, usable_for_this)
        if merged.properties == self.current.properties and self._is_reported:
            return
        before, self.current = self.current.properties, merged
        names = {*before, *merged.properties}
        altered = {
            name: merged.properties.get(name) for name in names if before.get(name) != merged.properties.get(name)
        }
        log.info("broker configs changed", **{name.replace(".", "_"): value for name, value in altered.items()})
        self._is_reported = (
            False  # a second call after a failure finds the values in force, and listeners that do not know them
        )
        for listener in self._listeners:
            listener(merged)
        self._is_reported = True

    def _usable(
        self, properties: Mapping[str, str], *, below: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, str]:
        """The stored properties that this broker can use over those `below` them: all dynamic ones
        where they fit together, such as a file of certificates and its type, else one after the
        other.
        """
        dynamic = {name: value for name, value in properties.items() if is_dynamic(name)}
        for name in properties.keys() - dynamic.keys():
            log.warning("stored broker config needs a restart and is ignored", key=name)
        if self._problem(below, dynamic) is None:
            return dynamic
        usable: dict[str, str] = {}
        for name, value in dynamic.items():
            problem = self._problem(below, {**usable, name: value})
            if problem is None:
                usable[name] = value
            else:
                log.warning("invalid stored broker config is ignored", key=name, reason=str(problem))
        return usable

    def _problem(self, for_all: Mapping[str, str], for_this: Mapping[str, str]) -> Exception | None:
        try:
            self.check(for_all, for_this)
        except (ConfigurationError, InvalidTopicConfig) as error:
            return error
        return None

    def _merged(self, for_all: Mapping[str, str], for_this: Mapping[str, str]) -> BrokerSettings:
        properties = {**self.static.properties, **for_all, **for_this}
        if properties == self.static.properties:
            return self.static
        check_values(properties)
        fields = {
            field.alias or name: getattr(self.static, name) for name, field in type(self.static).model_fields.items()
        }
        merged = load_settings(BrokerSettings, {**fields, **for_all, **for_this, "properties": properties})
        if any(map(is_certificate_property, (*for_all, *for_this))):
            listener_security(merged)  # files that cannot be used are refused, or ignored if they are stored
        return merged
