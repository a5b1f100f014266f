"""The commands of `antipode` as a person types them, on one pair of sites from `antipode up`.

Promised: text for people and one JSON document for programs; exit code 0 done, 1 failed, 2 wrong
usage (`reconcile`: equal, different, not compared); and for an obstacle one message that names the
option or the thing, its value, and what is accepted. Commands that only look, or have --dry-run,
change nothing.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from prometheus_client.parser import text_string_to_metric_families

from runtime.addresses import parse_host_port
from runtime.clock import SystemClock
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync
from tests.support.processes.ports import LOOPBACK, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

AT_HOME = "home-.*"
CREATE_TOPICS = 19
TABLE_RULE = "━━━"


class Pair:
    """Sites a and b, and the command."""

    def __init__(self, sites: EmbeddedSites) -> None:
        self.sites = sites

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A command that must end with the code, in good order."""
        ended = self.sites.command(*arguments)
        assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The output with `--output json`: one line."""
        printed = self.run(*arguments, "--output", "json", code=code).stdout
        assert printed.count("\n") == 1, printed
        return json.loads(printed)

    def well(self) -> dict[str, Any]:
        """The sites' status, as soon as the command ends with 0: on a busy machine a process may
        not answer for a moment.
        """
        return eventually_sync(lambda: dict(self.json("status")))

    def at(self, site: str, *arguments: str) -> tuple[str, ...]:
        """The arguments with the site's brokers."""
        return (*arguments, "--bootstrap-server", self.sites.bootstrap(site))

    def topics(self, site: str) -> dict[str, int]:
        """Partitions by topic."""
        return {row["topic"]: row["partitions"] for row in self.json(*self.at(site, "topics", "list"))}

    def wait_listed(self, topic: str, partitions: int) -> dict[str, int]:
        """All topics of site a, including this one: b's brokers, which may be asked, learn of a's
        changes a moment later.
        """

        def listed() -> dict[str, int] | None:
            found = self.topics("a")
            return found if found.get(topic) == partitions else None

        return eventually_sync(listed)

    def make_at_home(self, topic: str, *records: bytes) -> None:
        """A topic that no link carries, at a alone, by a's broker itself."""
        with RawClient(parse_host_port(self.sites.bootstrap("a")).port) as client:
            wanted = {"name": topic, "num_partitions": 1, "replication_factor": -1, "assignments": (), "configs": ()}
            values = {"topics": [wanted], "timeout": dt.timedelta(seconds=5), "validate_only": False}
            (made,) = client.call(CREATE_TOPICS, 5, values).topics
            assert made.error_code == ErrorCode.none
            assert (
                client.produce(topic, batch(records, timestamp_ms=SystemClock().now_ms())).error_code == ErrorCode.none
            )

    def produce(self, topic: str, count: int) -> None:
        """Send records to its partition 0."""
        records = [Record(value=b"%d" % number, partition=0) for number in range(count)]
        librdkafka_produce(self.sites.bootstrap("a"), topic, records)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One pair for all tests."""
    starter = SitesStarter(tmp_path_factory.mktemp("commands"))
    try:
        yield Pair(starter("--blacklist", AT_HOME))
    finally:
        starter.end_all()


@pytest.fixture(scope="module")
def untouched(pair: Pair) -> str:
    """A topic of two partitions for what is refused."""
    pair.run(*pair.at("a", "topics", "create", "untouched", "--partitions", "2"))
    return "untouched"


@pytest.fixture
def orders(pair: Pair) -> str:
    """A topic of two partitions, the first with 100 records."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    pair.run(*pair.at("a", "topics", "create", name, "--partitions", "2"))
    pair.produce(name, 100)
    return name


