"""Configs of single groups, as Kafka's resource type GROUP: which there are, what they may be, what
is in force. Pure.

A value counts for the members of a KIP-848 group. The broker's `group.consumer.min.*` and
`group.consumer.max.*` bound it: a change beyond them is refused, and a stored value that they
exclude later counts as the nearest one that they allow.

Callers: the handlers of configs, the group coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from broker.settings.core.broker_configs import Operation, PropertyChange
from wire.rules.topic_config_kinds import BrokerProperty, ConfigKind, InvalidTopicConfig, TopicConfig

UNIFORM: Final = "uniform"
RANGE: Final = "range"
ASSIGNOR_NAMES: Final = (UNIFORM, RANGE)
"""The assignors of `broker/groups/core/consumer_protocol/server_assignors.py`; the first one is the
default.
"""
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

GROUP_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    SESSION_TIMEOUT: TopicConfig(
        name=SESSION_TIMEOUT,
        kind=ConfigKind.INT,
        default="45000",
        documentation="A member of the consumer protocol that sends no heartbeat for this time is removed from its group.",
        broker_properties=(BrokerProperty("group.consumer.session.timeout.ms"),),
        minimum=1,
    ),
    HEARTBEAT_INTERVAL: TopicConfig(
        name=HEARTBEAT_INTERVAL,
        kind=ConfigKind.INT,
        default="5000",
        documentation="How often the members of the consumer protocol send heartbeats; each heartbeat is answered with it.",
        broker_properties=(BrokerProperty("group.consumer.heartbeat.interval.ms"),),
        minimum=1,
    ),
}


_NOT_HERE: Final[Mapping[str, str]] = {
    "consumer.assignment.interval.ms": "a group's assignment is worked out with the heartbeat that needs it",
    "consumer.assignor.offload.enable": "a group's assignment is worked out with the heartbeat that needs it",
    "share.": "there are no share groups",
    "streams.": "there are no groups of the streams protocol",
}
"""Configs that Apache Kafka has and this broker cannot follow, by what their names begin with, and
why.
"""


class Bounds(NamedTuple):
    """The broker's default for groups without a value of their own, and the values that a group may
    set.
    """

    default: int
    minimum: int
    maximum: int

    def nearest(self, value: int) -> int:
        """The value, or the nearest one that may be set."""
        return min(max(value, self.minimum), self.maximum)


GroupBounds = Mapping[str, Bounds]
"""The bounds by the name of a group config."""


class RefusedGroupConfig(ValueError):
    """A change that cannot be made; carries the Kafka error and says which config and why."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


def in_force(configs: Mapping[str, str], name: str, bounds: GroupBounds) -> int:
    """The value that counts for a group with these configs of its own."""
    limits, text = bounds[name], configs.get(name)
    if text is None:
        return limits.default
    try:
        return limits.nearest(int(text))
    except ValueError:
        # ZooKeeper can be written by others
        return limits.default


def changed(stored: Mapping[str, str], changes: Iterable[PropertyChange], bounds: GroupBounds) -> dict[str, str]:
    """The group's configs after the changes. RefusedGroupConfig."""
    result, named = dict(stored), set[str]()
    for name, operation, value in changes:
        if name in named:
            raise RefusedGroupConfig(ErrorCode.invalid_request, "Error due to duplicate config keys")
        named.add(name)
        if operation is Operation.DELETE:
            result.pop(name, None)
            continue
        if value is None:
            raise RefusedGroupConfig(ErrorCode.invalid_request, f"{name} has no value; accepted: a value, or DELETE")
        if name not in GROUP_CONFIGS:
            raise RefusedGroupConfig(ErrorCode.invalid_config, _why_unknown(name))
        if operation is not Operation.SET:
            message = f"Can't {operation.name} to key {name} because its type is not LIST."
            raise RefusedGroupConfig(ErrorCode.invalid_config, message)
        result[name] = value
    _check(result, bounds)
    return result


def _why_unknown(name: str) -> str:
    reason = next((reason for begin, reason in _NOT_HERE.items() if name.startswith(begin)), "")
    problem = f"{name} would have no effect, {reason}" if reason else f"Unknown group config name: {name}"
    return f"{problem}; accepted: {', '.join(GROUP_CONFIGS)}"


def _check(configs: Mapping[str, str], bounds: GroupBounds) -> None:
    for name, definition in GROUP_CONFIGS.items():
        text = configs.get(name)
        if text is None:
            continue
        try:
            value = int(definition.parse(text))
        except InvalidTopicConfig as error:
            raise RefusedGroupConfig(ErrorCode.invalid_config, str(error)) from error
        limits, kind = bounds[name], name.removeprefix("consumer.")
        if value < limits.minimum:
            key = f"group.consumer.min.{kind}"
            message = f"{name} must be greater than or equal to {key}: {value}; accepted: {limits.minimum} or more"
            raise RefusedGroupConfig(ErrorCode.invalid_config, message)
        if value > limits.maximum:
            key = f"group.consumer.max.{kind}"
            message = f"{name} must be less than or equal to {key}: {value}; accepted: {limits.maximum} or less"
            raise RefusedGroupConfig(ErrorCode.invalid_config, message)
    if in_force(configs, SESSION_TIMEOUT, bounds) <= in_force(configs, HEARTBEAT_INTERVAL, bounds):
        message = f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}"
        raise RefusedGroupConfig(ErrorCode.invalid_config, message)
