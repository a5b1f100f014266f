"""The parts of embedded sites: names, ports, files and proxies, decided before anything is started.

Pure: takes the wishes and a list of free ports, gives a `Layout` whose parts `embedded.py` writes
to disk and starts. The same wishes and ports give the same layout, so a directory can be started
again where it left off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.rules.links import InvalidPattern, matches

HOST = "127.0.0.1"
NODE_IDS_PER_SITE = 1000
PORTS_PER_BROKER = 6
"""CLIENT, LINK, gRPC and metrics listeners, and the proxies in front of LINK and gRPC."""
REPLICAS_MAX = 3
PORTS_PER_SITE = 1
PORTS_SHARED = 3
"""The ports of toxiproxy, and of the bridge for HTTP and metrics."""
MIRRORS_PER_LINK = 2
ARBITER_KIND = "arbiter"
"""The kind of a proxy between a site and the arbiter."""
PORTS_PER_MIRROR = 2
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


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
        """The CLIENT listeners, as an application is given them."""
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
    """The HTTP bridge; it knows the brokers of all sites that are linked, so that it follows
    whichever is active.
    """

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
"""Those who log in at the HTTP bridge, each as the Kafka user of the same name."""
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


def check(wishes: Wishes, *, whitelist: Sequence[str], blacklist: Sequence[str]) -> None:
    """ValueError says which wish cannot be met and what would be accepted."""
    names = wishes.sites
    if not names or any(not name.isidentifier() or len(name) > 32 for name in names):
        raise ValueError(f"--sites {','.join(names)!r}: accepted are comma-separated names of letters, digits and _")
    if len(set(names)) != len(names):
        raise ValueError(f"--sites {','.join(names)!r}: each name may appear once")
    if not 1 <= wishes.brokers <= 100:
        raise ValueError(f"--brokers {wishes.brokers}: accepted are 1 to 100 for each site")
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


def control_properties(security: SecurityLayout | None, name: str) -> dict[str, str]:
    """The properties of an embedded process on the control plane."""
    if security is None:
        return {"antipode.allow.plaintext": "true"}
    return {
        "antipode.control.ssl.truststore.location": str(security.authority),
        "antipode.control.ssl.keystore.location": str(security.identity(name)),
    }


def zookeeper_properties(security: SecurityLayout | None, name: str) -> dict[str, str]:
    """The properties with which an embedded process logs in to ZooKeeper, over TLS."""
    if security is None:
        return {}
    return {
        "zookeeper.sasl.username": ZOOKEEPER_USER,
        "zookeeper.sasl.password": f"${{file:{security.zookeeper_secret}:password}}",
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(security.authority),
        "zookeeper.ssl.keystore.location": str(security.identity(name)),
    }


def login_properties(security: SecurityLayout, user: str, password: str) -> dict[str, str]:
    """Kafka's client options by which a user logs in; the same at every site."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(security.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_PLAIN} required username="{user}" password="{password}";',
    }


def _listener_properties(security: SecurityLayout | None, broker_name: str) -> dict[str, str]:
    """The protocols of a broker's listeners, its users, and the authorizer."""
    if security is None:
        return {"listener.security.protocol.map": "CLIENT:PLAINTEXT,LINK:PLAINTEXT"}
    users = " ".join(f'user_{user}="{_password(security, user)}"' for user in KAFKA_USERS)
    own = f'username="{BROKER_USER}" password="{_password(security, BROKER_USER)}"'
    jaas = f"{_PLAIN} required {own} {users};"
    return {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,LINK:SASL_SSL",
        "ssl.keystore.location": str(security.identity(broker_name)),
        "ssl.truststore.location": str(security.authority),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": jaas,
        "listener.name.link.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{user}" for user in SUPER_USERS),
    }


def _password(security: SecurityLayout, user: str) -> str:
    return f"${{file:{security.kafka_secrets}:{user}}}"


