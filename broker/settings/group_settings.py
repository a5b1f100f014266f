"""The broker's settings for groups of the consumer protocol: what their lists may name, and how
they bound each other.
"""

from __future__ import annotations

from typing import Final, Protocol

from broker.settings.core.group_configs import ASSIGNOR_NAMES, RANGE, UNIFORM
from runtime.configuration import ConfigurationError

_KAFKAS_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": UNIFORM,
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": RANGE,
}
ASSIGNORS_ACCEPTED: Final = (
    f"one or more of {', '.join(ASSIGNOR_NAMES)} (or Kafka's classes of these), separated by commas"
)
REBALANCE_PROTOCOLS: Final = ("classic", "consumer", "streams")
PROTOCOLS_ACCEPTED: Final = (
    "classic and any of consumer, share, streams, separated by commas; there are no share and no streams groups"
)


class ConsumerGroupSettings(Protocol):
    """The broker settings that these checks need."""

    @property
    def consumer_session_timeout_ms(self) -> int: ...
    @property
    def consumer_session_timeout_ms_min(self) -> int: ...
    @property
    def consumer_session_timeout_ms_max(self) -> int: ...
    @property
    def consumer_heartbeat_interval_ms(self) -> int: ...
    @property
    def consumer_heartbeat_interval_ms_min(self) -> int: ...
    @property
    def consumer_heartbeat_interval_ms_max(self) -> int: ...


def parsed_assignors(value: object) -> object:
    """The assignors that a text names, by their short names; ValueError for an unknown one."""
    if not isinstance(value, str):
        return value
    named = tuple(_KAFKAS_CLASSES.get(name, name) for name in _entries(value))
    unknown = [name for name in named if name not in ASSIGNOR_NAMES]
    if unknown or not named or len(set(named)) < len(named):
        raise ValueError(f"accepted: {ASSIGNORS_ACCEPTED}")
    return named


def parsed_protocols(value: object) -> object:
    """The protocols that a text names; ValueError for an unknown one, and without `classic`, as at
    Kafka.
    """
    if not isinstance(value, str):
        return value
    named = tuple(name.lower() for name in _entries(value))
    if not set(named) <= {"classic", "consumer", "share", "streams"} or "classic" not in named:
        raise ValueError(f"accepted: {PROTOCOLS_ACCEPTED}")
    return named


def _entries(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def check_group_settings(settings: ConsumerGroupSettings) -> None:
    """Check as Kafka does at its start: the values lie within their bounds, and a session is longer
    than a heartbeat interval. Raises ConfigurationError.
    """
    session, interval = settings.consumer_session_timeout_ms, settings.consumer_heartbeat_interval_ms
    _check_within(
        "session.timeout.ms",
        session,
        settings.consumer_session_timeout_ms_min,
        settings.consumer_session_timeout_ms_max,
    )
    _check_within(
        "heartbeat.interval.ms",
        interval,
        settings.consumer_heartbeat_interval_ms_min,
        settings.consumer_heartbeat_interval_ms_max,
    )
    if session <= interval:
        raise ConfigurationError(
            "group.consumer.session.timeout.ms",
            session,
            f"accepted: more than group.consumer.heartbeat.interval.ms={interval}",
        )


def _check_within(kind: str, value: int, minimum: int, maximum: int) -> None:
    if minimum > maximum:
        raise ConfigurationError(
            f"group.consumer.max.{kind}", maximum, f"accepted: group.consumer.min.{kind}={minimum} or more"
        )
    if not minimum <= value <= maximum:
        raise ConfigurationError(
            f"group.consumer.{kind}",
            value,
            f"accepted: {minimum} to {maximum}, by group.consumer.min.{kind} and group.consumer.max.{kind}",
        )
