"""The environments of the matrix: a lone broker, a site of three, and a routed pair whose clients
know both sites or only the standby.

Each starts by the front door (`antipode up`). Apache Kafka is one of the environments, for authors
of checks: a check that fails there is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from deploy.apache_kafka import ApacheKafkaServer
from deploy.ports import free_ports
from runtime.children import Child
from tests.compatibility.site import Site
from tests.support.embedded.embedded_sites import EmbeddedSites
from tests.support.eventually import eventually_sync
from wire.client.raw_client import KafkaClient, call_client

READY_WITHIN_MS = 60_000


class Environment(StrEnum):
    """The kind of cluster that a cell is tried at."""

    LONE = "lone broker"
    THREE = "three brokers"
    PAIR = "routed pair"
    STANDBY = "standby of the pair"
    KAFKA = "Apache Kafka"


PUBLISHED = (Environment.LONE, Environment.THREE, Environment.PAIR, Environment.STANDBY)
"""Those that the page shows."""
SLOW = (Environment.THREE, Environment.STANDBY)
"""For rows that take a minute and more: the site with replicas, and the standby alone, where most
could go wrong.
"""
_TOGETHER: tuple[tuple[Environment, ...], ...] = (
    (Environment.LONE,),
    (Environment.THREE,),
    (Environment.PAIR, Environment.STANDBY),
    (Environment.KAFKA,),
)
"""Those that share their processes."""


def each(wanted: Collection[Environment], directory: Path) -> Iterator[tuple[Environment, Site]]:
    """One environment after the other, each ready; its processes end when the next one is
    requested.
    """
    for number, group in enumerate(_TOGETHER):
        needed = [environment for environment in group if environment in wanted]
        if not needed:
            continue
        folder = directory / str(number)
        (folder / "clients").mkdir(parents=True)
        if group == (Environment.KAFKA,):
            with apache_kafka(folder) as site:
                yield Environment.KAFKA, site
        elif Environment.PAIR in group:
            with pair(folder) as sites:
                for environment in needed:
                    yield environment, sites[environment]
        else:
            with lone_site(folder, brokers=1 if group == (Environment.LONE,) else 3) as site:
                yield needed[0], site


@contextmanager
def lone_site(directory: Path, *, brokers: int) -> Iterator[Site]:
    """A site of so many brokers without a link, everything of it under `directory`, ended with the
    block.
    """
    with _running(directory, "--sites", "a", "--brokers", str(brokers), "--no-link", "--no-proxy") as sites:
        yield Site(sites.bootstrap("a"), _scratch(directory), replication_factor=brokers)


@contextmanager
def pair(directory: Path) -> Iterator[dict[Environment, Site]]:
    """A routed pair of a broker each; clients know both sites (PAIR) or the passive one alone
    (STANDBY).
    """
    with _running(directory, "--sites", "a,b", "--brokers", "1", "--no-proxy") as sites:
        active, passive = sites.bootstrap("a"), sites.bootstrap("b")
        eventually_sync(lambda: all(_broker_count(servers) == 2 for servers in (active, passive)), READY_WITHIN_MS)
        scratch = _scratch(directory)
        yield {
            Environment.PAIR: Site(f"{passive},{active}", scratch, home_servers=active),
            Environment.STANDBY: Site(passive, scratch, home_servers=active),
        }


@contextmanager
def apache_kafka(directory: Path) -> Iterator[Site]:
    """One broker of Apache Kafka."""
    port, controller_port = free_ports(2)
    server = ApacheKafkaServer(name="kafka", directory=directory, port=port, controller_port=controller_port)
    server.format()
    child: Child = server.child()
    child.start()
    try:
        eventually_sync(server.is_serving, READY_WITHIN_MS)
        yield Site(server.bootstrap_servers, _scratch(directory))
    finally:
        child.stop()


@contextmanager
def _running(directory: Path, *arguments: str) -> Iterator[EmbeddedSites]:
    sites = EmbeddedSites(directory / "site", *arguments)
    try:
        sites.start_and_wait()
        yield sites
        sites.stop()
    finally:
        sites.end()


def _scratch(directory: Path) -> Path:
    scratch = directory / "clients"
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


def _broker_count(servers: str) -> int:
    async def ask(client: KafkaClient) -> int:
        return len((await client.metadata()).brokers)

    return call_client(servers, ask)
