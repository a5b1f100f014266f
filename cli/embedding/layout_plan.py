"""Assigns free ports to the parts of embedded sites. Pure: the same wishes and ports give the same
layout, so sites can be started again from their directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.embedding.site_layout import (
    ArbiterLayout,
    BridgeLayout,
    BrokerLayout,
    Layout,
    LinkLayout,
    MirrorLayout,
    ProxyLayout,
    SecurityLayout,
    SiteLayout,
)
from wire.rules.links import InvalidPattern, matches

HOST = "127.0.0.1"


NODE_IDS_PER_SITE = 1000


PORTS_PER_BROKER = 6
"""CLIENT, LINK, gRPC and metrics listeners, and the proxies in front of LINK and gRPC."""


PORTS_PER_SITE = 1


PORTS_SHARED = 3
"""The ports of toxiproxy, and of the bridge for HTTP and metrics."""


MIRRORS_PER_LINK = 2


ARBITER_KIND = "arbiter"
"""The kind of a proxy between a site and the arbiter."""


PORTS_PER_MIRROR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The user's choices."""

    sites: tuple[str, ...]
    brokers: int
    directory: Path
    has_proxy: bool = True
    has_link: bool = True
    has_bridge: bool = False
    has_arbiter: bool = False
    is_secure: bool = False


def ports_needed(wishes: Wishes) -> int:
    """The number of free ports that `plan` needs."""
    per_site = PORTS_PER_SITE + wishes.brokers * PORTS_PER_BROKER
    links = max(len(wishes.sites) - 1, 0)
    arbiter = 1 + len(wishes.sites) if wishes.has_arbiter else 0
    return PORTS_SHARED + len(wishes.sites) * per_site + links * MIRRORS_PER_LINK * PORTS_PER_MIRROR + arbiter


def check(
    wishes: Wishes, *, whitelist: Sequence[str], blacklist: Sequence[str], is_failover_automatic: bool = False
) -> None:
    """ValueError names the option that cannot be met and what would be accepted."""
    names = wishes.sites
    if not names or any(not name.isidentifier() or len(name) > 32 for name in names):
        raise ValueError(f"--sites {','.join(names)!r}: accepted are comma-separated names of letters, digits and _")
    if len(set(names)) != len(names):
        raise ValueError(f"--sites {','.join(names)!r}: each name may appear once")
    if not 1 <= wishes.brokers <= 100:
        raise ValueError(f"--brokers {wishes.brokers}: accepted are 1 to 100 for each site")
    if is_failover_automatic and wishes.has_link and len(names) > 2:
        raise ValueError(
            f"--failover automatic with --sites {','.join(names)!r}: {' and '.join(names[1:])} could be promoted at the "
            "same time; accepted are observe and manual, or two sites"
        )
    given = [("--whitelist", pattern) for pattern in whitelist] + [("--blacklist", pattern) for pattern in blacklist]
    for option, pattern in given:
        try:
            matches("", whitelist=(pattern,), blacklist=())
        except InvalidPattern as error:
            raise ValueError(f"{option}: {error}; accepted are comma-separated regular expressions") from error


def plan(wishes: Wishes, ports: Sequence[int]) -> Layout:
    """Lay the sites out over the ports (`ports_needed` of them)."""
    free = iter(ports)
    toxiproxy = _address(free)
    sites = tuple(_site(wishes, name, number, free) for number, name in enumerate(wishes.sites))
    links = tuple(_link(sites[0], target) for target in sites[1:])
    mirrors = tuple(
        _mirror(wishes, link.name, source, target, free)
        for link in links
        for source, target in ((link.source, link.target), (link.target, link.source))
    )
    bridge = _bridge(wishes, sites, free)
    arbiter = _arbiter(wishes, free) if wishes.has_arbiter else None
    proxies = [*_proxies(sites), *(_arbiter_proxies(arbiter) if arbiter is not None else ())]
    return Layout(
        directory=wishes.directory,
        toxiproxy=toxiproxy if wishes.has_proxy else None,
        sites=sites,
        links=links if wishes.has_link else (),
        mirrors=mirrors if wishes.has_link else (),
        proxies=tuple(proxies) if wishes.has_proxy else (),
        bridge=bridge if wishes.has_bridge else None,
        arbiter=arbiter,
        security=SecurityLayout(directory=wishes.directory / "security") if wishes.is_secure else None,
    )


