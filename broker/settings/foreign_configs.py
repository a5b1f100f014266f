"""Kafka's broker properties that have no effect in Antipode, with the reasons.

A properties file of Apache Kafka may be used. A key whose absence makes a site less protected than
its file states is refused (`runtime/security/protection.py`); a key that merely has no effect is
logged once at the start, with the reason. Called by `broker/settings/config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CONTROLLER_KEYS: Final = frozenset(
    {
        "antipode.controller.apply.wait.ms",
        "antipode.controller.deletion.retry.ms",
        "antipode.replication.factor.max",
        "controller.socket.timeout.ms",
    }
)
"""Read by the controller candidate of the same process alone."""

_LOOP: Final = "one event loop serves all connections"
_OPENSSL: Final = "TLS is that of OpenSSL"
_ZOOKEEPER: Final = "the controller is elected through ZooKeeper"
_NO_PLUGINS: Final = "classes of Java are not loaded"
_PROMETHEUS: Final = "metrics are read over HTTP, at antipode.metrics.listener"
_LISTENERS: Final = "addresses are given by listeners and advertised.listeners"
_JWKS_RETRIES: Final = "a key set is asked for again after five seconds while there is no answer"
_CHECKS_ONLY: Final = "a broker checks tokens and requests none"
_SESSION: Final = "zookeeper.session.timeout.ms decides how long a silent broker counts as alive"
_TRANSACTIONS: Final = "each transaction's partitions are verified at the coordinator, and retries have no pause"
_PURGATORY: Final = "answered requests leave nothing to purge"
_SOCKETS: Final = "connections between brokers have the system's buffers, and replica.socket.timeout.ms"
_NO_TIERS: Final = "there is no tiered storage"
_AT_ONCE: Final = "a group's assignment is worked out with the heartbeat that needs it"
_BATCHED: Final = "records that a coordinator decides on during an append are in the next append"

_WITHOUT_EFFECT: Final = {
    "group.coordinator.threads": _LOOP,
    "group.coordinator.background.threads": _LOOP,
    "group.coordinator.append.linger.ms": _BATCHED,
    "group.coordinator.cached.buffer.max.bytes": _BATCHED,
    "group.consumer.assignment.interval.ms": _AT_ONCE,
    "group.consumer.min.assignment.interval.ms": _AT_ONCE,
    "group.consumer.max.assignment.interval.ms": _AT_ONCE,
    "group.consumer.regex.refresh.interval.ms": _AT_ONCE,
    "num.network.threads": _LOOP,
    "num.io.threads": _LOOP,
    "background.threads": _LOOP,
    "queued.max.requests": "waiting requests are bounded by their size, queued.max.request.bytes",
    "log.cleaner.dedupe.buffer.size": "a cleaner remembers a fixed number of keys",
    "log.cleaner.io.buffer.size": "a cleaner reads pieces of a fixed size",
    "log.cleaner.io.buffer.load.factor": "a cleaner remembers a fixed number of keys",
    "offsets.load.buffer.size": "offsets are loaded in pieces of a fixed size",
    "offsets.topic.compression.codec": "offsets are stored without compression",
    "offsets.commit.required.acks": "offsets are committed when all in-sync replicas have them",
    "transaction.state.log.load.buffer.size": "transactions are loaded in pieces of a fixed size",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "a transaction is aborted at the moment of its timeout",
    "transaction.two.phase.commit.enable": "there is no two-phase commit (KIP-939)",
    "producer.id.expiration.check.interval.ms": "expired producers are removed at each retention check, log.retention.check.interval.ms",
    "process.roles": _ZOOKEEPER,
    "controller.listener.names": _ZOOKEEPER,
    "port": _LISTENERS,
    "host.name": _LISTENERS,
    "advertised.port": _LISTENERS,
    "advertised.host.name": _LISTENERS,
    "principal.builder.class": _NO_PLUGINS,
    "security.providers": _NO_PLUGINS,
    "ssl.engine.factory.class": _NO_PLUGINS,
    "ssl.keymanager.algorithm": _OPENSSL,
    "ssl.trustmanager.algorithm": _OPENSSL,
    "ssl.provider": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
    "ssl.allow.dn.changes": _OPENSSL,
    "ssl.allow.san.changes": _OPENSSL,
    "sasl.login.callback.handler.class": _NO_PLUGINS,
    "sasl.client.callback.handler.class": _NO_PLUGINS,
    "sasl.mechanism.controller.protocol": _ZOOKEEPER,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _JWKS_RETRIES,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _JWKS_RETRIES,
    "sasl.oauthbearer.jwt.retriever.class": _NO_PLUGINS,
    "sasl.oauthbearer.jwt.validator.class": _NO_PLUGINS,
    "sasl.oauthbearer.scope": _CHECKS_ONLY,
    "sasl.oauthbearer.token.endpoint.url": _CHECKS_ONLY,
    "sasl.login.class": _NO_PLUGINS,
    "sasl.server.max.receive.size": "messages of a login have at most 65532 bytes",
    "password.encoder.secret": "no passwords are stored",
    "zookeeper.clientCnxnSocket": _NO_PLUGINS,
    "early.start.listeners": _ZOOKEEPER,
    "broker.heartbeat.interval.ms": _SESSION,
    "broker.session.timeout.ms": _SESSION,
    "initial.broker.registration.timeout.ms": _SESSION,
    "controller.performance.always.log.threshold.ms": _PROMETHEUS,
    "controller.performance.sample.period.ms": _PROMETHEUS,
    "metadata.max.idle.interval.ms": _ZOOKEEPER,
    "metadata.max.retention.bytes": _ZOOKEEPER,
    "metadata.max.retention.ms": _ZOOKEEPER,
    "server.max.startup.time.ms": "a broker that waits at its start logs the reason and keeps waiting",
    "unclean.leader.election.interval.ms": "an allowed election takes place at once",
    "log.dir.failure.timeout.ms": "a failed log directory is reported until the controller has the report",
    "cordoned.log.dirs": "log directories are not closed for new partitions",
    "add.partitions.to.txn.retry.backoff.max.ms": _TRANSACTIONS,
    "add.partitions.to.txn.retry.backoff.ms": _TRANSACTIONS,
    "alter.log.dirs.replication.quota.window.num": "moves between log directories are bounded second by second",
    "alter.log.dirs.replication.quota.window.size.seconds": "moves between log directories are bounded second by second",
    "num.replica.alter.log.dirs.threads": "one log at a time moves between log directories",
    "log.flush.start.offset.checkpoint.interval.ms": "log starts are written with the other checkpoints",
    "log.initial.task.delay.ms": "the jobs of housekeeping have a fixed time before their first rounds",
    "max.request.partition.size.limit": "requests are bounded by their bytes, socket.request.max.bytes",
    "delete.records.purgatory.purge.interval.requests": _PURGATORY,
    "fetch.purgatory.purge.interval.requests": _PURGATORY,
    "producer.purgatory.purge.interval.requests": _PURGATORY,
    "share.fetch.purgatory.purge.interval.requests": _PURGATORY,
    "request.timeout.ms": "between brokers replica.socket.timeout.ms and controller.socket.timeout.ms count",
    "replica.socket.receive.buffer.bytes": _SOCKETS,
    "socket.connection.setup.timeout.ms": _SOCKETS,
    "socket.connection.setup.timeout.max.ms": _SOCKETS,
    "socket.listen.backlog.size": "1024 connections may wait to be accepted",
    "replica.lag.max.messages": "replica.lag.time.max.ms alone decides which replicas are in sync: a burst would remove a healthy follower",
    "follower.fetch.last.tiered.offset.enable": _NO_TIERS,
    "log.local.retention.bytes": _NO_TIERS,
    "log.local.retention.ms": _NO_TIERS,
    "remote.fetch.max.wait.ms": _NO_TIERS,
    "remote.list.offsets.request.timeout.ms": _NO_TIERS,
    "config.providers": "values are taken as they are written; a mirror's file may name providers",
    "unstable.api.versions.enable": "only stable versions are served",
    "unstable.feature.versions.enable": "only stable versions are served",
    "inter.broker.protocol.version": "all brokers of a site speak the newest version that all of them know",
    "create.topic.policy.class.name": _NO_PLUGINS,
    "alter.config.policy.class.name": _NO_PLUGINS,
    "client.quota.callback.class": _NO_PLUGINS,
    "metric.reporters": _PROMETHEUS,
    "auto.include.jmx.reporter": _PROMETHEUS,
}
_FAMILIES_WITHOUT_EFFECT: Final = {
    "controller.quorum.": _ZOOKEEPER,
    "metadata.log.": _ZOOKEEPER,
    "listener.name.": "the setting applies to every listener",
    "sasl.kerberos.": "there is no GSSAPI",
    "sasl.oauthbearer.assertion.": _CHECKS_ONLY,
    "sasl.oauthbearer.client.credentials.": _CHECKS_ONLY,
    "sasl.login.": "logins have no lifetime of their own",
    "password.encoder.": "no passwords are stored",
    "internal.metadata.": _ZOOKEEPER,
    "remote.log.": _NO_TIERS,
    "share.coordinator.": "there are no share groups",
    "group.share.": "there are no share groups",
    "group.streams.": "there are no streams groups",
    "metrics.": _PROMETHEUS,
    "kafka.metrics.": _PROMETHEUS,
    "telemetry.": "metrics of clients are not collected",
}


def without_controller_listeners(properties: Mapping[str, str]) -> dict[str, str]:
    """The values of `listeners` and `advertised.listeners` without the listeners of KRaft's
    controllers; a key without such a listener is left out.
    """
    controllers = {name.strip() for name in properties.get("controller.listener.names", "").split(",") if name.strip()}
    changed = {}
    for key in ("listeners", "advertised.listeners"):
        listeners = [entry.strip() for entry in properties.get(key, "").split(",") if entry.strip()]
        kept = [entry for entry in listeners if entry.partition("://")[0] not in controllers]
        if len(kept) < len(listeners):
            changed[key] = ",".join(kept)
    return changed


def foreign_keys() -> frozenset[str]:
    """Kafka's keys that have no effect here, without those of whole families."""
    return frozenset(_WITHOUT_EFFECT)


def reason_without_effect(key: str) -> str | None:
    """The reason why one of Kafka's properties has no effect here; None for an unknown key."""
    if key in _WITHOUT_EFFECT:
        return _WITHOUT_EFFECT[key]
    return next((reason for family, reason in _FAMILIES_WITHOUT_EFFECT.items() if key.startswith(family)), None)
