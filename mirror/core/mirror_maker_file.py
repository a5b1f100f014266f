"""Reads a MirrorMaker 2 file (`connect-mirror-maker.properties`) as it is and says for each key what became of it.

MirrorMaker's rules hold: `source->target.key` counts before `key`, and clients' settings may be given for a cluster
(`source.consumer.key`) or a flow (`source->target.consumer.key`). Each enabled flow becomes the settings of one translate link.
Whatever cannot be honoured is said, never passed over: a verdict for every key of the file. A file that needs what is not
there (Java key stores, Kerberos, a policy class of somebody's own) is refused, because going on without would be worse.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mirror.core.naming import NamingPolicy

DEFAULT_POLICY = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


class Fate(enum.Enum):
    """What became of a key."""

    USED = "used"
    NOT_NEEDED = "not needed"
    NOT_HONOURED = "not honoured"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A key of the file and what was done with it."""

    key: str
    fate: Fate
    explanation: str


@dataclass(frozen=True, slots=True)
class Flow:
    """One `source->target` and the settings of the translate link that it becomes."""

    source: str
    target: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MirrorMakerFile:
    """The enabled flows, and a verdict for each key in the order of the file."""

    flows: tuple[Flow, ...]
    verdicts: tuple[Verdict, ...]


class UnusableFile(ValueError):
    """The file asks for what cannot be done; key, value and what is accepted."""

    def __init__(self, key: str, value: str, accepted: str) -> None:
        super().__init__(f"{key}={value!r}: {accepted}")
        self.key = key
        self.value = value
        self.accepted = accepted


_RENAMED = {
    "topics": "whitelist",
    "topics.exclude": "blacklist",
    "topics.blacklist": "blacklist",
    "groups": "groups",
    "groups.exclude": "groups.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.exclude": "config.properties.exclude",
    "config.properties.blacklist": "config.properties.exclude",
    "replication.factor": "replication.factor",
    "replication.policy.separator": "replication.policy.separator",
    "sync.group.offsets.enabled": "sync.group.offsets.enabled",
    "sync.topic.configs.enabled": "sync.topic.configs.enabled",
    "sync.topic.acls.enabled": "sync.topic.acls.enabled",
    "emit.heartbeats.enabled": "emit.heartbeats.enabled",
    "emit.checkpoints.enabled": "emit.checkpoints.enabled",
    "emit.offset-syncs.enabled": "emit.offset-syncs.enabled",
    "offset-syncs.topic.location": "offset-syncs.topic.location",
}
"""Keys of MirrorMaker and our names for the same thing."""

_TRANSACTIONS = "antipode.target.transactions"

_SECONDS = {
    "refresh.topics.interval.seconds": "topics.refresh.interval.ms",
    "sync.topic.configs.interval.seconds": "config.sync.interval.ms",
    "sync.topic.acls.interval.seconds": "acl.sync.interval.ms",
    "sync.group.offsets.interval.seconds": "group.sync.interval.ms",
    "emit.heartbeats.interval.seconds": "emit.heartbeats.interval.ms",
    "emit.checkpoints.interval.seconds": "emit.checkpoints.interval.ms",
}

