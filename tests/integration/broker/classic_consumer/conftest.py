"""Fixture: a site with ZooKeeper for classic consumers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clients.classic_consumers import Site
from tests.support.processes.processes import Processes
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.site_node import SiteNode


@pytest.fixture(scope="module")
def site(
    session_processes: Processes, zookeeper_server: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """One site for the module."""
    connect = zookeeper_server.new_chroot("consumers")
    node = SiteNode(session_processes, tmp_path_factory.mktemp("classic"), connect, 1001)
    node.wait_ready()
    yield Site(node, connect)
    node.process.kill()
