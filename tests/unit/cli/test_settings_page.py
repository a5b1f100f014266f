"""The settings that docs/running-two-sites.md lists, and the example files it points to, are those
that the daemons know.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.access.passwords import USERS_KEY
from bridge.access.security import METHODS_KEY, REALM_KEY, RULES_FILE_KEY
from bridge.config import BridgeSettings, load_bridge_settings
from broker.settings.config import BrokerSettings
from broker.settings.loading import load_broker_settings
from controller.config import ControllerSettings
from mirror.settings.config import MirrorConfig, load_config
from runtime.configuration import load_settings, read_properties
from wire.rules.links import matches
from wire.rules.topic_configs import TOPIC_CONFIGS

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]*)\|", re.MULTILINE)

DEFAULTS = {
    str(field.alias): field.default
    for model in (ControllerSettings, BrokerSettings, MirrorConfig)
    for field in model.model_fields.values()
    if field.alias
}


def rows() -> list[tuple[str, str]]:
    page = (ROOT / "docs" / "running-two-sites.md").read_text(encoding="utf-8")
    settings = page.split("## Settings", 1)[1].split("\n## ", 1)[0]
    return [(key.strip("` "), default.strip()) for keys, default in ROW.findall(settings) for key in keys.split(",")]


def test_every_listed_key_is_one_that_a_daemon_reads() -> None:
    listed = {key for key, _ in rows()}
    assert len(listed) > 20
    assert listed - DEFAULTS.keys() == set()


def test_every_own_key_of_a_broker_is_listed() -> None:
    own = {
        str(field.alias)
        for model in (BrokerSettings, ControllerSettings)
        for field in model.model_fields.values()
        if str(field.alias).startswith("antipode.")
    }
    assert own - {key for key, _ in rows()} == set()


def test_listed_defaults_are_those_of_the_daemons() -> None:
    plain = {key: default for key, default in rows() if re.fullmatch(r"-?\d+|true|false", default)}
    assert len(plain) > 10
    assert {key: str(DEFAULTS[key]).lower() for key in plain} == plain


@pytest.mark.parametrize("site", ["a", "b"])
def test_the_example_of_a_broker_is_good(site: str) -> None:
    properties = read_properties(ROOT / "deploy" / "examples" / f"broker-{site}.properties")
    assert load_broker_settings(properties).site == load_settings(ControllerSettings, properties).site_name == site


def test_the_example_with_two_classes_of_topics_carries_data_and_leaves_commands_at_home() -> None:
    """MM-11."""
    config = load_config(read_properties(ROOT / "deploy" / "examples" / "mirror-data-and-control.properties"))
    topics = ("orders", "alerts.fire", "control.pumps", "pump.commands", "watchlist", "statistics.requests")
    assert config.whitelist is not None
    assert config.blacklist is not None
    carried = [one for one in topics if matches(one, whitelist=config.whitelist, blacklist=config.blacklist)]
    assert carried == ["orders", "alerts.fire"]
    assert matches("alerts.fire", whitelist=config.high_priority_topics, blacklist=())
    assert matches("statistics.daily.orders", whitelist=config.low_priority_topics, blacklist=())


@pytest.mark.parametrize(
    ("file", "link"),
    [
        ("mirror-a-b.properties", "a-b"),
        ("mirror-b-a.properties", "a-b"),
        ("mirror-translate.properties", "berlin-paris"),
    ],
)
def test_the_example_of_a_mirror_is_good(file: str, link: str) -> None:
    config = load_config(read_properties(ROOT / "deploy" / "examples" / file))
    assert config.link_name == link


def _plain(text: str) -> set[str]:
    """A number as it may be written in the code, the unit apart; empty for a sentence."""
    text = text.strip().strip("`")
    found = re.fullmatch(r"(-?\d+)(?: (MiB))?", text)
    if found is not None:
        return {str(int(found[1]) * (1024 * 1024 if found[2] else 1))}
    return {text} if text in ("true", "false") else set()


def _rows_with_defaults(page: Path) -> Iterator[tuple[str, str]]:
    """Each key of a table whose second column is `default`, with its default."""
    for table in re.findall(r"^\| [^|]+ \| default \|.*\n\|[- |]+\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE):
        for cell, default in ROW.findall(table):
            keys = re.findall(r"`([a-z][a-z0-9.-]+\.[a-z0-9.-]+)`", cell)
            defaults = default.split(", ")
            yield from zip(keys, defaults * len(keys) if len(defaults) == 1 else defaults, strict=False)


def test_the_defaults_of_all_pages_are_those_of_the_code() -> None:
    models = (BrokerSettings, ControllerSettings, MirrorConfig, BridgeSettings)
    known: dict[str, set[str]] = defaultdict(set)
    for model in models:
        for field in model.model_fields.values():
            known[str(field.alias)].add(str(field.default).lower())
    for name, definition in TOPIC_CONFIGS.items():
        known[name].add(definition.default)
    compared = [
        (page.name, key, value)
        for page in sorted((ROOT / "docs").glob("*.md"))
        for key, default in _rows_with_defaults(page)
        for value in _plain(default)
        if key in known
    ]
    assert len(compared) > 80
    wrong = [f"{page}: {key} is {known[key]}, not {value}" for page, key, value in compared if value not in known[key]]
    assert wrong == []


def test_the_page_of_the_bridge_lists_its_settings_with_their_defaults() -> None:
    page = (ROOT / "docs" / "http-bridge.md").read_text(encoding="utf-8").split("## Settings", 1)[1]
    listed = {key.strip("` "): default.strip() for keys, default in ROW.findall(page) for key in keys.split(",")}
    known = {str(field.alias): field.default for field in BridgeSettings.model_fields.values() if field.alias}
    assert known.keys() - listed.keys() == {"id", "client.id"}
    logins = {METHODS_KEY, REALM_KEY, RULES_FILE_KEY, USERS_KEY}
    assert listed.keys() - known.keys() == {"producer.*", "consumer.*", "client.*", *logins}
    plain = {key: default for key, default in listed.items() if re.fullmatch(r"\d+", default)}
    assert {key: str(known[key]) for key in plain} == plain


def test_the_example_of_a_bridge_knows_both_sites() -> None:
    settings = load_bridge_settings(read_properties(ROOT / "deploy" / "examples" / "bridge.properties"))
    assert len(settings.bootstrap_servers) == 2