_CONSUMER = {
    "fetch.min.bytes": "fetch.min.bytes",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "isolation.level": "isolation.level",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
_PRODUCER = {
    "max.request.size": "max.request.size",
    "send.buffer.bytes": "send.buffer.bytes",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "request.timeout.ms": "request.timeout.ms",
}

_OWN = frozenset(
    {
        "num.streams",
        "num.producers",
        "queue.byte.size",
        "queue.enqueue.timeout.ms",
        "abort.on.send.failure",
        "topic.naming.policy",
        "topic.naming.table",
        "log.level",
    }
)
"""Our keys that a MirrorMaker file may carry beside its own, and all that begin with `antipode.`."""

_NOT_NEEDED = (
    (r"config\.providers(\..+)?", "values that stand elsewhere have been looked up"),
    (r"tasks\.max", "one daemon carries a flow; num.streams and num.producers set how many work in it"),
    (
        r"(group\.id|name|topic\.creation\..*|config\.storage.*|offset\.storage.*|status\.storage.*)",
        "there is no Connect",
    ),
    (r"(offset|status|config)\.storage\.replication\.factor", "there is no Connect"),
    (
        r"(rest|listeners|admin\.listeners|plugin\.path|dedicated\.mode|key\.converter|value\.converter|header\.converter).*",
        "there is no Connect",
    ),
    (r"offset\.lag\.max", "the offset map is complete, not sampled"),
    (r"refresh\.groups\.interval\..*", "groups are looked at whenever offsets are synced"),
    (
        r"(heartbeats|checkpoints|offset-syncs)\.topic\.replication\.factor",
        "replication.factor counts for these topics too",
    ),
    (r"use\.incremental\.alter\.configs", "configs are always changed one by one"),
    (
        r"(batch\.size|linger\.ms|buffer\.memory|compression\.type|acks|enable\.idempotence|retries|delivery\.timeout\.ms)",
        "batches pass as they are, idempotent and with acks=all; queue.byte.size bounds memory",
    ),
    (
        r"(session\.timeout\.ms|heartbeat\.interval\.ms|rebalance\.timeout\.ms|scheduled\.rebalance\..*|worker\..*|task\..*)",
        "there is no Connect",
    ),
    (
        r"(errors\..*|connector\.client\..*|admin\.timeout\.ms|connect\.protocol|inter\.worker\..*|predicates.*|transforms.*)",
        "there is no Connect",
    ),
    (
        r"(metadata\.max\.(age|idle)\.ms|(reconnect|retry)\.backoff\..*|connections\.max\.idle\.ms|max\.block\.ms|check\.crcs)",
        "connections, metadata and retries are the mirror's own",
    ),
    (
        r"(client\.dns\.lookup|socket\.connection\.setup\..*|default\.api\.timeout\.ms|allow\.auto\.create\.topics)",
        "connections, metadata and retries are the mirror's own",
    ),
    (
        r"(enable\.auto\.commit|max\.poll\..*|client\.id|key\.(de)?serializer|value\.(de)?serializer)",
        "there is no consumer or producer of Java's",
    ),
    (r"consumer\.poll\.timeout\.ms", "fetch.wait.max.ms is how long a fetch waits"),
    (r"(offset\.flush\..*|producer\.override.*|consumer\.override.*)", "there is no Connect"),
)
_NOT_HONOURED = (
    (r"client\.rack", "leaders are fetched from"),
    (r"forwarding\.admin\.class", "topics are made through the target's own Admin API"),
    (r"(metric\.reporters|metrics\..*)", "metrics are served in Prometheus's format"),
    (r"(ssl|sasl|security)\..*", "TLS's versions and ciphers are OpenSSL's defaults on this machine"),
)
_FILTERS = "filters are topics, topics.exclude, groups, groups.exclude and config.properties.exclude"
_AS_IT_IS_ANYWAY: Mapping[str, tuple[tuple[str, ...], str]] = {
    "auto.offset.reset": (("earliest",), "a copy begins where the source's log does, never at its end"),
    "refresh.topics.enabled": (("true",), "new topics are always found"),
    "refresh.groups.enabled": (("true",), "groups are looked at whenever offsets are synced"),
    "replication.policy.internal.topic.separator.enabled": (
        ("true",),
        "MirrorMaker's topics are named with the separator",
    ),
    "topic.filter.class": (("org.apache.kafka.connect.mirror.defaulttopicfilter",), _FILTERS),
    "group.filter.class": (("org.apache.kafka.connect.mirror.defaultgroupfilter",), _FILTERS),
    "config.property.filter.class": (("org.apache.kafka.connect.mirror.defaultconfigpropertyfilter",), _FILTERS),
}
"""Keys of which one value says what is done in any case: that value, in lower case, and what is done where another one is given."""
_SECURITY = frozenset(
    {
        "security.protocol",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "sasl.mechanism",
        "sasl.jaas.config",
    }
)
"""Keys that count for all connections to a cluster, under the names that they have."""
_SECURITY_OF_CLUSTER = "security"
_PEM_ONLY = frozenset({"ssl.truststore.location", "ssl.keystore.location"})
_REFUSED = (
    (
        r"ssl\.(truststore|keystore)\.password",
        "none: stores are PEM files, which have no password (ssl.truststore.type=PEM, ssl.keystore.type=PEM)",
    ),
    (
        r"ssl\.(truststore\.certificates|keystore\.certificate\.chain|keystore\.key)",
        "none: name a PEM file with ssl.truststore.location or ssl.keystore.location",
    ),
    (
        r"sasl\.(kerberos|oauthbearer|login|client)\..*",
        "none: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 are there, by sasl.mechanism and sasl.jaas.config",
    ),
)
_FLOW = re.compile(r"^(?P<source>[^.\s]+?)->(?P<target>[^.\s]+)\.(?P<rest>.+)$")
_CLIENT = re.compile(
    r"^(?P<side>consumer|producer|admin|source\.consumer|target\.producer|source\.admin|target\.admin)\.(?P<rest>.+)$"
)


@dataclass(slots=True)
class _Reading:
    clusters: tuple[str, ...]
    bootstrap: dict[str, str] = field(default_factory=dict)
    everywhere: dict[str, str] = field(default_factory=dict)
    by_cluster: dict[str, dict[str, str]] = field(default_factory=dict)
    by_flow: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    def note(self, key: str, fate: Fate, explanation: str) -> None:
        self.verdicts.append(Verdict(key, fate, explanation))


def is_mirror_maker_file(properties: Mapping[str, str]) -> bool:
    """Whether these are MirrorMaker 2's properties rather than ours."""
    return "clusters" in properties and "link.name" not in properties


def read_mirror_maker_file(properties: Mapping[str, str]) -> MirrorMakerFile:
    """The flows that the file enables. UnusableFile names the key, the value and what is accepted."""
    clusters = tuple(name.strip() for name in properties.get("clusters", "").split(",") if name.strip())
    if len(clusters) < 2:
        raise UnusableFile("clusters", properties.get("clusters", ""), "two or more names, comma-separated")
    reading = _Reading(clusters)
    reading.note("clusters", Fate.USED, f"the names of {len(clusters)} clusters")
    for key, value in properties.items():
        if key != "clusters":
            _read(reading, key, value)
    flows = tuple(_flow(reading, source, target) for source, target in _enabled(reading))
    if not flows:
        raise UnusableFile("clusters", ",".join(clusters), "at least one flow: set source->target.enabled=true")
    return MirrorMakerFile(flows, tuple(reading.verdicts))


def _read(reading: _Reading, key: str, value: str) -> None:
    flow = _FLOW.match(key)
    if flow is not None:
        source, target, rest = flow["source"], flow["target"], flow["rest"]
        if source not in reading.clusters or target not in reading.clusters:
            raise UnusableFile(key, value, f"clusters of the list: {', '.join(reading.clusters)}")
        settings = reading.by_flow.setdefault((source, target), {})
        if rest == "enabled":
            settings["enabled"] = value
            reading.note(key, Fate.USED, "the flow is mirrored" if _is_true(value) else "the flow is left alone")
        else:
            _translate(reading, key, rest, value, settings)
        return
    cluster, _, rest = key.partition(".")
    if cluster in reading.clusters and rest:
        if rest == "bootstrap.servers":
            reading.bootstrap[cluster] = value
            reading.note(key, Fate.USED, "where the cluster is")
        else:
            _translate(reading, key, rest, value, reading.by_cluster.setdefault(cluster, {}))
        return
    _translate(reading, key, key, value, reading.everywhere)


def _translate(reading: _Reading, key: str, name: str, value: str, settings: dict[str, str]) -> None:
    """Put one setting, by our name, into `settings`, and note what was done."""
    client = _CLIENT.match(name)
    of_cluster = name if client is None else client["rest"]
    if of_cluster in _SECURITY:
        settings[f"{_SECURITY_OF_CLUSTER}:{of_cluster}"] = value
        reading.note(key, Fate.USED, "for all connections to the cluster")
    elif client is not None:
        _translate_client(reading, key, client["side"].rpartition(".")[2], client["rest"], value, settings)
    elif name == "replication.policy.class":
        settings["topic.naming.policy"] = _policy(key, value).value
        reading.note(key, Fate.USED, f"topic.naming.policy={settings['topic.naming.policy']}")
    elif name == "exactly.once.source.support":
        settings[_TRANSACTIONS] = "true" if value.strip().lower() == "enabled" else "false"
        reading.note(key, Fate.USED, f"{_TRANSACTIONS}={settings[_TRANSACTIONS]}; records arrive once either way")
    elif name in _RENAMED:
        settings[_RENAMED[name]] = value
        reading.note(key, Fate.USED, f"as {_RENAMED[name]}")
    elif name in _OWN or name.startswith("antipode."):
        settings[name] = value
        reading.note(key, Fate.USED, "ours")
    elif name in _SECONDS:
        _translate_interval(reading, key, name, value, settings)
    else:
        _judge(reading, key, name, value)


def _translate_interval(reading: _Reading, key: str, name: str, value: str, settings: dict[str, str]) -> None:
    """MirrorMaker takes a negative interval for never."""
    milliseconds, switch = _milliseconds(key, value), name.replace(".interval.seconds", ".enabled")
    if milliseconds >= 0:
        settings[_SECONDS[name]] = str(max(1000, milliseconds))
        reading.note(key, Fate.USED, f"as {_SECONDS[name]}")
    elif switch in _RENAMED:
        settings[_RENAMED[switch]] = "false"
        reading.note(key, Fate.USED, f"{_RENAMED[switch]}=false, since a negative interval means never")
    else:
        reading.note(key, Fate.NOT_HONOURED, "new topics are always found")


def _translate_client(reading: _Reading, key: str, side: str, name: str, value: str, settings: dict[str, str]) -> None:
    known = {"consumer": _CONSUMER, "producer": _PRODUCER}.get(side, {})
    if name in known:
        # Kept under the side that it is for: a cluster's producer settings do not count where it is the source.
        settings[f"{side}:{known[name]}"] = value
        reading.note(key, Fate.USED, f"as {known[name]}")
    else:
        _judge(reading, key, name, value)


def _judge(reading: _Reading, key: str, name: str, value: str) -> None:
    if name in _AS_IT_IS_ANYWAY:
        accepted, otherwise = _AS_IT_IS_ANYWAY[name]
        is_so = value.strip().lower() in accepted
        reading.note(key, Fate.NOT_NEEDED if is_so else Fate.NOT_HONOURED, "it is so anyway" if is_so else otherwise)
        return
    for pattern, explanation in _REFUSED:
        if re.fullmatch(pattern, name):
            raise UnusableFile(key, "(hidden)" if "password" in name or "key" in name else value, explanation)
    for patterns, fate in ((_NOT_NEEDED, Fate.NOT_NEEDED), (_NOT_HONOURED, Fate.NOT_HONOURED)):
        for pattern, explanation in patterns:
            if re.fullmatch(pattern, name):
                reading.note(key, fate, explanation)
                return
    reading.note(key, Fate.UNKNOWN, "neither MirrorMaker's as far as known, nor ours")


def _policy(key: str, value: str) -> NamingPolicy:
    policies = {DEFAULT_POLICY: NamingPolicy.PREFIX, IDENTITY_POLICY: NamingPolicy.IDENTITY}
    if value not in policies:
        raise UnusableFile(key, value, f"{DEFAULT_POLICY} or {IDENTITY_POLICY}; topic.naming.table serves others")
    return policies[value]


def _milliseconds(key: str, value: str) -> int:
    try:
        return int(value) * 1000
    except ValueError as error:
        raise UnusableFile(key, value, "a whole number of seconds") from error


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"


def _enabled(reading: _Reading) -> Iterable[tuple[str, str]]:
    return [flow for flow, settings in reading.by_flow.items() if _is_true(settings.get("enabled", "false"))]


def _flow(reading: _Reading, source: str, target: str) -> Flow:
    for cluster in (source, target):
        if cluster not in reading.bootstrap:
            raise UnusableFile(f"{cluster}.bootstrap.servers", "", "host:port[,host:port...]")
    settings = {
        # MirrorMaker's own defaults where ours are others.
        "sync.group.offsets.enabled": "false",
        "sync.topic.acls.enabled": "true",
        "offset-syncs.topic.location": "source",
        "isolation.level": "read_uncommitted",
        "replication.factor": "2",
    }
    for given, side in (
        (reading.everywhere, None),
        (reading.by_cluster.get(source, {}), "consumer"),
        (reading.by_cluster.get(target, {}), "producer"),
        (reading.by_flow[source, target], None),
    ):
        for name, value in given.items():
            prefix, separator, known = name.rpartition(":")
            if prefix == _SECURITY_OF_CLUSTER:
                for end in _ends_of(side):
                    settings[f"{end}.{known}"] = value
            elif not separator or side is None or prefix == side:
                settings[known] = value
    settings.pop("enabled", None)
    _demand_pem(settings)
    settings |= {
        "link.mode": "translate",
        "link.name": f"{source}-{target}",
        "source.alias": source,
        "target.alias": target,
        "source.bootstrap.servers": reading.bootstrap[source],
        "target.bootstrap.servers": reading.bootstrap[target],
    }
    return Flow(source, target, settings)


def _ends_of(side: str | None) -> tuple[str, ...]:
    """The ends that a cluster's security is for: the source is consumed from, the target produced to; without a cluster it is for both."""
    return {None: ("source", "target"), "consumer": ("source",), "producer": ("target",)}[side]


def _demand_pem(settings: Mapping[str, str]) -> None:
    """Java's stores are JKS unless the file says otherwise."""
    for end in ("source", "target"):
        for location in sorted(_PEM_ONLY):
            kind = location.replace("location", "type")
            if settings.get(f"{end}.{location}") and settings.get(f"{end}.{kind}", "JKS").upper() != "PEM":
                raise UnusableFile(
                    kind, settings.get(f"{end}.{kind}", "(not set)"), f"PEM, with a PEM file as {location}"
                )
