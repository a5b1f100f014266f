"""The broker properties that may change, and the stored properties after a change."""

import pytest

from broker.settings.core.broker_configs import (
    DYNAMIC_PROPERTIES,
    NotAList,
    Operation,
    PropertyChange,
    RefusedProperty,
    changed,
    kind_of,
)
from wire.rules.topic_config_kinds import ConfigKind, InvalidTopicConfig


def test_set_and_delete_change_only_what_they_name():
    stored = {"log.retention.ms": "5", "log.segment.bytes": "100"}
    changes = [
        PropertyChange("log.retention.ms", Operation.DELETE, None),
        PropertyChange("log.roll.ms", Operation.SET, "7"),
    ]
    assert changed(stored, changes, {}) == {"log.segment.bytes": "100", "log.roll.ms": "7"}


def test_lists_grow_and_shrink_from_what_is_in_force():
    grown = changed(
        {}, [PropertyChange("log.cleanup.policy", Operation.APPEND, "compact")], {"log.cleanup.policy": "delete"}
    )
    assert grown == {"log.cleanup.policy": "delete,compact"}
    shrunk = changed(grown, [PropertyChange("log.cleanup.policy", Operation.SUBTRACT, "delete")], {})
    assert shrunk == {"log.cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (PropertyChange("log.dirs", Operation.SET, "x"), r"log.dirs cannot change while brokers run"),
        (PropertyChange("log.retention.hours", Operation.SET, "1"), "cannot change while"),
        (PropertyChange("listener.name.x.ssl.client.auth", Operation.SET, "none"), "cannot change while"),
        (PropertyChange("ssl.key.password", Operation.SET, "secret"), "not stored in ZooKeeper"),
        (PropertyChange("log.segment.bytes", Operation.SET, None), "has no value"),
    ],
)
def test_a_property_that_cannot_change_is_refused_by_name(change, problem):
    with pytest.raises(RefusedProperty, match=problem):
        changed({}, [change], {})


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT])
def test_a_property_that_is_no_list_is_neither_extended_nor_shortened(operation):
    with pytest.raises(NotAList, match=rf"log\.segment\.bytes is no list, so {operation.name} is not possible"):
        changed({}, [PropertyChange("log.segment.bytes", operation, "1")], {})


def test_a_value_out_of_range_is_refused_under_the_propertys_own_name():
    with pytest.raises(InvalidTopicConfig, match=r"log\.segment\.bytes"):
        changed({}, [PropertyChange("log.segment.bytes", Operation.SET, "1")], {})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("log.retention.ms", ConfigKind.LONG),
        ("log.retention.hours", ConfigKind.INT),
        ("log.roll.jitter.hours", ConfigKind.INT),
        ("log.segment.bytes", ConfigKind.INT),
        ("replica.lag.time.max.ms", ConfigKind.LONG),
        ("num.replica.fetchers", None),
    ],
)
def test_properties_have_the_types_of_apache_kafka(name: str, kind: ConfigKind | None) -> None:
    assert kind_of(name) is kind


def test_only_the_spellings_in_milliseconds_are_dynamic():
    assert {"log.retention.ms", "log.preallocate"} <= DYNAMIC_PROPERTIES
    assert not {"log.retention.hours", "log.retention.minutes", "log.roll.hours"} & DYNAMIC_PROPERTIES
