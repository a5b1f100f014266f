"""`antipode reconcile` on a pair of sites: exit code 0 for equal, 1 for different, 2 for not
compared.
"""

from __future__ import annotations

import signal
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.embedded.command_pair import CommandPair
from tests.support.eventually import eventually_sync
from tests.support.processes.ports import LOOPBACK, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_reconcile_exits_with_1_for_different_and_2_for_not_compared(pair: CommandPair) -> None:
    """`test_pages.py` covers exit code 0 (equal), and tests/spark covers 1 by Spark."""
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
    assert "--watch compare digests" in pair.run("reconcile", *sides, "--watch", "--limit", "1", code=2).stderr
    assert "--watch opens no batches" in pair.run("reconcile", *sides, "--watch", "--deep", code=2).stderr
    assert "--resume continues a run" in pair.run("reconcile", *sides, "--resume", code=2).stderr
    assert "link 'x-y' is not in the environment; there: a-b" in pair.run("reconcile", "--link", "x-y", code=2).stderr
    complaint = pair.run("reconcile", "--source", "x", "--target", b, code=2).stderr
    assert "--source 'x' is not usable" in complaint
    silent_address = f"{LOOPBACK}:{free_port()}"
    away = pair.run("reconcile", "--source", silent_address, "--target", b, code=2).stderr
    assert f"site source: no broker at {silent_address} answers" in away
    assert "starting Spark" not in away, "an unreachable site is reported before"


def test_reconcile_watches_a_link_and_compares_what_is_beside_its_records(pair: CommandPair, orders: str) -> None:
    """The mirror carries configs and groups, so that nothing differs; topics that the link leaves
    out are not compared.
    """
    pair.make_at_home("home-lamps", b"on")
    compared = {one["topic"] for one in pair.json("reconcile", "--link", "a-b", "--explain")["topics"]}
    assert orders in compared
    assert not any(topic.startswith("home-") for topic in compared)
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
