"""The keys of a MirrorMaker 2 file: the keys that have another name here, and for all others
whether they have an effect, none, or are refused.

Complete for Kafka 4.3: a test asks Kafka's own classes for every key of MirrorMaker, of Connect and
of the clients, and none is unknown here. `core/mirror_maker_file.py` finds out for which flow and
which end a key counts; this module defines its effect.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple


class NamesFormat(enum.Enum):
    """Values of `metric.names.formats` (KIP-1280): by which names MirrorMaker's figures are
    shown.
    """

    LEGACY = "legacy"
    NEW = "new"


class Fate(enum.Enum):
    """The verdict on a key."""

    USED = "used"
    NOT_NEEDED = "not needed"
    NOT_HONOURED = "not honoured"
    UNKNOWN = "unknown"


LIKENESS: Final = 0.75
"""The similarity from which an unknown key counts as a misspelling of a known one."""


class UnusableFile(ValueError):
    """The file needs something that is not supported; the message has the key, the value and the
    accepted values.
    """

    def __init__(self, key: str, value: str, accepted: str) -> None:
        super().__init__(f"{key}={value!r}: {accepted}")
        self.key = key
        self.value = value
        self.accepted = accepted


class Bounds(NamedTuple):
    """Our name for a numeric setting of a client, and its bounds here."""

    name: str
    minimum: int
    maximum: int = (1 << 31) - 1
    beside: str = ""
    """What MirrorMaker's setting does not do, for the remark."""

    def fitted(self, value: str) -> tuple[str, str]:
        """The value within the bounds, and a remark; `load_config` refuses what is no number."""
        if not re.fullmatch(r"[+-]?\d+", value.strip()):
            return value, f"as {self.name}{self.beside}"
        fitted = str(min(max(int(value), self.minimum), self.maximum))
        limit = "" if int(fitted) == int(value) else f", {fitted} being its limit"
        return fitted, f"as {self.name}{limit}{self.beside}"


TRANSACTIONS: Final = "antipode.target.transactions"

RENAMED: Final[Mapping[str, str]] = {
    "topics": "whitelist",
    "topics.exclude": "blacklist",
    "topics.blacklist": "blacklist",
    "groups": "groups",
    "groups.exclude": "groups.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.exclude": "config.properties.exclude",
    "config.properties.blacklist": "config.properties.exclude",
    "replication.factor": "replication.factor",
    "heartbeats.topic.replication.factor": "heartbeats.topic.replication.factor",
    "checkpoints.topic.replication.factor": "checkpoints.topic.replication.factor",
    "offset-syncs.topic.replication.factor": "offset-syncs.topic.replication.factor",
    "replication.policy.separator": "replication.policy.separator",
    "replication.policy.internal.topic.separator.enabled": "replication.policy.internal.topic.separator.enabled",
    "sync.group.offsets.enabled": "sync.group.offsets.enabled",
    "sync.topic.configs.enabled": "sync.topic.configs.enabled",
    "sync.topic.acls.enabled": "sync.topic.acls.enabled",
    "emit.heartbeats.enabled": "emit.heartbeats.enabled",
    "emit.checkpoints.enabled": "emit.checkpoints.enabled",
    "emit.offset-syncs.enabled": "emit.offset-syncs.enabled",
    "heartbeats.replication.enabled": "heartbeats.replication.enabled",
    "offset-syncs.topic.location": "offset-syncs.topic.location",
    "metric.names.formats": "metric.names.formats",
}
"""Keys of MirrorMaker and our names for the same thing."""
BESIDE: Final[Mapping[str, str]] = {
    "config.properties.exclude": "; throttles, limits of timestamps, min.insync.replicas and unclean elections stay out in any case"
}
"""Notes on keys of our own."""

SECONDS: Final[Mapping[str, str]] = {
    "refresh.topics.interval.seconds": "topics.refresh.interval.ms",
    "sync.topic.configs.interval.seconds": "config.sync.interval.ms",
    "sync.topic.acls.interval.seconds": "acl.sync.interval.ms",
    "sync.group.offsets.interval.seconds": "group.sync.interval.ms",
    "emit.heartbeats.interval.seconds": "emit.heartbeats.interval.ms",
    "emit.checkpoints.interval.seconds": "emit.checkpoints.interval.ms",
}

