"""Commands refuse what they cannot do: one message that names the option or the thing, its value,
and what is accepted; exit code 1 for a failure, 2 for wrong usage.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.embedded.command_pair import CommandPair
from tests.support.processes.ports import LOOPBACK, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

REFUSED = {
    "topic twice": (("topics", "create", "{topic}"), 1, ("{topic}", "already exists")),
    "topic name": (("topics", "create", "a b"), 1, ("'a b'", "other than ASCII alphanumerics")),
    "no partitions": (("topics", "create", "none", "--partitions", "0"), 1, ("0 new partitions", "1 to 20000")),
    "too many partitions": (("topics", "create", "none", "--partitions", "99999999"), 2, ("none", "1..100000")),
    "too many replicas": (("topics", "create", "none", "--replication-factor", "99999"), 2, ("none", "10000")),
    "too many more": (("topics", "add-partitions", "{topic}", "99999999"), 2, ("{topic}", "1..100000")),
    "config value": (("topics", "create", "none", "--config", "retention.ms=soon"), 1, ("retention.ms", "soon")),
    "config name": (("topics", "configs", "{topic}", "--set", "no.such=1"), 1, ("no.such",)),
    "config option": (("topics", "create", "none", "--config", "soon"), 2, ("--config 'soon'", "key=value")),
    "set option": (("topics", "configs", "{topic}", "--set", "soon"), 2, ("--set 'soon'", "key=value")),
    "fewer partitions": (("topics", "add-partitions", "{topic}", "1"), 1, ("partitions=1", "more than the 2")),
    "no such topic": (("topics", "delete", "nowhere", "--yes"), 1, ("topic nowhere", "antipode topics list")),
    "no time": (("topics", "offsets", "{topic}", "--at", "soon"), 2, ("--at 'soon'", "earliest, latest")),
    "time before 1970": (
        # In ListOffsets -1 ms is the end of the log: everything would be deleted.
        ("topics", "delete-records", "{topic}", "--before", "1969-12-31T23:59:59.999Z", "--yes"),
        2,
        ("--before '1969-12-31T23:59:59.999Z'", "Unix milliseconds"),
    ),
    "time after all years": (("topics", "offsets", "{topic}", "--at", "9" * 20), 2, ("--at '999", "Unix milliseconds")),
    "too large an offset": (
        ("topics", "delete-records", "{topic}", "--partition", "0", "--before", "9" * 20, "--yes"),
        2,
        ("--before '999", "from 0 to"),
    ),
    "no offset": (
        ("groups", "reset-offsets", "g", "--topic", "{topic}", "--to", "offset:x"),
        2,
        ("--to 'offset:x'", "offset:NUMBER"),
    ),
    "no such group": (("groups", "delete", "missing", "--yes"), 1, ("missing", "GROUP_ID_NOT_FOUND")),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_the_refusal_names_the_value_that_is_not_accepted(pair: CommandPair, untouched: str, case: str) -> None:
    arguments, code, words = REFUSED[case]
    wanted = pair.at("a", *(argument.format(topic=untouched) for argument in arguments))
    complaint = pair.run(*wanted, code=code).stderr
    assert complaint.startswith("error: ")
    for word in words:
        assert word.format(topic=untouched) in complaint


def test_the_refusal_names_a_silent_broker_and_an_invalid_address(pair: CommandPair) -> None:
    silent_address = f"{LOOPBACK}:{free_port()}"
    complaint = pair.run("topics", "list", "-b", silent_address, code=1).stderr
    assert f"no broker at {silent_address} answers" in complaint
    complaint = pair.run("groups", "list", "-b", "nowhere", code=2).stderr
    assert "--bootstrap-server 'nowhere'" in complaint
    assert "host:port" in complaint


def test_commands_that_cannot_be_undone_ask_first(pair: CommandPair, orders: str) -> None:
    for arguments in (
        pair.at("a", "topics", "delete", orders),
        pair.at("a", "groups", "delete", "board"),
        ("links", "delete", "a-b"),
        ("links", "confirm", "a-b", "--at", "a"),
    ):
        assert pair.sites.command(*arguments).returncode == 1
    pair.wait_listed(orders, 2)
    assert len(pair.json("links", "list")) == 2


def test_the_refusal_names_an_unknown_link_or_site(pair: CommandPair) -> None:
    silent_address = f"{LOOPBACK}:{free_port()}"
    assert "no link 'x-y'" in pair.run("links", "describe", "x-y", code=1).stderr
    assert "no link 'x-y'" in pair.run("links", "alter", "x-y", "--sync", "none", code=1).stderr
    assert "no link 'x-y'" in pair.run("links", "confirm", "x-y", "--at", "a", "--yes", code=1).stderr
    assert "--at 'z': accepted is one of a, b" in pair.run("links", "confirm", "a-b", "--at", "z", code=2).stderr
    assert "--site 'a' is not usable" in pair.run("links", "list", "--site", "a", code=2).stderr
    assert "no-such.json cannot be read" in pair.run("links", "list", "-e", "no-such.json", code=1).stderr
    (silent, _) = pair.json("links", "list", "--site", f"a={silent_address}")
    assert silent_address in silent["problem"]
    assert "Missing option" in pair.run("links", "create", "c-d", "--source", "a", code=2).stderr


def test_wrong_usage_exits_with_2_and_help_with_0(pair: CommandPair) -> None:
    assert "No such command" in pair.run("no-such-command", code=2).stderr
    assert "Invalid value for '--output'" in pair.run("status", "--output", "yaml", code=2).stderr
    assert "Example: antipode" in pair.run("topics", "create", "--help").stdout
    assert re.fullmatch(r"antipode \d+\.\d+.*\n", pair.run("--version").stdout)


def test_the_installed_command_is_the_same() -> None:
    installed = Path(sys.executable).with_name("antipode")
    ended = subprocess.run([installed, "--help"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert "failover" in ended.stdout
