"""Fixtures: one pair of sites for all tests of this folder, and topics at it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.embedded.command_pair import AT_HOME, CommandPair
from tests.support.embedded.embedded_sites import SitesStarter


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandPair]:
    """The session's pair of sites; leave it running."""
    starter = SitesStarter(tmp_path_factory.mktemp("commands"))
    try:
        yield CommandPair(starter("--blacklist", AT_HOME))
    finally:
        starter.end_all()


@pytest.fixture(scope="session")
def untouched(pair: CommandPair) -> str:
    """A topic of two partitions, for commands that are refused."""
    pair.run(*pair.at("a", "topics", "create", "untouched", "--partitions", "2"))
    return "untouched"


@pytest.fixture
def orders(pair: CommandPair) -> str:
    """A topic of two partitions, the first with 100 records."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    pair.run(*pair.at("a", "topics", "create", name, "--partitions", "2"))
    pair.produce(name, 100)
    return name
