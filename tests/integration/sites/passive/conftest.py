"""Fixtures: one pair of sites for all tests of this folder, and topics at it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.embedded.command_pair import AT_HOME
from tests.support.embedded.embedded_sites import SitesStarter
from tests.support.embedded.passive_site import PassiveSite
from tests.support.eventually import eventually_sync


@pytest.fixture(scope="session")
def passive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PassiveSite]:
    """The session's pair; leave it running and connected."""
    starter = SitesStarter(tmp_path_factory.mktemp("passive"))
    try:
        yield PassiveSite(starter("--blacklist", AT_HOME))
    finally:
        starter.end_all()


@pytest.fixture
def topic(passive: PassiveSite, request: pytest.FixtureRequest) -> str:
    """A topic of one partition that is at both sites."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    passive.create(name)
    eventually_sync(lambda: passive.has_copy(name))
    return str(name)