CONSUMER: Final[Mapping[str, Bounds]] = {
    "fetch.min.bytes": Bounds("fetch.min.bytes", 0),
    "fetch.max.bytes": Bounds("fetch.max.bytes", 1024),
    "fetch.max.wait.ms": Bounds("fetch.wait.max.ms", 0, 30_000),
    "max.partition.fetch.bytes": Bounds("max.partition.fetch.bytes", 1024),
    "isolation.level": Bounds("isolation.level", 0),
    "receive.buffer.bytes": Bounds("socket.receive.buffer.bytes", -1),
}
PRODUCER: Final[Mapping[str, Bounds]] = {
    "max.request.size": Bounds("max.request.size", 1024),
    "send.buffer.bytes": Bounds("send.buffer.bytes", -1),
    "max.in.flight.requests.per.connection": Bounds("max.in.flight.requests.per.connection", 1, 64),
    "request.timeout.ms": Bounds("request.timeout.ms", 100, beside=", for requests to both clusters"),
    "transaction.timeout.ms": Bounds(f"{TRANSACTIONS}.timeout.ms", 2000),
}

OWN: Final = frozenset(
    {
        "num.streams",
        "num.producers",
        "queue.byte.size",
        "queue.enqueue.timeout.ms",
        "abort.on.send.failure",
        "topic.naming.policy",
        "topic.naming.table",
    }
)
"""Our keys that a MirrorMaker file may carry beside its own, and all that begin with
`antipode.`.
"""

SECURITY: Final = frozenset(
    {
        "security.protocol",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "antipode.sasl.login.location",
    }
)
"""Keys that count for all connections to a cluster, under the names that they have."""

NOT_CLIENTS: Final = re.compile(r"admin\.timeout\.ms|consumer\.poll\.timeout\.ms|admin\.listeners.*")
"""Keys that look like settings of a client and are none."""

_NO_CONNECT: Final = "there is no Connect"
_OWN_CONNECTIONS: Final = "connections, metadata and retries are the mirror's own"
_NO_JAVA_CLIENTS: Final = "there is no consumer or producer of Java's"
_PROMETHEUS: Final = "metrics are served in Prometheus's format"

