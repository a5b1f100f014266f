"""The parts of embedded sites as values: names, addresses, files and proxies. `layout_plan.py`
makes them, `embedded.py` writes them to disk and starts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLayout:
    """One toxiproxy proxy: how one site reaches a listener of the other."""

    name: str
    site: str
    kind: str
    listen: str
    upstream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLayout:
    """One broker process of a site; addresses are host:port."""

    name: str
    node_id: int
    directory: Path
    client: str
    link: str
    link_advertised: str
    grpc: str
    grpc_advertised: str
    metrics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLayout:
    """One site: a ZooKeeper and its brokers."""

    name: str
    number: int
    directory: Path
    zookeeper: str
    brokers: tuple[BrokerLayout, ...]

    @property
    def bootstrap_servers(self) -> str:
        """The CLIENT listeners, for `bootstrap.servers` of applications."""
        return ",".join(broker.client for broker in self.brokers)

    @property
    def link_bootstrap_servers(self) -> str:
        """The LINK listeners as the other site reaches them."""
        return ",".join(broker.link_advertised for broker in self.brokers)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLayout:
    """One link: the site that is active first, and its standby."""

    name: str
    source: SiteLayout
    target: SiteLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLayout:
    """A mirror daemon of a link, at the site that it writes to. A link has one for each direction;
    the mirror to the active site is idle.
    """

    name: str
    link: str
    source: SiteLayout
    target: SiteLayout
    directory: Path
    grpc: str
    metrics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeLayout:
    """The HTTP bridge; it knows the brokers of all linked sites, to follow the active one."""

    directory: Path
    bootstrap_servers: str
    http: str
    metrics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbiterLayout:
    """The arbiter's ZooKeeper, and the address at which each site reaches it."""

    directory: Path
    zookeeper: str
    connect: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityLayout:
    """The files of secured sites."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The certificate that everyone trusts."""
        return self.directory / "ca.pem"

    def identity(self, name: str) -> Path:
        """Key and certificate of a process or person, in one PEM file."""
        return self.directory / f"{name}.pem"

    @property
    def zookeeper_secret(self) -> Path:
        """The password of the sites at their ZooKeepers, as a properties file."""
        return self.directory / "zookeeper.properties"

    @property
    def kafka_secrets(self) -> Path:
        """The passwords of the users of the Kafka listeners, as a properties file."""
        return self.directory / "kafka.properties"

    def command_config(self, name: str) -> Path:
        """The file of a person for `--command-config`."""
        return self.directory / f"{name}.properties"

    def kcat_config(self, name: str) -> Path:
        """The same for kcat and other programs of librdkafka (`kcat -F`)."""
        return self.directory / f"{name}-kcat.conf"

    def netrc(self, name: str) -> Path:
        """The login of this user at the HTTP bridge (`curl --netrc-file`)."""
        return self.directory / f"{name}-netrc"

    @property
    def bridge_users(self) -> Path:
        """Hashes of the passwords of those who log in at the HTTP bridge."""
        return self.directory / "bridge.users"

    @property
    def bridge_rules(self) -> Path:
        """The Kafka users that act for those who log in at the HTTP bridge."""
        return self.directory / "bridge-rules.properties"

    def client_config(self, name: str) -> Path:
        """Kafka client properties of this user."""
        return self.directory / f"{name}-client.properties"


ARBITER: Final = "arbiter"
ZOOKEEPER_USER: Final = "antipode"
OPERATOR: Final = "operator"
VIEWER: Final = "viewer"
ADMIN: Final = "admin"
USER: Final = "user"
BROKER_USER: Final = "broker"
MIRROR_USER: Final = "mirror"
KAFKA_USERS: Final = (ADMIN, USER, BROKER_USER, MIRROR_USER)
SUPER_USERS: Final = (ADMIN, BROKER_USER)
BRIDGE_USERS: Final = (ADMIN, USER)
"""The users of the HTTP bridge, each with the Kafka user of the same name."""
BRIDGE_IDENTITY: Final = "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All parts that `antipode up` starts."""

    directory: Path
    toxiproxy: str | None
    sites: tuple[SiteLayout, ...]
    links: tuple[LinkLayout, ...]
    mirrors: tuple[MirrorLayout, ...]
    proxies: tuple[ProxyLayout, ...]
    bridge: BridgeLayout | None = None
    arbiter: ArbiterLayout | None = None
    security: SecurityLayout | None = None


def listeners(layout: Layout) -> Iterator[tuple[str, str]]:
    """All listeners, as (name, host:port)."""
    if layout.toxiproxy is not None:
        yield "toxiproxy", layout.toxiproxy
    for proxy in layout.proxies:
        yield f"proxy {proxy.name}", proxy.listen
    for site in layout.sites:
        yield f"zookeeper-{site.name}", site.zookeeper
        for broker in site.brokers:
            kinds = {"clients": broker.client, "link": broker.link, "gRPC": broker.grpc, "metrics": broker.metrics}
            yield from ((f"{broker.name} for {kind}", address) for kind, address in kinds.items())
    for mirror in layout.mirrors:
        yield f"mirror-{mirror.name} for gRPC", mirror.grpc
        yield f"mirror-{mirror.name} for metrics", mirror.metrics
    if layout.arbiter is not None:
        yield "arbiter", layout.arbiter.zookeeper
    if layout.bridge is not None:
        yield "bridge for HTTP", layout.bridge.http
        yield "bridge for metrics", layout.bridge.metrics