def broker_properties(
    site: SiteLayout,
    broker: BrokerLayout,
    arbiter: ArbiterLayout | None = None,
    security: SecurityLayout | None = None,
) -> dict[str, str]:
    """The server.properties of an embedded broker."""
    replicas = replication_factor(site)
    arbitration = (
        {}
        if arbiter is None
        else {
            "antipode.arbiter.connect": arbiter.connect[site.name],
            "antipode.arbiter.session.timeout.ms": "2000",
        }
    )
    return {
        **arbitration,
        "node.id": str(broker.node_id),
        "listeners": f"CLIENT://{broker.client},LINK://{broker.link}",
        "advertised.listeners": f"CLIENT://{broker.client},LINK://{broker.link_advertised}",
        **_listener_properties(security, broker.name),
        "log.dirs": str(broker.directory / "data"),
        "zookeeper.connect": site.zookeeper,
        "zookeeper.session.timeout.ms": "2000",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "8",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
        "default.replication.factor": str(replicas),
        "inter.broker.listener.name": "CLIENT",
        "broker.rack": site.name,
        "antipode.site.name": site.name,
        "antipode.site.number": str(site.number),
        "antipode.grpc.listener": broker.grpc,
        "antipode.metrics.listener": broker.metrics,
        **control_properties(security, broker.name),
        **zookeeper_properties(security, broker.name),
    }


def replication_factor(site: SiteLayout) -> int:
    """Replicas of a topic that says nothing else: one on each broker, three at most."""
    return min(REPLICAS_MAX, len(site.brokers))


def mirror_properties(mirror: MirrorLayout, security: SecurityLayout | None = None) -> dict[str, str]:
    """The mirror.properties of an embedded mirror daemon."""
    login = {} if security is None else login_properties(security, MIRROR_USER, _password(security, MIRROR_USER))
    return {
        **{f"{end}.{key}": value for end in ("source", "target") for key, value in login.items()},
        **control_properties(security, f"mirror-{mirror.name}"),
        "link.name": mirror.link,
        "site.agents": ",".join(broker.grpc for broker in mirror.target.brokers),
        "source.bootstrap.servers": mirror.source.link_bootstrap_servers,
        "target.bootstrap.servers": mirror.target.bootstrap_servers,
        "antipode.grpc.listener": mirror.grpc,
        "antipode.metrics.listener": mirror.metrics,
    }


def bridge_properties(bridge: BridgeLayout, security: SecurityLayout | None = None) -> dict[str, str]:
    """The bridge.properties of an embedded bridge. At secured sites it is the ordinary user;
    clients log in, and Kafka's users of the same names act for them.
    """
    return {
        **({} if security is None else _bridge_security(security)),
        "bootstrap.servers": bridge.bootstrap_servers,
        "listeners": bridge_url(bridge, security),
        "antipode.metrics.listener": bridge.metrics,
    }


def bridge_url(bridge: BridgeLayout, security: SecurityLayout | None) -> str:
    """Where an embedded bridge is."""
    return f"{'http' if security is None else 'https'}://{bridge.http}"


def _bridge_security(security: SecurityLayout) -> dict[str, str]:
    return {
        "ssl.keystore.location": str(security.identity(BRIDGE_IDENTITY)),
        "authentication.method": "BASIC",
        "antipode.authentication.users.location": str(security.bridge_users),
        "antipode.impersonation.rules.location": str(security.bridge_rules),
        "client.security.protocol": "SASL_SSL",
        "client.ssl.ca.location": str(security.authority),
        "client.sasl.mechanism": "PLAIN",
        "client.sasl.username": USER,
        "client.sasl.password": _password(security, USER),
    }


def bridge_rules(security: SecurityLayout) -> dict[str, str]:
    """The rules by which Kafka's users act for those of the embedded bridge."""
    rules = {"impersonation.rules": ",".join(BRIDGE_USERS)}
    for user in BRIDGE_USERS:
        rules |= {
            f"impersonation.{user}.principals": user,
            f"impersonation.{user}.client.sasl.username": user,
            f"impersonation.{user}.client.sasl.password": _password(security, user),
        }
    return rules


def properties_text(properties: dict[str, str]) -> str:
    """A properties file."""
    return "".join(f"{key}={value}\n" for key, value in properties.items())
