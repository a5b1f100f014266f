"""Embedded sites are decided before anything is started: names, ports, ids and proxies."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.embedding.layout_plan import Wishes, check, plan, ports_needed
from cli.embedding.part_properties import broker_properties, mirror_properties


def _wishes(**fields: object) -> Wishes:
    return Wishes(**{"sites": ("a", "b"), "brokers": 2, "directory": Path("sites"), **fields})  # type: ignore[arg-type]


def _ports(wishes: Wishes) -> range:
    return range(20_000, 20_000 + ports_needed(wishes))


def test_every_address_is_used_once() -> None:
    wishes = _wishes(sites=("a", "b", "c"), has_bridge=True)
    layout = plan(wishes, _ports(wishes))
    addresses = [
        layout.toxiproxy,
        *(site.zookeeper for site in layout.sites),
        *(proxy.listen for proxy in layout.proxies),
    ]
    addresses += [
        address for site in layout.sites for b in site.brokers for address in (b.client, b.link, b.grpc, b.metrics)
    ]
    addresses += [address for mirror in layout.mirrors for address in (mirror.grpc, mirror.metrics)]
    assert layout.bridge is not None
    addresses += [layout.bridge.http, layout.bridge.metrics]
    assert len(addresses) == len(set(addresses)) == ports_needed(wishes)


def test_node_ids_are_in_a_range_for_each_site() -> None:
    wishes = _wishes()
    layout = plan(wishes, _ports(wishes))
    assert [[broker.node_id for broker in site.brokers] for site in layout.sites] == [[1, 2], [1001, 1002]]


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (4, "3", "2")])
def test_internal_topics_want_no_more_copies_than_a_site_has_brokers(brokers: int, replicas: str, in_sync: str) -> None:
    wishes = _wishes(brokers=brokers)
    (site, _other) = plan(wishes, _ports(wishes)).sites
    properties = broker_properties(site, site.brokers[0])
    assert properties["offsets.topic.replication.factor"] == replicas
    assert properties["transaction.state.log.replication.factor"] == replicas
    assert properties["transaction.state.log.min.isr"] == in_sync


def test_the_other_site_is_reached_through_proxies() -> None:
    wishes = _wishes(brokers=1)
    layout = plan(wishes, _ports(wishes))
    (broker,) = layout.sites[0].brokers
    listen = {proxy.upstream: proxy.listen for proxy in layout.proxies}
    assert listen[broker.link] == broker.link_advertised
    assert listen[broker.grpc] == broker.grpc_advertised
    assert broker_properties(layout.sites[0], broker)["advertised.listeners"] == (
        f"CLIENT://{broker.client},LINK://{broker.link_advertised}"
    )
    assert mirror_properties(layout.mirrors[0])["source.bootstrap.servers"] == broker.link_advertised


def test_without_proxies_addresses_are_direct() -> None:
    wishes = _wishes(has_proxy=False)
    layout = plan(wishes, _ports(wishes))
    assert layout.toxiproxy is None
    assert not layout.proxies
    assert all(broker.link == broker.link_advertised for site in layout.sites for broker in site.brokers)


def test_the_bridge_knows_every_site_of_a_link_and_one_that_is_alone() -> None:
    wishes = _wishes(brokers=1, has_bridge=True)
    layout = plan(wishes, _ports(wishes))
    assert layout.bridge is not None
    assert layout.bridge.bootstrap_servers == ",".join(site.bootstrap_servers for site in layout.sites)
    alone = plan(_wishes(brokers=1, has_bridge=True, has_link=False), _ports(wishes))
    assert alone.bridge is not None
    assert alone.bridge.bootstrap_servers == alone.sites[0].bootstrap_servers


def test_each_link_has_a_mirror_in_each_direction() -> None:
    wishes = _wishes(sites=("a", "b", "c"), brokers=1)
    layout = plan(wishes, _ports(wishes))
    assert [link.name for link in layout.links] == ["a-b", "a-c"]
    assert [(mirror.name, mirror.link, mirror.target.name) for mirror in layout.mirrors] == [
        ("a-b", "a-b", "b"),
        ("b-a", "a-b", "a"),
        ("a-c", "a-c", "c"),
        ("c-a", "a-c", "a"),
    ]
    back = mirror_properties(layout.mirrors[1])
    a, b = (site.brokers[0] for site in layout.sites[:2])
    assert (back["link.name"], back["site.agents"], back["source.bootstrap.servers"]) == (
        "a-b",
        a.grpc,
        b.link_advertised,
    )


def test_without_a_link_there_is_no_mirror() -> None:
    wishes = _wishes(has_link=False)
    assert not plan(wishes, _ports(wishes)).mirrors


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sites": ()}, "--sites"),
        ({"sites": ("a", "a")}, "once"),
        ({"sites": ("a b",)}, "letters, digits"),
        ({"brokers": 0}, "--brokers 0: accepted are 1 to 100"),
    ],
)
def test_a_wish_that_cannot_be_met_is_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(_wishes(**fields), whitelist=[".*"], blacklist=[])


def test_sites_with_two_standbys_are_not_both_failed_over_without_a_person() -> None:
    three = _wishes(sites=("a", "b", "c"))
    with pytest.raises(
        ValueError, match=r"b and c could be promoted at the same time; accepted are observe and manual"
    ):
        check(three, whitelist=[".*"], blacklist=[], is_failover_automatic=True)
    check(three, whitelist=[".*"], blacklist=[])
    check(_wishes(), whitelist=[".*"], blacklist=[], is_failover_automatic=True)


def test_a_wrong_filter_is_named() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        check(_wishes(), whitelist=["["], blacklist=[])