_NOT_NEEDED: Final = (
    (r"config\.providers(\.[^.]+\.class)?", "values that stand elsewhere have been looked up"),
    (
        r"tasks\.max(\.enforce)?",
        "one daemon carries a flow; num.streams and num.producers set how many work in it",
    ),
    (r"(source|target)\.cluster\.alias", "the flow's name says it"),
    (
        r"group\.id|name|connector\.(class|plugin\.version)|topic\.creation\..*|topic\.tracking\..*|config\.action\.reload",
        _NO_CONNECT,
    ),
    (r"(offset|status|config)\.storage.*|offsets\.storage\.topic|offset\.flush\..*", _NO_CONNECT),
    (
        r"(rest|listeners|admin\.listeners|response\.http|access\.control|plugin\.(path|discovery)|dedicated\.mode)(\..*)?",
        _NO_CONNECT,
    ),
    (
        r"(session\.timeout\.ms|heartbeat\.interval\.ms|rebalance\.timeout\.ms|scheduled\.rebalance\..*|worker\..*|task\..*)",
        _NO_CONNECT,
    ),
    (
        r"(errors\..*|connector\.client\..*|connect\.protocol|inter\.worker\..*|exactly\.once\.support|transaction\.boundary.*)",
        _NO_CONNECT,
    ),
    (r"(key|value|header)\.converter(\..*)?", "records pass as they are, without Connect's converters"),
    (r"offset\.lag\.max", "the offset map is complete, not sampled"),
    (r"refresh\.groups\.interval\..*", "groups are looked at whenever offsets are synced"),
    (r"use\.incremental\.alter\.configs", "configs are always changed one by one"),
    (
        r"batch\.size|linger\.ms|buffer\.memory|acks|enable\.idempotence|retries|delivery\.timeout\.ms",
        "batches pass as they are, idempotent and with acks=all; queue.byte.size bounds memory",
    ),
    (r"partitioner\..*", "each record goes into the partition that it is in"),
    (r"transactional\.id|transaction\.two\.phase\..*", "transactional ids are the mirror's own"),
    (
        r"metadata\.(max\.(age|idle)\.ms|recovery\..*)|(reconnect|retry)\.backoff\..*|connections\.max\.idle\.ms|max\.block\.ms|check\.crcs",
        _OWN_CONNECTIONS,
    ),
    (
        r"client\.dns\.lookup|socket\.connection\.setup\..*|(default\.api|request|admin)\.timeout\.ms|allow\.auto\.create\.topics",
        _OWN_CONNECTIONS,
    ),
    (
        r"(receive|send)\.buffer\.bytes",
        "only these sizes have an effect: consumer.receive.buffer.bytes for the source, producer.send.buffer.bytes for the target",
    ),
    (
        r"(enable|exclude)\.(auto\.commit|internal\.topics)|auto\.commit\.interval\.ms|max\.poll\..*|(key|value)\.(de)?serializer",
        _NO_JAVA_CLIENTS,
    ),
    (
        r"group\.(instance\.id|protocol|remote\.assignor)|partition\.assignment\.strategy|share\..*|internal\.throw\..*",
        _NO_JAVA_CLIENTS,
    ),
    (r"consumer\.poll\.timeout\.ms", "fetch.wait.max.ms is how long a fetch waits"),
    (
        r"sasl\.(login\.(refresh|connect|read|retry)\..*|kerberos\.(kinit|min|ticket)\..*)",
        "it is for Kerberos, and tokens of OAUTHBEARER are renewed after 80 % of their lifetime",
    ),
)
_NOT_HONOURED: Final = (
    (r"config\.providers\..+", "a provider reads any path or name that a value gives"),
    (r"(transforms|predicates)(\..*)?", "records pass as they are"),
    (
        r"compression\..*",
        "batches keep the compression that they have; a topic's compression.type has brokers change it",
    ),
    (r"client\.rack", "leaders are fetched from"),
    (r"client\.id", "the client id of connections is antipode-mirror, and quotas use it"),
    (r"interceptor\.classes", "there are no classes of Java's"),
    (r"bootstrap\.(servers|controllers)", "all connections to a cluster begin at its own CLUSTER.bootstrap.servers"),
    (r"metric\.reporters|metrics\..*|enable\.metrics\.push", _PROMETHEUS),
    (r"(ssl|sasl|security)\..*", "TLS's versions and ciphers are OpenSSL's defaults on this machine"),
)
_FILTERS: Final = "filters are topics, topics.exclude, groups, groups.exclude and config.properties.exclude"
_AS_IT_IS_ANYWAY: Final[Mapping[str, tuple[str, str]]] = {
    "auto.offset.reset": ("earliest", "a copy begins where the source's log does, never at its end"),
    "refresh.topics.enabled": ("true", "new topics are always found"),
    "refresh.groups.enabled": ("true", "groups are looked at whenever offsets are synced"),
    "topic.filter.class": ("org.apache.kafka.connect.mirror.defaulttopicfilter", _FILTERS),
    "group.filter.class": ("org.apache.kafka.connect.mirror.defaultgroupfilter", _FILTERS),
    "config.property.filter.class": ("org.apache.kafka.connect.mirror.defaultconfigpropertyfilter", _FILTERS),
    "use.defaults.from": ("target", "configs that are set on a topic are carried; defaults are each cluster's own"),
    "forwarding.admin.class": (
        "org.apache.kafka.clients.admin.forwardingadmin",
        "topics are made through the target's own Admin API",
    ),
    "add.source.alias.to.metrics": ("true", "MirrorMaker's figures have the label source"),
    "transforms": ("", "records pass as they are"),
}
"""Keys whose effect here is fixed: the value with that effect, in lower case, and the remark on any
other value.
"""
_REFUSED: Final = (
    (
        r"sasl\.(kerberos\.service\.name|oauthbearer\..*|(login|client\.callback\.handler)\.class)",
        "none: logins are by PLAIN, SCRAM, and OAUTHBEARER with sasl.oauthbearer.token.endpoint.url",
    ),
)


def judge(key: str, name: str, value: str) -> tuple[Fate, str]:
    """The verdict on a setting that is not one of ours; `key` is as in the file. Raises
    UnusableFile where going on without the setting would be worse.
    """
    if name in _AS_IT_IS_ANYWAY:
        accepted, otherwise = _AS_IT_IS_ANYWAY[name]
        is_so = value.strip().lower() == accepted
        return (Fate.NOT_NEEDED, "it is so anyway") if is_so else (Fate.NOT_HONOURED, otherwise)
    for pattern, explanation in _REFUSED:
        if re.fullmatch(pattern, name):
            is_secret = any(word in name for word in ("password", "key", "secret", "passphrase"))
            raise UnusableFile(key, "(hidden)" if is_secret else value, explanation)
    for patterns, fate in ((_NOT_NEEDED, Fate.NOT_NEEDED), (_NOT_HONOURED, Fate.NOT_HONOURED)):
        for pattern, explanation in patterns:
            if re.fullmatch(pattern, name):
                return fate, explanation
    alike = get_close_matches(name, (*RENAMED, *SECONDS, *OWN, *SECURITY, "enabled"), n=1, cutoff=LIKENESS)
    return Fate.UNKNOWN, f"neither MirrorMaker's as far as known, nor ours{f'; is {alike[0]} meant?' if alike else ''}"
