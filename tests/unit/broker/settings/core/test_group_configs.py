"""Configs of single groups. The errors and their texts come from a run of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.settings.core.broker_configs import Operation, PropertyChange
from broker.settings.core.group_configs import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    Bounds,
    RefusedGroupConfig,
    changed,
    in_force,
)

BOUNDS = {SESSION_TIMEOUT: Bounds(45_000, 45_000, 60_000), HEARTBEAT_INTERVAL: Bounds(5000, 5000, 15_000)}


def put(name: str, value: str | None) -> PropertyChange:
    return PropertyChange(name, Operation.SET, value)


def test_configs_are_set_and_removed() -> None:
    configs = changed({}, [put(SESSION_TIMEOUT, "50000"), put(HEARTBEAT_INTERVAL, "6000")], BOUNDS)
    assert configs == {SESSION_TIMEOUT: "50000", HEARTBEAT_INTERVAL: "6000"}
    removed = changed(configs, [PropertyChange(SESSION_TIMEOUT, Operation.DELETE, None)], BOUNDS)
    assert removed == {HEARTBEAT_INTERVAL: "6000"}
    assert changed({}, [PropertyChange("foo", Operation.DELETE, None)], BOUNDS) == {}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (put(SESSION_TIMEOUT, "44999"), ErrorCode.invalid_config, "group.consumer.min.session.timeout.ms"),
        (put(SESSION_TIMEOUT, "60001"), ErrorCode.invalid_config, "group.consumer.max.session.timeout.ms"),
        (put(HEARTBEAT_INTERVAL, "4999"), ErrorCode.invalid_config, "group.consumer.min.heartbeat.interval.ms"),
        (put(HEARTBEAT_INTERVAL, "15001"), ErrorCode.invalid_config, "group.consumer.max.heartbeat.interval.ms"),
        (put(SESSION_TIMEOUT, "x"), ErrorCode.invalid_config, "Not a number of type INT"),
        (put(SESSION_TIMEOUT, "-1"), ErrorCode.invalid_config, "Value must be at least 1"),
        (put(SESSION_TIMEOUT, None), ErrorCode.invalid_request, "has no value"),
        (put("foo", "1"), ErrorCode.invalid_config, "Unknown group config name: foo"),
        (
            put("share.session.timeout.ms", "45000"),
            ErrorCode.invalid_config,
            "there are no share groups; accepted: consumer.",
        ),
        (
            put("streams.num.standby.replicas", "1"),
            ErrorCode.invalid_config,
            "there are no groups of the streams protocol",
        ),
        (put("consumer.assignment.interval.ms", "1000"), ErrorCode.invalid_config, "would have no effect"),
        (put("consumer.assignor.offload.enable", "true"), ErrorCode.invalid_config, "would have no effect"),
        (PropertyChange(SESSION_TIMEOUT, Operation.APPEND, "1"), ErrorCode.invalid_config, "Can't APPEND to key"),
    ],
)
def test_a_group_config_that_cannot_be_set_is_refused(change: PropertyChange, error: ErrorCode, words: str) -> None:
    with pytest.raises(RefusedGroupConfig, match=words) as refused:
        changed({}, [change], BOUNDS)
    assert refused.value.error is error


def test_a_config_named_twice_is_refused() -> None:
    with pytest.raises(RefusedGroupConfig, match="duplicate") as refused:
        changed({}, [put(SESSION_TIMEOUT, "45000"), put(SESSION_TIMEOUT, "46000")], BOUNDS)
    assert refused.value.error is ErrorCode.invalid_request


def test_a_session_is_longer_than_a_heartbeat_interval() -> None:
    wide = {**BOUNDS, HEARTBEAT_INTERVAL: Bounds(5000, 1, 90_000)}
    with pytest.raises(RefusedGroupConfig, match="must be greater than"):
        changed({}, [put(HEARTBEAT_INTERVAL, "45000")], wide)


def test_a_stored_value_that_the_bounds_exclude_counts_as_the_nearest_that_they_allow() -> None:
    assert in_force({}, SESSION_TIMEOUT, BOUNDS) == 45_000
    assert in_force({SESSION_TIMEOUT: "50000"}, SESSION_TIMEOUT, BOUNDS) == 50_000
    assert in_force({SESSION_TIMEOUT: "1"}, SESSION_TIMEOUT, BOUNDS) == 45_000
    assert in_force({SESSION_TIMEOUT: "70000"}, SESSION_TIMEOUT, BOUNDS) == 60_000
    assert in_force({SESSION_TIMEOUT: "soon"}, SESSION_TIMEOUT, BOUNDS) == 45_000
