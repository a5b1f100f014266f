"""The broker properties that may change while a broker runs, and the effect of a change on the
stored ones. Pure.

As in Kafka: the site-wide counterparts of topic configs (those in milliseconds, not their spellings
in hours or minutes), the cleaner's pace, connection limits, the files of certificates and a few
more. A property may be set for one broker or for all of them; the first wins over the second, both
over the properties file.

Callers: broker/settings/dynamic_configs.py, DescribeConfigs, IncrementalAlterConfigs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from wire.rules.topic_config_kinds import ConfigKind, TopicConfig, changed_list, list_items
from wire.rules.topic_configs import TOPIC_CONFIGS

_STATIC_SPELLING: Final = "log.flush.scheduler.interval.ms"
LIST_PROPERTIES: Final = frozenset({"log.cleanup.policy", "max.connections.per.ip.overrides"})

TOPIC_PROPERTIES: Final[Mapping[str, TopicConfig]] = {
    found.name: definition for definition in TOPIC_CONFIGS.values() for found in definition.broker_properties
}
"""The topic config behind each broker property that has one."""

DYNAMIC_PROPERTIES: Final = frozenset(
    {name for name in TOPIC_PROPERTIES if not name.endswith((".hours", ".minutes")) and name != _STATIC_SPELLING}
    | {
        "antipode.failed.logins.max",
        "antipode.failed.logins.window.ms",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "num.replica.fetchers",
        "log.cleaner.backoff.ms",
        "log.cleaner.threads",
        "log.cleaner.io.max.bytes.per.second",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "transaction.partition.verification.enable",
    }
)
"""The properties that may change without a restart."""


_CERTIFICATES: Final = re.compile(
    r"(listener\.name\.[^.]+\.)?ssl\.(keystore\.(location|type)|truststore\.(location|type|certificates))"
)
_SECRETS: Final = re.compile(
    r"(listener\.name\.[^.]+\.)?ssl\.(keystore\.(password|key|certificate\.chain)|truststore\.password|key\.password)"
)


def is_dynamic(name: str) -> bool:
    """True if the property may change without a restart."""
    return name in DYNAMIC_PROPERTIES or is_certificate_property(name)


def is_certificate_property(name: str) -> bool:
    """True if the property names the certificates of a listener, or of all listeners; one broker's
    alone, since each has files of its own.
    """
    return _CERTIFICATES.fullmatch(name) is not None


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class PropertyChange(NamedTuple):
    """One step of a change; `value` is None for DELETE."""

    name: str
    operation: Operation
    value: str | None


class RefusedProperty(ValueError):
    """A change that cannot be made; says which property and why."""


class NotAList(ValueError):
    """A property that is no list is to be extended or shortened."""


def changed(
    stored: Mapping[str, str], changes: Iterable[PropertyChange], in_force: Mapping[str, str]
) -> dict[str, str]:
    """The stored properties after the changes. A change that extends or shortens a list begins with
    the list in `in_force`. Raises RefusedProperty, NotAList.
    """
    result = dict(stored)
    for name, operation, value in changes:
        if operation is Operation.DELETE:
            # also what another tool stored and no broker heeds
            result.pop(name, None)
            continue
        if _SECRETS.fullmatch(name):
            raise RefusedProperty(f"{name} is not stored in ZooKeeper: a broker reads it from its own file")
        if not is_dynamic(name):
            raise RefusedProperty(f"{name} cannot change while brokers run: set it in the file of each broker")
        if value is None:
            raise RefusedProperty(f"{name} has no value; accepted: a value, or DELETE")
        if operation is not Operation.SET and name not in LIST_PROPERTIES:
            raise NotAList(f"{name} is no list, so {operation.name} is not possible; accepted: SET and DELETE")
        result[name] = (
            value
            if operation is Operation.SET
            else changed_list(
                result.get(name, in_force.get(name, "")),
                list_items(value),
                is_removal=operation is Operation.SUBTRACT,
            )
        )
    check_values(result)
    return result


def check_values(properties: Mapping[str, str]) -> None:
    """Check the properties that set topic configs; InvalidTopicConfig names the property."""
    for name, text in properties.items():
        definition = TOPIC_PROPERTIES.get(name)
        if definition is not None:
            definition.parse_as(name, text)


_LONG_PROPERTIES: Final = frozenset(
    {
        "connections.max.idle.ms",
        "delegation.token.expiry.check.interval.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.max.lifetime.ms",
        "leader.imbalance.check.interval.seconds",
        "log.cleaner.backoff.ms",
        "log.retention.check.interval.ms",
        "offsets.retention.check.interval.ms",
        "queued.max.request.bytes",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.lag.time.max.ms",
    }
)
"""Properties that are LONG in Apache Kafka, though their values seldom need it."""


def kind_of(name: str) -> ConfigKind | None:
    """Kafka's type of a property that sets the default of a topic config or is a LONG; None for
    others. Spellings in hours and minutes are INT.
    """
    if name in _LONG_PROPERTIES:
        return ConfigKind.LONG
    definition = TOPIC_PROPERTIES.get(name)
    if definition is None:
        return None
    return ConfigKind.INT if name.endswith((".hours", ".minutes")) else definition.kind
