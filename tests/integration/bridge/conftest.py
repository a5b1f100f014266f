"""Fixtures: a site with an HTTP bridge beside it for the session, and bridges with other settings
for one test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.http_bridge import BridgeClient, HttpBridge
from tests.support.processes.processes import Processes


@pytest.fixture(scope="session")
def bridged_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSites]:
    """One site from `antipode up --bridge`; leave it running."""
    starter = SitesStarter(tmp_path_factory.mktemp("bridged"))
    try:
        yield starter("--sites", "a", "--no-link", "--no-proxy", "--bridge")
    finally:
        starter.end_all()


@pytest.fixture
def bootstrap(bridged_site: EmbeddedSites) -> str:
    """The address that native clients of the site connect to."""
    return bridged_site.bootstrap("a")


@pytest.fixture
def bridge(bridged_site: EmbeddedSites) -> Iterator[BridgeClient]:
    """A client of the site's bridge."""
    client = BridgeClient(bridged_site.document["bridge"]["url"])
    with client.http:
        yield client


@pytest.fixture
def start_bridge(processes: Processes, tmp_path: Path, bootstrap: str) -> Iterator[Callable[..., HttpBridge]]:
    """Starts a bridge of the test's own; settings with underscores for dots."""
    with ExitStack() as clients:

        def start(**settings: str) -> HttpBridge:
            bridge = HttpBridge(processes, tmp_path / "bridge", bootstrap, **settings)
            clients.callback(bridge.http.close)
            return bridge

        yield start
