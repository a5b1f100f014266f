"""`antipode links`, `status` and `failover --dry-run` on a pair of sites."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.embedded.command_pair import AT_HOME, CommandPair
from tests.support.eventually import eventually_sync
from tests.support.processes.ports import LOOPBACK, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_links_are_listed_and_described_as_each_site_sees_them(pair: CommandPair, orders: str) -> None:
    def known_to_each_other() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pair.json("links", "list")
        assert all((entry["is_confirmed"], entry["is_peer_reachable"]) == (True, True) for entry in found), found
        return found

    entries = eventually_sync(known_to_each_other)
    assert [entry["site"] for entry in entries] == ["a", "b"]
    for entry in entries:
        link = entry["link"]
        assert (link["active_site"], link["epoch"], link["phase"]) == ("a", 1, "mirroring")
        assert (link["topic_whitelist"], link["topic_blacklist"]) == ([".*"], [AT_HOME])
        assert isinstance(link["updated_at_ms"], int)
        assert entry["contested_by"] is None
    # only the passive site has a mirror that writes to it
    assert entries[0]["mirror_report_age_ms"] is None

    def is_recent() -> bool:
        heard_ms = pair.json("links", "list")[1]["mirror_report_age_ms"]
        return heard_ms is not None and 0 <= heard_ms < 10_000

    eventually_sync(is_recent)
    assert AT_HOME in pair.run("links", "list").stdout
    pair.run(*pair.at("a", "topics", "create", "linked", "--partitions", "1"))
    pair.produce("linked", 10)

    def ends() -> list[int]:
        described = pair.json("links", "describe", "a-b")
        found = [partition for entry in described for partition in entry["partitions"]]
        return [partition["log_end_offset"] for partition in found if partition["topic"] == "linked"]

    eventually_sync(lambda: ends() == [10, 10])
    assert "site b: a is active in epoch 1, mirroring" in pair.run("links", "describe", "a-b").stdout
    assert "a is active in epoch 1" in pair.run("links", "confirm", "a-b", "--at", "a", "--yes").stdout


def test_links_status_shows_each_link_as_sites_and_mirror_see_it(pair: CommandPair) -> None:
    pair.run(*pair.at("a", "topics", "create", "shown", "--partitions", "1"))
    eventually_sync(lambda: pair.json("links", "status")["links"][0]["mirror"] == "MIRRORING")
    eventually_sync(lambda: "MIRRORING" in pair.run("links", "status", "a-b").stdout)
    of_mirror = pair.json("links", "status", "a-b", "--mirror", pair.sites.document["mirrors"][0]["grpc"])
    assert (of_mirror["link"], of_mirror["state"], of_mirror["mode"]) == ("a-b", "MIRRORING", "exact")
    assert "no site knows of a link x-y" in pair.run("links", "status", "x-y", code=1).stderr


def test_links_complete_waits_until_all_records_of_a_window_have_arrived(pair: CommandPair) -> None:
    pair.run(*pair.at("a", "topics", "create", "windowed", "--partitions", "2"))
    pair.produce("windowed", 20)
    reported = pair.json("links", "complete", "a-b", "--topic", "windowed", "--wait", "--timeout-ms", "60000")
    assert reported["is_complete"]
    ((topic, partitions),) = [(one["topic"], one["partitions_complete"]) for one in reported["topics"]]
    assert (topic, partitions) == ("windowed", 2)
    assert reported["topics"][0]["complete_until_ms"] >= reported["until_ms"]
    past = pair.run("links", "complete", "a-b", "--until", "2026-01-31T12:00:00Z", "--topic", "windowed")
    assert "2026-01-31T12:00:00.000Z" in past.stdout
    future = pair.json("links", "complete", "a-b", "--until", "2999-01-01T00:00:00Z", "--topic", "windowed", code=1)
    assert not future["is_complete"]
    assert "is no time: accepted are now" in pair.run("links", "complete", "a-b", "--until", "soon", code=2).stderr
    assert "carries no topic" in pair.run("links", "complete", "a-b", "--topic", "nothing", code=1).stderr
    assert "not a regular" in pair.run("links", "complete", "a-b", "--topic", "(", code=2).stderr
    assert "no link 'x-y'" in pair.run("links", "complete", "x-y", code=1).stderr


def test_links_alter_turns_a_running_link_into_a_sync_link_and_back(pair: CommandPair) -> None:
    planned = pair.run("links", "alter", "a-b", "--sync", "block", "--dry-run").stdout
    assert "link a-b would be changed at a: acks=all waits for b without end (block)" in " ".join(planned.split())
    assert [entry["link"]["sync_policy"] for entry in pair.json("links", "list")] == ["", ""]
    assert pair.json("links", "alter", "a-b", "--sync", "degrade", "--sync-timeout-ms", "900")["revision"] == 1
    for entry in pair.json("links", "list"):
        assert (entry["link"]["sync_policy"], entry["link"]["sync_timeout_ms"]) == ("degrade", 900)
    assert pair.well()["links"][0]["sync"] == "degrade"
    assert "waits for b, at most 900 ms" in " ".join(pair.run("links", "describe", "a-b").stdout.split())
    assert "waits for no other site" in pair.run("links", "alter", "a-b", "--sync", "none").stdout
    assert [entry["link"]["sync_policy"] for entry in pair.json("links", "list")] == ["", ""]
    assert "'wait'" in pair.run("links", "alter", "a-b", "--sync", "wait", code=2).stderr
    assert "say what to change: --sync, --reinstate, --lease-ms, --failover" in " ".join(
        pair.run("links", "alter", "a-b", code=2).stderr.split()
    )
    altered = pair.json("links", "alter", "a-b", "--reinstate", "automatic")
    assert altered["reinstate_policy"] == "automatic"
    assert pair.json("links", "alter", "a-b", "--reinstate", "manual")["reinstate_policy"] == ""


def test_status_reports_no_problem_and_fails_when_a_site_is_silent(pair: CommandPair) -> None:
    pair.run(*pair.at("a", "topics", "create", "caught-up", "--partitions", "1"))

    def has_caught_up() -> dict[str, Any]:
        found = pair.well()
        (link,) = found["links"]
        assert (link["active_site"], link["mirror"], link["lag_records"]) == ("a", "MIRRORING", 0)
        return found

    found = eventually_sync(has_caught_up)
    assert found["problems"] == []
    assert {name: site["brokers"] for name, site in found["sites"].items()} == {"a": [1], "b": [1001]}
    eventually_sync(lambda: "all is well" in pair.run("status").stdout)
    silent_address = f"{LOOPBACK}:{free_port()}"
    silent = pair.json("status", "--site", f"b={silent_address}", code=1)
    assert not silent["sites"]["b"]["is_reachable"]
    assert "site b does not answer" in silent["problems"][0]
    assert silent_address in silent["problems"][0]
    assert "exclude each other" in pair.run("status", "--watch", "--output", "json", code=2).stderr


def test_links_check_reports_whether_a_failover_would_lose_records(pair: CommandPair) -> None:
    def is_ready() -> bool:
        assert pair.json("links", "check", "a-b", "--max-group-age-ms", "60000")["is_ready"]
        return True

    eventually_sync(is_ready)
    silent_address = f"{LOOPBACK}:{free_port()}"
    unknown = pair.json("links", "check", "a-b", "--max-lag", "1000000", "--site", f"a={silent_address}", code=1)
    assert (unknown["is_ready"], unknown["standby"]) == (False, "b")
    assert silent_address in unknown["problems"][0]
    assert "'x-y'" in pair.run("links", "check", "x-y", code=1).stderr


def test_links_create_checks_the_sites_and_a_dry_run_stores_nothing(pair: CommandPair) -> None:
    wanted = [
        "links",
        "create",
        "c-d",
        "--source",
        "a",
        "--target",
        "b",
        "--source-bootstrap",
        "x:1",
        "--target-bootstrap",
        "x:1",
    ]
    planned = pair.json(*wanted, "--whitelist", "no-such-topic", "--dry-run")
    found = {check["check"]: check for check in planned["checks"]}
    assert found["versions"]["outcome"] == found["sites"]["outcome"] == "ok"
    assert found["mirror"]["outcome"] == "warning"
    assert "nothing is copied before a mirror runs" in found["mirror"]["detail"]
    refused = pair.run(*wanted, "--whitelist", "(", "--dry-run", code=1)
    assert "refused" in refused.stdout
    assert "link c-d cannot be created: pattern '('" in refused.stderr
    assert len(pair.json("links", "list")) == 2


def test_a_dry_run_of_a_failover_lists_the_steps_and_does_nothing(pair: CommandPair) -> None:
    planned = pair.json("failover", "a-b", "--to", "b", "--dry-run")
    assert planned["outcome"] == "planned"
    assert planned["planned_steps"] == ["prepare", "fence", "drain", "raise", "account", "promote", "notify"]
    assert "would do: prepare, fence, drain" in pair.run("failover", "a-b", "--to", "b", "--dry-run").stdout
    refused = pair.json("failover", "a-b", "--to", "a", "--dry-run", code=1)
    assert (refused["outcome"], "active for link a-b already" in refused["reason"]) == ("refused", True)
    assert "--to 'z': accepted is one of a, b" in pair.run("failover", "a-b", "--to", "z", code=2).stderr
    assert "no link 'x-y'" in pair.run("failover", "x-y", "--to", "b", code=1).stderr
    silent_address = f"{LOOPBACK}:{free_port()}"
    assert silent_address in pair.run("failover", "a-b", "--to", "b", "--site", f"b={silent_address}", code=1).stderr
    for entry in pair.json("links", "list"):
        assert (entry["link"]["active_site"], entry["link"]["epoch"]) == ("a", 1)
