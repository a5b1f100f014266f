"""Kafka's broker properties that mean nothing here, or something that is not there: what to say of them.

A file that served Apache Kafka may be brought along. What would leave a site less protected than its file says is refused; what merely
has no effect is named with the reason, once, at the start. Called by `broker/config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runtime.configuration import ConfigurationError

CONTROLLER_KEYS: Final = frozenset(
    {
        "antipode.controller.apply.wait.ms",
        "antipode.controller.deletion.retry.ms",
        "antipode.replication.factor.max",
    }
)
"""Read by the controller candidate of the same process alone."""

_LOOP: Final = "one event loop serves all connections"
_PLAIN: Final = "listeners are plaintext, and there are no ACLs"
_ZOOKEEPER: Final = "the controller is elected through ZooKeeper"
_NO_PLUGINS: Final = "classes of Java are not loaded"
_PROMETHEUS: Final = "metrics are read over HTTP, at antipode.metrics.listener"
_LISTENERS: Final = "addresses are given by listeners and advertised.listeners"
_BYTES: Final = "batches are kept as producers compressed them"

_WITHOUT_EFFECT: Final = {
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
    "process.roles": _ZOOKEEPER,
    "controller.listener.names": _ZOOKEEPER,
    "port": _LISTENERS,
    "host.name": _LISTENERS,
    "advertised.port": _LISTENERS,
    "advertised.host.name": _LISTENERS,
    "super.users": _PLAIN,
    "allow.everyone.if.no.acl.found": _PLAIN,
    "principal.builder.class": _PLAIN,
    "security.inter.broker.protocol": _PLAIN,
    "create.topic.policy.class.name": _NO_PLUGINS,
    "alter.config.policy.class.name": _NO_PLUGINS,
    "client.quota.callback.class": _NO_PLUGINS,
    "metric.reporters": _PROMETHEUS,
    "auto.include.jmx.reporter": _PROMETHEUS,
}
_FAMILIES_WITHOUT_EFFECT: Final = {
    "controller.quorum.": _ZOOKEEPER,
    "metadata.log.": _ZOOKEEPER,
    "sasl.": _PLAIN,
    "ssl.": _PLAIN,
    "delegation.token.": _PLAIN,
    "compression.": _BYTES,
    "remote.log.": "there is no tiered storage",
    "share.coordinator.": "there are no share groups",
    "group.share.": "there are no share groups",
    "group.streams.": "there are no streams groups",
    "metrics.": _PROMETHEUS,
    "kafka.metrics.": _PROMETHEUS,
    "telemetry.": "metrics of clients are not taken",
}


def check_supported(properties: Mapping[str, str]) -> None:
    """Raise ConfigurationError for protection that the file asks for and that is not there."""
    protocol = properties.get("security.inter.broker.protocol", "PLAINTEXT").strip()
    if protocol not in ("", "PLAINTEXT"):
        raise ConfigurationError("security.inter.broker.protocol", protocol, "accepted: PLAINTEXT")
    authorizer = properties.get("authorizer.class.name", "").strip()
    if authorizer:
        raise ConfigurationError(
            "authorizer.class.name", authorizer, "accepted: nothing; there are no ACLs, every client may do everything"
        )


def without_controller_listeners(properties: Mapping[str, str]) -> dict[str, str]:
    """The keys of listeners that name some of KRaft's controllers, without these."""
    controllers = {name.strip() for name in properties.get("controller.listener.names", "").split(",") if name.strip()}
    changed = {}
    for key in ("listeners", "advertised.listeners"):
        listeners = [entry.strip() for entry in properties.get(key, "").split(",") if entry.strip()]
        kept = [entry for entry in listeners if entry.partition("://")[0] not in controllers]
        if len(kept) < len(listeners):
            changed[key] = ",".join(kept)
    return changed


def reason_without_effect(key: str) -> str | None:
    """Why a property of Kafka's has no effect here; None for a key that nobody knows."""
    if key in _WITHOUT_EFFECT:
        return _WITHOUT_EFFECT[key]
    return next((reason for family, reason in _FAMILIES_WITHOUT_EFFECT.items() if key.startswith(family)), None)
