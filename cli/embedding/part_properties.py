"""The properties files of embedded brokers, mirrors and bridges. Pure."""

from __future__ import annotations

from typing import Final

from cli.embedding.site_layout import (
    BRIDGE_IDENTITY,
    BRIDGE_USERS,
    BROKER_USER,
    KAFKA_USERS,
    MIRROR_USER,
    SUPER_USERS,
    USER,
    ZOOKEEPER_USER,
    ArbiterLayout,
    BridgeLayout,
    BrokerLayout,
    MirrorLayout,
    SecurityLayout,
    SiteLayout,
)

REPLICAS_MAX = 3


_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


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
    """Default replication factor of a topic: one replica on each broker, three at most."""
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