def test_a_topic_is_made_shown_changed_grown_and_deleted(pair: Pair) -> None:
    def at_a(*arguments: str) -> tuple[str, ...]:
        return pair.at("a", "topics", *arguments)

    assert pair.json(*at_a("create", "life", "--partitions", "2", "--config", "retention.ms=1000000")) == {
        "topic": "life",
        "is_dry_run": False,
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


def test_what_is_printed_for_people_says_the_same(pair: Pair, orders: str) -> None:
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


def test_dry_runs_change_no_topic(pair: Pair, orders: str) -> None:
    before = pair.wait_listed(orders, 2)
    assert "can be created" in pair.run(*pair.at("a", "topics", "create", "dry", "--dry-run")).stdout
    assert "can have 9" in pair.run(*pair.at("a", "topics", "add-partitions", orders, "9", "--dry-run")).stdout
    configs = pair.json(*pair.at("a", "topics", "configs", orders, "--set", "retention.ms=1", "--dry-run"))
    assert configs["retention.ms"] == "604800000"
    assert pair.topics("a") == before


def test_looking_for_a_topic_or_a_group_that_is_not_there_makes_none(pair: Pair, orders: str) -> None:
    for arguments in (
        ("topics", "describe", "nowhere"),
        ("topics", "configs", "nowhere"),
        ("topics", "offsets", "nowhere"),
        ("topics", "describe", "[/nowhere]"),
        ("groups", "reset-offsets", "board", "--topic", "nowhere", "--to", "earliest", "--execute"),
    ):
        assert "nowhere" in pair.run(*pair.at("a", *arguments), code=1).stderr
    assert "group nobody is not there" in pair.run(*pair.at("a", "groups", "describe", "nobody"), code=1).stderr
    pair.run(*pair.at("a", "groups", "reset-offsets", "nobody", "--topic", orders, "--to", "latest"))
    assert "nowhere" not in pair.topics("a")
    assert "nobody" not in [row["group"] for row in pair.json(*pair.at("a", "groups", "list"))]


REFUSED = {
    "topic twice": (("topics", "create", "{topic}"), 1, ("{topic}", "already exists")),
    "topic name": (("topics", "create", "a b"), 1, ("'a b'", "other than ASCII alphanumerics")),
    "no partitions": (("topics", "create", "none", "--partitions", "0"), 1, ("larger than 0",)),
    "config value": (("topics", "create", "none", "--config", "retention.ms=soon"), 1, ("retention.ms", "soon")),
    "config name": (("topics", "configs", "{topic}", "--set", "no.such=1"), 1, ("no.such",)),
    "config option": (("topics", "create", "none", "--config", "soon"), 2, ("--config 'soon'", "key=value")),
    "set option": (("topics", "configs", "{topic}", "--set", "soon"), 2, ("--set 'soon'", "key=value")),
    "fewer partitions": (("topics", "add-partitions", "{topic}", "1"), 1, ("currently has 2", "requested 1")),
    "no such topic": (("topics", "delete", "nowhere", "--yes"), 1, ("nowhere", "UNKNOWN_TOPIC_OR_PART")),
    "no time": (("topics", "offsets", "{topic}", "--at", "soon"), 2, ("--at 'soon'", "earliest, latest")),
    "no offset": (
        ("groups", "reset-offsets", "g", "--topic", "{topic}", "--to", "offset:x"),
        2,
        ("--to 'offset:x'", "offset:NUMBER"),
    ),
    "no such group": (("groups", "delete", "nobody", "--yes"), 1, ("nobody", "GROUP_ID_NOT_FOUND")),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_a_cluster_or_an_option_does_not_accept_is_named(pair: Pair, untouched: str, case: str) -> None:
    arguments, code, words = REFUSED[case]
    wanted = pair.at("a", *(argument.format(topic=untouched) for argument in arguments))
    complaint = pair.run(*wanted, code=code).stderr
    assert complaint.startswith("error: ")
    for word in words:
        assert word.format(topic=untouched) in complaint


def test_brokers_that_do_not_answer_and_addresses_that_are_none_are_named(pair: Pair) -> None:
    nobody = f"{LOOPBACK}:{free_port()}"
    complaint = pair.run("topics", "list", "-b", nobody, code=1).stderr
    assert f"no broker at {nobody} answers" in complaint
    complaint = pair.run("groups", "list", "-b", "nowhere", code=2).stderr
    assert "--bootstrap-server 'nowhere'" in complaint
    assert "host:port" in complaint


def test_a_group_is_shown_moved_and_forgotten(pair: Pair, orders: str) -> None:
    def at_a(*arguments: str) -> tuple[str, ...]:
        return pair.at("a", "groups", *arguments)

    librdkafka_consume(pair.sites.bootstrap("a"), orders, 60, group="board")
    assert {"group": "board", "state": "empty"} in pair.json(*at_a("list"))
    described = pair.json(*at_a("describe", "board"))
    (position,) = [row for row in described["partitions"] if row["partition"] == 0]
    assert position == {
        "topic": orders,
        "partition": 0,
        "committed": 60,
        "end_offset": 100,
        "lag": 40,
        "member": None,
    }
    assert "empty, 0 members, 40 records behind" in pair.run(*at_a("describe", "board")).stdout

    reset = ("reset-offsets", "board", "--topic", orders, "--to")
    assert "add --execute to do it" in pair.run(*at_a(*reset, "earliest")).stdout
    assert pair.json(*at_a("describe", "board"))["partitions"][0]["committed"] == 60
    for to, expected in (("earliest", 0), ("latest", 100), ("offset:30", 30), ("offset:999", 100), ("1000", 0)):
        moved = pair.json(*at_a(*reset, to, "--execute"))
        assert (moved["is_executed"], moved["offsets"]["0"]) == (True, expected)
    assert pair.json(*at_a("describe", "board"))["partitions"][0]["committed"] == 0
    assert pair.json(*at_a("delete", "board", "--yes")) == {"group": "board"}
    assert "board" not in [row["group"] for row in pair.json(*at_a("list"))]


def test_a_group_with_members_is_neither_moved_nor_forgotten(pair: Pair, orders: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": pair.sites.bootstrap("a"), "group.id": "living", "client.id": "reader"})
    try:
        consumer.subscribe([orders])
        eventually_sync(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2)
        described = pair.json(*pair.at("a", "groups", "describe", "living"))
        assert [member["client_id"] for member in described["members"]] == ["reader"]
        assert [row["member"] for row in described["partitions"]] == ["reader", "reader"]
        complaint = pair.run(*pair.at("a", "groups", "delete", "living", "--yes"), code=1).stderr
        assert "NON_EMPTY_GROUP" in complaint
        reset = ("groups", "reset-offsets", "living", "--topic", orders, "--to", "latest", "--execute")
        assert "living" in pair.run(*pair.at("a", *reset), code=1).stderr
    finally:
        consumer.close()


def test_what_cannot_be_undone_is_asked_about_first(pair: Pair, orders: str) -> None:
    for arguments in (
        pair.at("a", "topics", "delete", orders),
        pair.at("a", "groups", "delete", "board"),
        ("links", "delete", "a-b"),
        ("links", "confirm", "a-b", "--at", "a"),
    ):
        assert pair.sites.command(*arguments).returncode == 1
    pair.wait_listed(orders, 2)
    assert len(pair.json("links", "list")) == 2


def test_links_are_listed_and_described_as_each_site_sees_them(pair: Pair, orders: str) -> None:
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


def test_links_are_shown_in_a_line_each_by_the_sites_and_by_their_mirror(pair: Pair) -> None:
    pair.run(*pair.at("a", "topics", "create", "shown", "--partitions", "1"))
    eventually_sync(lambda: pair.json("links", "status")["links"][0]["mirror"] == "MIRRORING")
    eventually_sync(lambda: "MIRRORING" in pair.run("links", "status", "a-b").stdout)
    of_mirror = pair.json("links", "status", "a-b", "--mirror", pair.sites.document["mirrors"][0]["grpc"])
    assert (of_mirror["link"], of_mirror["state"], of_mirror["mode"]) == ("a-b", "MIRRORING", "exact")
    assert "no site knows of a link x-y" in pair.run("links", "status", "x-y", code=1).stderr


def test_whether_a_window_of_time_has_arrived_is_told_by_topic_and_waited_for(pair: Pair) -> None:
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


def test_a_running_link_is_made_to_wait_for_its_standby_and_no_longer(pair: Pair) -> None:
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


def test_a_link_or_a_site_that_is_not_known_is_named(pair: Pair) -> None:
    nobody = f"{LOOPBACK}:{free_port()}"
    assert "no link 'x-y'" in pair.run("links", "describe", "x-y", code=1).stderr
    assert "no link 'x-y'" in pair.run("links", "alter", "x-y", "--sync", "none", code=1).stderr
    assert "no link 'x-y'" in pair.run("links", "confirm", "x-y", "--at", "a", "--yes", code=1).stderr
    assert "--at 'z': accepted is one of a, b" in pair.run("links", "confirm", "a-b", "--at", "z", code=2).stderr
    assert "--site 'a' is not usable" in pair.run("links", "list", "--site", "a", code=2).stderr
    assert "no-such.json cannot be read" in pair.run("links", "list", "-e", "no-such.json", code=1).stderr
    (silent, _) = pair.json("links", "list", "--site", f"a={nobody}")
    assert nobody in silent["problem"]
    assert "Missing option" in pair.run("links", "create", "c-d", "--source", "a", code=2).stderr


def test_status_is_well_when_all_is_and_fails_with_the_reason_when_a_site_is_silent(pair: Pair) -> None:
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
    nobody = f"{LOOPBACK}:{free_port()}"
    silent = pair.json("status", "--site", f"b={nobody}", code=1)
    assert not silent["sites"]["b"]["is_reachable"]
    assert "site b does not answer" in silent["problems"][0]
    assert nobody in silent["problems"][0]
    assert "exclude each other" in pair.run("status", "--watch", "--output", "json", code=2).stderr


def test_whether_a_failover_would_lose_anything_is_checked_by_topic(pair: Pair) -> None:
    def is_ready() -> bool:
        assert pair.json("links", "check", "a-b", "--max-group-age-ms", "60000")["is_ready"]
        return True

    eventually_sync(is_ready)
    nobody = f"{LOOPBACK}:{free_port()}"
    unknown = pair.json("links", "check", "a-b", "--max-lag", "1000000", "--site", f"a={nobody}", code=1)
    assert (unknown["is_ready"], unknown["standby"]) == (False, "b")
    assert nobody in unknown["problems"][0]
    assert "'x-y'" in pair.run("links", "check", "x-y", code=1).stderr


def test_a_link_is_checked_before_it_is_made_and_a_dry_run_stores_nothing(pair: Pair) -> None:
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


def test_a_dry_run_of_a_failover_says_what_would_be_done_and_does_nothing(pair: Pair) -> None:
    planned = pair.json("failover", "a-b", "--to", "b", "--dry-run")
    assert planned["outcome"] == "planned"
    assert planned["planned_steps"] == ["prepare", "fence", "drain", "raise", "account", "promote", "notify"]
    assert "would do: prepare, fence, drain" in pair.run("failover", "a-b", "--to", "b", "--dry-run").stdout
    refused = pair.json("failover", "a-b", "--to", "a", "--dry-run", code=1)
    assert (refused["outcome"], "active for link a-b already" in refused["reason"]) == ("refused", True)
    assert "--to 'z': accepted is one of a, b" in pair.run("failover", "a-b", "--to", "z", code=2).stderr
    assert "no link 'x-y'" in pair.run("failover", "x-y", "--to", "b", code=1).stderr
    nobody = f"{LOOPBACK}:{free_port()}"
    assert nobody in pair.run("failover", "a-b", "--to", "b", "--site", f"b={nobody}", code=1).stderr
    for entry in pair.json("links", "list"):
        assert (entry["link"]["active_site"], entry["link"]["epoch"]) == ("a", 1)


def test_reconcile_ends_with_1_for_different_and_2_for_what_was_not_compared(pair: Pair) -> None:
    """With 0 for equal it ends in `test_pages.py`; by Spark with 1 in tests/spark."""
    pair.make_at_home("home-lights", b"on", b"off")
    a, b = pair.sites.bootstrap("a"), pair.sites.bootstrap("b")
    sides = ("--source", a, "--target", b, "--whitelist", "home-lights", "--settle-timeout-ms", "0")
    different = pair.json("reconcile", "--quick", *sides, "--out", "different", code=1)
    assert different["verdict"] == "different"
    (partition,) = different["partitions"]
    assert [(one["kind"], one["first_offset"], one["last_offset"]) for one in partition["differences"]] == [
        ("missing", 0, 1)
    ]
    pair.run(*pair.at("b", "quotas", "set", "--client-id", "only-at-b", "consumer_byte_rate=1048576"))
    beside = pair.json("reconcile", "--quick", "--beside-records", *sides, code=1)["beside_records"]
    assert [(one["kind"], one["name"], one["source"], one["target"]) for one in beside["differences"]] == [
        ("orphan topic", "home-lights", "1 partitions", None),
        ("client quota", "client-id only-at-b consumer_byte_rate", None, "1048576"),
    ]
    pair.run(*pair.at("b", "quotas", "remove", "--client-id", "only-at-b"))
    (topic,) = pair.json("reconcile", "--explain", *sides)["topics"]
    assert (topic["topic"], topic["mode"], topic["offsets"]) == ("home-lights", "headers", 2)
    assert topic["source_bytes"] > 61
    assert topic["target_bytes"] == 0
    assert "--watch compare digests" in pair.run("reconcile", *sides, "--watch", "--deep", code=2).stderr
    assert "--resume continues a run" in pair.run("reconcile", *sides, "--resume", code=2).stderr
    assert "link 'x-y' is not in the environment; there: a-b" in pair.run("reconcile", "--link", "x-y", code=2).stderr
    complaint = pair.run("reconcile", "--source", "x", "--target", b, code=2).stderr
    assert "--source 'x' is not usable" in complaint
    nobody = f"{LOOPBACK}:{free_port()}"
    away = pair.run("reconcile", "--source", nobody, "--target", b, code=2).stderr
    assert f"site source: no broker at {nobody} answers" in away
    assert "starting Spark" not in away, "an unreachable site is reported before"


def test_a_link_is_watched_by_partition_and_compared_beside_its_records(pair: Pair, orders: str) -> None:
    """The mirror carries configs and groups, so that nothing differs."""
    pair.run(*pair.at("a", "configs", "alter", "--topic", orders, "--set", "retention.ms=86400000"))
    pair.run(*pair.at("a", "consume", orders, "--group", orders, "--from-beginning", "--max-messages", "5"))

    def is_equal() -> bool:
        found = pair.json("reconcile", "--link", "a-b", "--quick", "--beside-records", "--whitelist", orders)
        assert found["beside_records"] == {"differences": [], "notes": []}
        return True

    eventually_sync(is_equal)
    port = free_port()
    listener = f"{LOOPBACK}:{port}"
    watched = ("reconcile", "--link", "a-b", "--watch", "--whitelist", orders, "--metrics-listener", listener)
    with pair.sites.running_command(*watched) as watch:

        def proven() -> dict[str, float]:
            try:
                with urllib.request.urlopen(f"http://{listener}/metrics", timeout=5) as page:
                    families = list(text_string_to_metric_families(page.read().decode()))
            except OSError as error:
                raise AssertionError("nothing is served yet") from error
            samples = [one for family in families for one in family.samples]
            found = {one.name: one.value for one in samples if one.labels == {"topic": orders, "partition": "0"}}
            assert found.get("antipode_verified_until_offset") == 100
            return found

        assert eventually_sync(proven)["antipode_verified_until_timestamp_seconds"] > 1_700_000_000
        watch.send_signal(signal.SIGINT)
        printed, _ = watch.communicate(timeout=30)
        assert watch.returncode == 0
        assert "equal until" in printed


def test_wrong_usage_ends_with_2_and_help_with_0(pair: Pair) -> None:
    assert "No such command" in pair.run("no-such-command", code=2).stderr
    assert "Invalid value for '--output'" in pair.run("status", "--output", "yaml", code=2).stderr
    assert "Example: antipode" in pair.run("topics", "create", "--help").stdout
    assert re.fullmatch(r"antipode \d+\.\d+.*\n", pair.run("--version").stdout)


def test_the_installed_command_is_the_same() -> None:
    installed = Path(sys.executable).with_name("antipode")
    ended = subprocess.run([installed, "--help"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert "failover" in ended.stdout
