"""`antipode topics` on a pair of sites: text for people, one JSON document for programs. Commands
that only read, or have --dry-run, change nothing.
"""

from __future__ import annotations

import pytest

from tests.support.embedded.command_pair import CommandPair
from tests.support.eventually import eventually_sync

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TABLE_RULE = "━━━"


def test_a_topic_is_created_described_changed_and_deleted(pair: CommandPair) -> None:
    def at_a(*arguments: str) -> tuple[str, ...]:
        return pair.at("a", "topics", *arguments)

    assert pair.json(*at_a("create", "life", "--partitions", "2", "--config", "retention.ms=1000000")) == {
        "topic": "life",
        "is_dry_run": False,
        "is_shown": True,
    }
    pair.wait_listed("life", 2)
    described = pair.json(*at_a("describe", "life"))
    assert (described["topic"], described["configs"]) == ("life", {"retention.ms": "1000000"})
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "start_offset": 0,
        "end_offset": 0,
    }
    changed = pair.json(*at_a("configs", "life", "--set", "cleanup.policy=compact", "--unset", "retention.ms"))
    assert (changed["cleanup.policy"], changed["retention.ms"]) == ("compact", "604800000")
    assert pair.json(*at_a("add-partitions", "life", "3"))["partitions"] == 3
    pair.wait_listed("life", 3)
    eventually_sync(lambda: len(pair.json(*pair.at("b", "topics", "describe", "life"))["partitions"]) == 3)
    assert "topic life is deleted" in pair.run(*at_a("delete", "life", "--yes")).stdout
    eventually_sync(lambda: "life" not in pair.topics("a"))

    def is_deleted_at_b() -> bool:
        """Whether this attempt deleted it, or one before whose response came too late."""
        ended = pair.sites.command(*pair.at("b", "topics", "delete", "life", "--yes"))
        return ended.returncode == 0 or "UNKNOWN_TOPIC_OR_PARTITION" in ended.stderr

    eventually_sync(is_deleted_at_b)
    assert "life" not in pair.topics("b")


def test_tables_for_people_show_what_the_json_has(pair: CommandPair, orders: str) -> None:
    pair.wait_listed(orders, 2)
    listed = pair.run(*pair.at("a", "topics", "list")).stdout
    assert TABLE_RULE in listed
    pair.run(*pair.at("a", "topics", "configs", orders, "--set", "retention.ms=999000"))
    described = pair.run(*pair.at("a", "topics", "describe", orders)).stdout
    assert f"{orders}  retention.ms=999000" in described
    assert "100" in described
    offsets = pair.run(*pair.at("a", "topics", "offsets", orders, "--at", "latest")).stdout
    assert f"{orders} at latest" in offsets
    assert pair.json(*pair.at("a", "topics", "offsets", orders, "--at", "latest")) == {"0": 100, "1": 0}
    assert pair.json(*pair.at("a", "topics", "offsets", orders, "--at", "earliest")) == {"0": 0, "1": 0}
    assert pair.json(*pair.at("a", "topics", "offsets", orders, "--at", "2026-01-31T12:00:00Z"))["1"] == -1
    assert pair.json(*pair.at("a", "topics", "offsets", orders, "--at", "1000"))["0"] == 0


def test_dry_runs_change_no_topic(pair: CommandPair, orders: str) -> None:
    before = pair.wait_listed(orders, 2)
    assert "can be created" in pair.run(*pair.at("a", "topics", "create", "dry", "--dry-run")).stdout
    assert "can have 9" in pair.run(*pair.at("a", "topics", "add-partitions", orders, "9", "--dry-run")).stdout
    configs = pair.json(*pair.at("a", "topics", "configs", orders, "--set", "retention.ms=1", "--dry-run"))
    assert configs["retention.ms"] == "604800000"
    assert pair.topics("a") == before


def test_reading_a_missing_topic_or_group_creates_none(pair: CommandPair, orders: str) -> None:
    for arguments in (
        ("topics", "describe", "nowhere"),
        ("topics", "configs", "nowhere"),
        ("topics", "offsets", "nowhere"),
        ("topics", "describe", "[/nowhere]"),
        ("groups", "reset-offsets", "board", "--topic", "nowhere", "--to", "earliest", "--execute"),
    ):
        assert "nowhere" in pair.run(*pair.at("a", *arguments), code=1).stderr
    assert "group missing is not there" in pair.run(*pair.at("a", "groups", "describe", "missing"), code=1).stderr
    pair.run(*pair.at("a", "groups", "reset-offsets", "missing", "--topic", orders, "--to", "latest"))
    assert "nowhere" not in pair.topics("a")
    assert "missing" not in [row["group"] for row in pair.json(*pair.at("a", "groups", "list"))]
