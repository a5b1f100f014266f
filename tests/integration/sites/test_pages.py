"""The commands of the pages, run in the order of each page against sites of its own.

A command is a line of an indented block, or of a fence marked `sh` or `console`, that begins with
`antipode`, `curl` or `export`; a fence marked `sh no-run` is left out. The shell runs it as it
stands but for the addresses, which are those of these sites. `antipode up` is what starts the
sites, with the page's own options. Every command must end with 0; questions are answered with yes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.embedded.embedded_sites import REPOSITORY, EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

PAGES = (
    "README.md",
    *sorted(
        str(path.relative_to(REPOSITORY))
        for place in ("*.md", "pipelines/*.md")
        for path in (REPOSITORY / "docs").glob(place)
    ),
)
ADDRESSES = {"127.0.0.1:9092": "a", "127.0.0.1:9192": "b"}
"""What pages write, and the site that is meant."""
BRIDGE = "http://127.0.0.1:8082"
"""What pages write for the HTTP bridge."""
WITHIN_S = 400
LOOKS = ("antipode status", "antipode links check ", "antipode links complete ")
"""Their exit code says how things are at this moment: on a busy machine the reader looks again."""


@dataclass(frozen=True)
class Command:
    """One command and the heading under which it stands."""

    heading: str
    text: str


def commands(page: str) -> list[Command]:
    """The commands of a page in its order, continued lines joined."""
    found = []
    heading, fence, is_indented = "", None, False
    lines = iter((REPOSITORY / page).read_text(encoding="utf-8").splitlines())
    before = ""
    for line in lines:
        if line.startswith("```"):
            fence = line.removeprefix("```").strip() if fence is None else None
        elif fence is None and line.startswith("#"):
            heading = line.lstrip("# ")
        is_indented = fence is None and line.startswith("    ") and (is_indented or not before.strip())
        if is_indented or fence in ("sh", "console"):
            text = line.strip().removeprefix("$ ")
            while text.endswith("\\"):
                text = f"{text[:-1].rstrip()} {next(lines).strip()}"
            if text.startswith(("antipode ", "curl ", "export ")):
                found.append(Command(heading, text))
        before = line
    return found


def sites_wanted(text: str) -> list[str]:
    """The options of an `antipode up` that say which sites; where its output and data go is this
    test's business.
    """
    options = [option for option in shlex.split(text, comments=True) if option not in ("antipode", "up", "&")]
    for name in ("--dir", "--output", ">"):
        if name in options:
            position = options.index(name)
            del options[position : position + 2]
    return options


class Reader:
    """A person who follows a page in a directory. The repository's examples and the sites' files
    are at the paths that pages name.
    """

    def __init__(self, sites: EmbeddedSites, directory: Path) -> None:
        self.sites = sites
        self._directory = directory
        (directory / "out").mkdir(parents=True)
        (directory / "deploy").symlink_to(REPOSITORY / "deploy")
        (directory / "out" / "sites").symlink_to(sites.directory)
        (directory / "environment.json").symlink_to(sites.directory / "environment.json")
        commands_of_this_environment = Path(sys.executable).parent
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANTIPODE_ENV")},
            "PATH": f"{commands_of_this_environment}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
        }

    def follow(self, command: Command) -> None:
        """Do what the line says."""
        text = re.sub("|".join(map(re.escape, ADDRESSES)), lambda found: self.bootstrap(found[0]), command.text)
        if BRIDGE in text:
            text = text.replace(BRIDGE, self.sites.document["bridge"]["url"])
        if text.startswith("export "):
            name = text.removeprefix("export ").partition("=")[0]
            self._environment[name] = self._run(command, f'{text}\nprintf %s "${name}"')
            return
        if text.startswith(LOOKS):
            eventually_sync(lambda: [self._run(command, text)])
        else:
            self._run(command, text)

    def _run(self, command: Command, text: str) -> str:
        """The shell's output for the text."""
        ended = subprocess.run(
            ["bash", "-c", text],
            input="y\n",
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            cwd=self._directory,
            env=self._environment,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def bootstrap(self, address: str) -> str:
        """The site's real bootstrap address in place of the one that a page has."""
        return self.sites.bootstrap(ADDRESSES[address])


def topics_to_compare(reader: Reader) -> None:
    """Topics of the names that the page compares."""
    for topic in ("orders", "payments-eu"):
        reader.follow(Command("", f"antipode topics create {topic} --partitions 1 -b 127.0.0.1:9092"))
        records = [Record(value=b"%d" % number, partition=0) for number in range(100)]
        librdkafka_produce(reader.sites.bootstrap("a"), topic, records)


def a_group_that_has_read(reader: Reader) -> None:
    """The group of the page, with an offset in its topic."""
    reader.follow(Command("", "antipode topics create orders --partitions 1"))
    address = reader.sites.bootstrap("a")
    librdkafka_produce(address, "orders", [Record(value=b"%d" % number, partition=0) for number in range(100)])
    librdkafka_consume(address, "orders", 60, group="shipping")


def a_topic_with_records(reader: Reader) -> None:
    """The topic of the page, with records in partition 3."""
    reader.follow(Command("", "antipode topics create orders --partitions 4 -b 127.0.0.1:9092"))
    records = [Record(value=b"%d" % number, partition=3) for number in range(100)]
    librdkafka_produce(reader.sites.bootstrap("a"), "orders", records)


PREPARED: Mapping[tuple[str, str], Callable[[Reader], None]] = {
    ("docs/reconcile.md", "How to prove two sites equal"): topics_to_compare,
    ("docs/archive.md", "Archive"): topics_to_compare,
    ("docs/audit.md", "Count"): topics_to_compare,
    ("docs/repair.md", "How to heal two sites that differ"): topics_to_compare,
    ("docs/topics-and-groups.md", "Groups"): a_group_that_has_read,
    ("docs/configs.md", "Of a topic"): a_topic_with_records,
    ("docs/log-directories.md", "Deleting records"): a_topic_with_records,
    ("docs/transactions.md", "Commands"): a_topic_with_records,
}
"""What must be there before the first command under a heading."""
MOST_OF_SPARK = (
    "docs/archive.md",
    "docs/audit.md",
    "docs/reconcile.md",
    *(page for page in PAGES if page.startswith("docs/pipelines/")),
)
"""Pages of which each command starts a Spark session; `tests/spark` runs the same jobs in one."""
COVERED = (
    "docs/arbiter.md",
    "docs/clients.md",
    "docs/configs.md",
    "docs/log-directories.md",
    "docs/partitions.md",
    "docs/quotas.md",
    "docs/site-failures.md",
    "docs/topics-and-groups.md",
)
"""Pages of commands that the tests of these commands run already, at brokers or at a pair."""


def _is_up(command: Command) -> bool:
    return command.text.startswith("antipode up")


@pytest.fixture(
    params=[
        pytest.param(page, marks=[pytest.mark.long] if page in MOST_OF_SPARK + COVERED else [])
        for page in PAGES
        if commands(page)
    ]
)
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def reader(page: str, start_sites: SitesStarter, tmp_path: Path) -> Reader:
    """A reader whose sites run as the page says, or as `antipode up` alone makes them."""
    if any(command.text.startswith("curl ") for command in commands(page)) and shutil.which("curl") is None:
        pytest.skip("the page is for people who have curl")
    options = [sites_wanted(command.text) for command in commands(page) if _is_up(command)]
    return Reader(start_sites(*(options[0] if options else ())), tmp_path / "reader")


def test_the_commands_of_a_page_do_what_it_says(page: str, reader: Reader) -> None:
    headings: set[str] = set()
    for command in commands(page):
        if command.heading not in headings and (page, command.heading) in PREPARED:
            PREPARED[page, command.heading](reader)
        headings.add(command.heading)
        if not _is_up(command):
            reader.follow(command)


def test_every_preparation_belongs_to_a_heading_with_commands() -> None:
    assert all(heading in {command.heading for command in commands(page)} for page, heading in PREPARED)


def test_commands_are_found_in_indented_blocks_and_marked_fences_only() -> None:
    found = {page: [command.text for command in commands(page)] for page in PAGES}
    assert "antipode switchover a-b --to b" in found["docs/failover.md"]
    assert "antipode links confirm a-b --at a" in found["docs/failover.md"]
    assert not any("example.org" in text for texts in found.values() for text in texts)
    assert not any("spark-submit" in text for texts in found.values() for text in texts)
