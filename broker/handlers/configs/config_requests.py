"""Altering broker configs on a client's behalf: they are checked, stored in ZooKeeper, and applied
here before the answer.

Shared by IncrementalAlterConfigs and AlterConfigs. Errors and messages are Kafka's: a wrong broker
config is an INVALID_REQUEST; only a list operation on what is no list is an INVALID_CONFIG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kio.schema.errors import ErrorCode

from broker.settings.config_store import BrokerConfigStore, ConfigStoreUnavailable
from broker.settings.core.broker_configs import (
    NotAList,
    Operation,
    PropertyChange,
    RefusedProperty,
    changed,
    is_certificate_property,
)
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.configuration import ConfigurationError
from wire.rules.topic_config_kinds import InvalidTopicConfig

Outcome = tuple[ErrorCode, str | None]
Replacement = Callable[[Mapping[str, str]], dict[str, str]]

BROKER_RESOURCE = 4
DONE: Outcome = (ErrorCode.none, None)


class BrokerConfigChanges:
    """Changes broker configs for clients."""

    def __init__(self, configs: DynamicConfigs, store: BrokerConfigStore) -> None:
        self._configs = configs
        self._store = store

    async def alter_broker(self, name: str, changes: Sequence[PropertyChange], *, is_validate_only: bool) -> Outcome:
        """Make these changes to a broker's configs, or (empty name) to those of all brokers."""
        in_force = self._configs.properties
        return await self._replace(name, lambda stored: changed(stored, changes, in_force), is_validate_only)

    async def replace_broker(self, name: str, wanted: Mapping[str, str], *, is_validate_only: bool) -> Outcome:
        """Make these the only altered configs of a broker."""
        changes = [PropertyChange(key, Operation.SET, value) for key, value in wanted.items()]
        return await self._replace(name, lambda _: changed({}, changes, {}), is_validate_only)

    async def _replace(self, name: str, replacement: Replacement, is_validate_only: bool) -> Outcome:
        own = str(self._configs.current.node_id)
        if name not in ("", own):
            return (
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {own} or empty string, but received {name}",
            )
        configs = self._configs

        def checked(stored: Mapping[str, str]) -> dict[str, str]:
            result = replacement(stored)
            if not name and any(map(is_certificate_property, result)):
                raise RefusedProperty("certificates are altered for one broker, by its id: each has files of its own")
            configs.check(configs.for_all if name else result, result if name else configs.for_this)
            return result

        try:
            if is_validate_only:
                checked(configs.for_this if name else configs.for_all)
            else:
                await self._store.change(name, checked)
        except NotAList as error:
            return ErrorCode.invalid_config, str(error)
        except (RefusedProperty, InvalidTopicConfig) as error:
            return ErrorCode.invalid_request, str(error)
        except ConfigurationError as error:
            return (
                ErrorCode.invalid_request,
                f"Invalid value {error.value} for configuration {error.key}: {error.accepted}",
            )
        except ConfigStoreUnavailable as error:
            return ErrorCode.coordinator_not_available, str(error)
        return DONE