def _address(free: Iterator[int]) -> str:
    return f"{HOST}:{next(free)}"


def _site(wishes: Wishes, name: str, number: int, free: Iterator[int]) -> SiteLayout:
    directory = wishes.directory / "sites" / name
    return SiteLayout(
        name=name,
        number=number,
        directory=directory,
        zookeeper=_address(free),
        brokers=tuple(_broker(wishes, directory, number, index, free) for index in range(1, wishes.brokers + 1)),
    )


def _broker(wishes: Wishes, site_directory: Path, number: int, index: int, free: Iterator[int]) -> BrokerLayout:
    node_id = number * NODE_IDS_PER_SITE + index
    client, link, grpc, metrics, link_proxy, grpc_proxy = (_address(free) for _ in range(PORTS_PER_BROKER))
    return BrokerLayout(
        name=f"broker-{node_id}",
        node_id=node_id,
        directory=site_directory / f"broker-{node_id}",
        client=client,
        link=link,
        link_advertised=link_proxy if wishes.has_proxy else link,
        grpc=grpc,
        grpc_advertised=grpc_proxy if wishes.has_proxy else grpc,
        metrics=metrics,
    )


def _link(source: SiteLayout, target: SiteLayout) -> LinkLayout:
    return LinkLayout(name=f"{source.name}-{target.name}", source=source, target=target)


def _mirror(wishes: Wishes, link: str, source: SiteLayout, target: SiteLayout, free: Iterator[int]) -> MirrorLayout:
    name = f"{source.name}-{target.name}"
    return MirrorLayout(
        name=name,
        link=link,
        source=source,
        target=target,
        directory=wishes.directory / "mirrors" / name,
        grpc=_address(free),
        metrics=_address(free),
    )


def _bridge(wishes: Wishes, sites: Sequence[SiteLayout], free: Iterator[int]) -> BridgeLayout:
    reached = sites if wishes.has_link else sites[:1]
    return BridgeLayout(
        directory=wishes.directory / "bridge",
        bootstrap_servers=",".join(site.bootstrap_servers for site in reached),
        http=_address(free),
        metrics=_address(free),
    )


def _arbiter(wishes: Wishes, free: Iterator[int]) -> ArbiterLayout:
    zookeeper = _address(free)
    proxies = {site: _address(free) for site in wishes.sites}
    return ArbiterLayout(
        directory=wishes.directory / "arbiter",
        zookeeper=zookeeper,
        connect=proxies if wishes.has_proxy else dict.fromkeys(wishes.sites, zookeeper),
    )


def _arbiter_proxies(arbiter: ArbiterLayout) -> Iterator[ProxyLayout]:
    for site, listen in arbiter.connect.items():
        yield ProxyLayout(
            name=f"arbiter-{site}", site=site, kind=ARBITER_KIND, listen=listen, upstream=arbiter.zookeeper
        )


def _proxies(sites: Sequence[SiteLayout]) -> Iterator[ProxyLayout]:
    for site in sites:
        for broker in site.brokers:
            prefix = f"{site.name}-{broker.name}"
            yield ProxyLayout(
                name=f"{prefix}-link", site=site.name, kind="link", listen=broker.link_advertised, upstream=broker.link
            )
            yield ProxyLayout(
                name=f"{prefix}-grpc", site=site.name, kind="grpc", listen=broker.grpc_advertised, upstream=broker.grpc
            )
