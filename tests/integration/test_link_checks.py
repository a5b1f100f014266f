"""Obstacles to a link are reported before any part of it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.credentials.authority import make_authority
from dr.links.administration import check_link, create_link, list_links
from dr.links.core.link_preflight import LinkCheck, Outcome
from dr.links.readiness import check_readiness
from runtime.process import OperationalFailure
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LinkedSites
from tests.support.processes.processes import Processes
from tests.support.security.identities import HOSTS, Identities
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = pytest.mark.integration


@pytest.fixture
async def sites(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> AsyncIterator[LinkedSites]:
    """New topics of the target need three brokers, and the target has one."""
    properties = {"b": {"default.replication.factor": "3"}}
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect, properties=properties)
    yield pair
    await pair.channels.close()


@pytest.fixture
async def even_sites(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> AsyncIterator[LinkedSites]:
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect)
    yield pair
    await pair.channels.close()


async def make(bootstrap: str, name: str, **configs: str) -> None:
    async with KafkaClient(bootstrap) as client:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name=name, partition_count=2, replication_factor=1, configs=dotted)
        (outcome,) = await client.create_topics([topic])
        assert not outcome.error_code, outcome


async def checks_of(sites: LinkedSites, *, topics: tuple[str, ...] = (".*",), mirror: str = "") -> dict[str, LinkCheck]:
    spec = sites.spec(topics=topics)
    checked = await check_link(spec, source=sites.client("a"), target=sites.client("b"), mirror=mirror)
    return {check.check: check for check in checked.checks}


async def checks_when(
    sites: LinkedSites, check: str, outcome: Outcome, *, topics: tuple[str, ...] = (".*",)
) -> dict[str, LinkCheck]:
    """The checks after one of them has this result: agents learn of new topics a moment later."""
    found = await checks_of(sites, topics=topics)
    assert found[check].outcome is outcome, found
    return found


async def test_replication_that_the_target_cannot_give_keeps_a_link_from_being_made(sites: LinkedSites) -> None:
    """F15, for a source with topics and for one without."""
    before = (await checks_of(sites))["replication factor"]
    await make(sites.a.bootstrap, "flights")
    assert (await checks_of(sites))["replication factor"] == before
    assert before.outcome is Outcome.REFUSED
    assert "Replication factor: 3 larger than available brokers: 1" in before.detail
    with pytest.raises(OperationalFailure, match=r"default\.replication\.factor of b cannot be used") as refused:
        await create_link(sites.spec(), source=sites.client("a"), target=sites.client("b"))
    assert "Accepted is 1 to 1" in str(refused.value)
    assert await list_links([sites.client("a"), sites.client("b")]) == []


async def test_a_link_is_checked_before_it_is_made_and_afterwards(even_sites: LinkedSites) -> None:
    sites = even_sites
    await make(sites.a.bootstrap, "flights", min_insync_replicas="2")
    found = await eventually(lambda: checks_when(sites, "in-sync replicas", Outcome.WARNING))
    assert {name: check.outcome for name, check in found.items()} == {
        "record": Outcome.OK,
        "sites": Outcome.OK,
        "versions": Outcome.OK,
        "links": Outcome.OK,
        "groups": Outcome.OK,
        "topic ids": Outcome.OK,
        "replication factor": Outcome.OK,
        "topics": Outcome.OK,
        "in-sync replicas": Outcome.WARNING,
        "principals": Outcome.OK,
        "listeners": Outcome.OK,
        "certificates": Outcome.OK,
        "mirror": Outcome.WARNING,
    }
    assert "flights (2)" in found["in-sync replicas"].detail
    silent = (await checks_of(sites, mirror="127.0.0.1:1"))["mirror"]
    assert "none answers at 127.0.0.1:1" in silent.detail
    for site in (sites.a, sites.b):
        await make(site.bootstrap, "boards")
    refused = await eventually(lambda: checks_when(sites, "topic ids", Outcome.REFUSED, topics=("boards",)))
    clash = refused["topic ids"]
    assert "at b boards exist as other topics of the same name" in clash.detail
    await sites.link(topics=("flights",))
    ready = await check_readiness("a-b", [sites.client("a"), sites.client("b")])
    after = {check.check: check for check in ready.checks}
    assert after["topics"].outcome is Outcome.OK, after
    assert after["versions"].outcome is Outcome.OK
    assert (after["mirror"].outcome, after["mirror"].detail) == (Outcome.WARNING, "no report yet at the standby")


async def test_clients_that_the_standby_would_lock_out_are_named_before_a_failover(
    processes: Processes, tmp_path: Path, zookeeper_connect: str
) -> None:
    """Another authority, another rule for principals, a certificate that ends soon: both before the
    link is made and afterwards.
    """
    properties = {
        name: secured_by(Identities(tmp_path / f"of-{name}", authority=make_authority(f"authority of {name}")), days)
        for name, days in (("a", 300), ("b", 5))
    }
    properties["b"]["listener.name.client.ssl.principal.mapping.rules"] = "RULE:^CN=(.*)$/$1/L"
    sites = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect, properties=properties)
    try:
        before = await check_link(sites.spec(), source=sites.client("a"), target=sites.client("b"))
        await sites.link()
        after = await check_readiness("a-b", [sites.client("a"), sites.client("b")])
    finally:
        await sites.channels.close()
    for checks in (before.checks, after.checks):
        warned = [check.detail for check in checks if check.check in ("listeners", "certificates")]
        assert all(check.outcome is not Outcome.REFUSED for check in checks), checks
        listeners = "listener CLIENT of b "
        assert f"{listeners}does not trust CN=authority of a, whose clients may connect to a" in warned
        rules = f"{listeners}maps certificates to other principals: ssl.principal.mapping.rules is "
        assert f"{rules}'RULE:^CN=(.*)$/$1/L' there and 'DEFAULT' at a" in warned
        issued = (
            "the certificate of listener CLIENT of b is issued by CN=authority of b, that of a by CN=authority of a"
        )
        assert any(detail.startswith(issued) for detail in warned)
        assert any(detail.startswith("the certificate of listener CLIENT of b ends at ") for detail in warned)
        assert len(warned) == 4, warned


def secured_by(identities: Identities, days: int) -> dict[str, str]:
    """A listener for clients that demands certificates of this authority."""
    own = identities.directory / "broker.pem"
    own.write_text(identities.authority.issue(common_name="broker", hosts=HOSTS, days=days))
    return {
        "listener.security.protocol.map": "CLIENT:SSL,LINK:PLAINTEXT",
        "inter.broker.listener.name": "LINK",
        "listener.name.client.ssl.keystore.location": str(own),
        "listener.name.client.ssl.truststore.location": str(identities.trusted),
        "listener.name.client.ssl.client.auth": "required",
    }
