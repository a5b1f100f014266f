"""Every setting of a broker has a text that explains it."""

from __future__ import annotations

from broker.settings.config import BrokerSettings
from broker.settings.config_documentation import documentation_of
from broker.settings.core.broker_configs import TOPIC_PROPERTIES


def test_every_setting_is_explained() -> None:
    known = {field.alias for field in BrokerSettings.model_fields.values() if field.alias is not None}
    names = known | set(TOPIC_PROPERTIES)
    assert len(names) > 100
    assert {name for name in names if not documentation_of(name)} == set()


def test_a_setting_that_is_unknown_has_no_text() -> None:
    assert documentation_of("no.such.setting") is None
