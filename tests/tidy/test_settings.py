"""Every key that a broker accepts is set by a test under its own name, so that a wrong wire from
key to effect is noticed.

A key counts as set where a test names it as a dictionary's key, as `key=value`, or with underscores
for the dots as an argument of the fixtures that start a broker. Tests that only read settings,
describe them or refuse them see no effect and count for nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

from broker.settings.config import BrokerSettings
from tests.tidy.sources import ROOT
from wire.rules.topic_configs import TOPIC_CONFIGS

UNTESTED = Path(__file__).with_name("untested_settings.txt")
"""Keys whose tests are yet to be written: it only ever gets shorter."""
SEES_NO_EFFECT = ("test_config.py", "test_describe_configs.py", "test_settings.py", "test_configuration.py")


def _accepted() -> set[str]:
    own = {field.alias for field in BrokerSettings.model_fields.values() if field.alias}
    of_topics = {found.name for definition in TOPIC_CONFIGS.values() for found in definition.broker_properties}
    return own | of_topics


def _set_by_tests() -> set[str]:
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name not in SEES_NO_EFFECT]
    everything = "\n".join(texts)
    named = set(re.findall(r"""["']([a-z0-9._]+)["']\s*:|(?<![\w.])([a-z0-9.]+)=|\b([a-z0-9_]+)=["']""", everything))
    found = {name for names in named for name in names}
    return {key for key in _accepted() if key in found or key.replace(".", "_") in found}


def _untested() -> set[str]:
    return {line for line in UNTESTED.read_text().splitlines() if line and not line.startswith("#")}


def test_every_accepted_key_is_set_by_a_test() -> None:
    assert _accepted() - _set_by_tests() - _untested() == set()


def test_no_key_stays_on_the_list_once_a_test_sets_it() -> None:
    assert _untested() & _set_by_tests() == set()
    assert _untested() <= _accepted()
