"""Reads a MirrorMaker 2 file (`connect-mirror-maker.properties`) unchanged and gives a verdict on
each key.

MirrorMaker's rules apply: `source->target.key` takes precedence over `key`; settings of clients may
be given for a cluster (`source.consumer.key`) or for a flow (`source->target.consumer.key`); other
settings have no effect for a cluster. Each enabled flow becomes the settings of one translate link.
Every key of the file gets a verdict (`core/mirror_maker_keys.py`), so no key is ignored silently. A
file that needs a missing feature (Kerberos, a custom policy class) is refused, because mirroring
without it would be worse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.link.core.topic_naming import NamingPolicy
from mirror.settings.core.mirror_maker_keys import (
    BESIDE,
    CONSUMER,
    NOT_CLIENTS,
    OWN,
    PRODUCER,
    RENAMED,
    SECONDS,
    SECURITY,
    TRANSACTIONS,
    Fate,
    UnusableFile,
    judge,
)

DEFAULT_POLICY = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
POLICIES: Final = {
    DEFAULT_POLICY: NamingPolicy.PREFIX,
    IDENTITY_POLICY: NamingPolicy.IDENTITY,
    # A policy class from before Kafka had its own (3.0), with the same name.
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": NamingPolicy.IDENTITY,
}
EXACTLY_ONCE: Final[Mapping[str, str]] = {
    "disabled": "false",
    # for Connect's workers: they fence each other, and still write without transactions
    "preparing": "false",
    "enabled": "true",
    "required": "true",
}
"""Values of `exactly.once.source.support`, and ours of antipode.target.transactions."""
DEFAULTS: Final[Mapping[str, str]] = {
    "blacklist": r"mm2.*\.internal,.*\.replica,__.*",
    "sync.group.offsets.enabled": "false",
    "sync.topic.acls.enabled": "true",
    "offset-syncs.topic.location": "source",
    "isolation.level": "read_uncommitted",
    "replication.factor": "2",
}
"""MirrorMaker's defaults where ours differ."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A key of the file, and its effect."""

    key: str
    fate: Fate
    explanation: str


@dataclass(frozen=True, slots=True)
class Flow:
    """One `source->target`, the settings of its translate link, and the file's key for each
    setting.
    """

    source: str
    target: str
    settings: Mapping[str, str]
    keys: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MirrorMakerFile:
    """The enabled flows, and a verdict for each key in the order of the file."""

    flows: tuple[Flow, ...]
    verdicts: tuple[Verdict, ...]


_BOTH, _SOURCE, _TARGET = "", "source", "target"
"""The ends that a setting is for."""
_CLIENT = re.compile(r"^((?P<end>source|target)\.)?(?P<side>consumer|producer|admin)\.(override\.)?(?P<name>.+)$")
_CLUSTER_OF_FLOW = re.compile(r"^(?P<end>source|target)\.cluster\.(?P<name>.+)$")
_END_OF_SIDE = {"consumer": _SOURCE, "producer": _TARGET, "admin": _BOTH}


class _Given(NamedTuple):
    """A value, and the key of the file that gave it."""

    value: str
    key: str


_Settings = dict[tuple[str, str], _Given]
"""Settings by the end that they belong to and by our name."""


@dataclass(slots=True)
class _Reading:
    clusters: tuple[str, ...]
    keys: frozenset[str]
    everywhere: _Settings = field(default_factory=dict)
    by_cluster: dict[str, _Settings] = field(default_factory=dict)
    by_flow: dict[tuple[str, str], _Settings] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    def note(self, key: str, fate: Fate, explanation: str) -> None:
        self.verdicts.append(Verdict(key, fate, explanation))

    def cluster_of(self, text: str) -> tuple[str, str] | None:
        """The cluster with whose name `text` begins, and the part after the following full stop;
        names may contain full stops.
        """
        found = [name for name in self.clusters if text.startswith(f"{name}.")]
        cluster = max(found, key=len, default=None)
        return None if cluster is None else (cluster, text[len(cluster) + 1 :])

    def is_enabled(self, source: str, target: str) -> bool:
        given = self.by_flow.get((source, target), {}).get((_BOTH, "enabled"))
        given = given or self.everywhere.get((_BOTH, "enabled"))
        return given is not None and _is_true(given.value)


def is_mirror_maker_file(properties: Mapping[str, str]) -> bool:
    """True if the properties are MirrorMaker 2's rather than ours."""
    return "clusters" in properties and "link.name" not in properties


def read_mirror_maker_file(properties: Mapping[str, str]) -> MirrorMakerFile:
    """The flows that the file enables. UnusableFile names the key, the value and what is
    accepted.
    """
    names = (name.strip() for name in properties.get("clusters", "").split(","))
    clusters = tuple(dict.fromkeys(name for name in names if name))
    if len(clusters) < 2:
        raise UnusableFile("clusters", properties.get("clusters", ""), "two or more names, comma-separated")
    reading = _Reading(clusters, frozenset(properties))
    for key, value in properties.items():
        if key == "clusters":
            reading.note(key, Fate.USED, f"the names of {len(clusters)} clusters")
        else:
            _read(reading, key, value)
    pairs = [(source, target) for source in clusters for target in clusters if source != target]
    flows = tuple(_flow(reading, source, target) for source, target in pairs if reading.is_enabled(source, target))
    if not flows:
        raise UnusableFile("clusters", ",".join(clusters), "at least one flow: set source->target.enabled=true")
    return MirrorMakerFile(flows, tuple(reading.verdicts))


def _read(reading: _Reading, key: str, value: str) -> None:
    source, arrow, rest = key.partition("->")
    found = reading.cluster_of(rest if arrow else key)
    if arrow and (source not in reading.clusters or found is None):
        if key.endswith(".enabled") and _is_true(value):
            raise UnusableFile(key, value, f"clusters of the list: {', '.join(reading.clusters)}")
        reading.note(
            key, Fate.NOT_HONOURED, "there is no such flow between the clusters of the list, nor for MirrorMaker"
        )
    elif found is None:
        _translate(reading, key, key, value, reading.everywhere)
    elif arrow:
        target, name = found
        _translate(reading, key, name, value, reading.by_flow.setdefault((source, target), {}))
    else:
        cluster, name = found
        _translate_of_cluster(reading, key, name, value, reading.by_cluster.setdefault(cluster, {}))


def _translate_of_cluster(reading: _Reading, key: str, name: str, value: str, settings: _Settings) -> None:
    """A cluster has its addresses, its clients' settings, and what MirrorMaker's worker there
    reads.
    """
    if name == "bootstrap.servers":
        settings[_BOTH, name] = _Given(value, key)
        reading.note(key, Fate.USED, "where the cluster is")
    elif name in RENAMED or name in SECONDS or name in ("replication.policy.class", "enabled"):
        remark = "as for MirrorMaker, it counts for a flow or for the whole file, not for a cluster"
        reading.note(key, Fate.NOT_HONOURED, remark)
    else:
        _translate(reading, key, name, value, settings)


def _translate(reading: _Reading, key: str, name: str, value: str, settings: _Settings) -> None:
    """Put one setting under our name into `settings`, and note the effect."""
    if (client := _CLIENT.match(name)) and not NOT_CLIENTS.fullmatch(name):
        end, side = client["end"] or _END_OF_SIDE[client["side"]], client["side"]
        _translate_client(reading, key, client["name"], value, settings, end=end, side=side)
    elif cluster := _CLUSTER_OF_FLOW.match(name):
        _translate_client(reading, key, cluster["name"], value, settings, end=cluster["end"], side="cluster")
    elif name in SECURITY:
        settings[_BOTH, name] = _Given(value, key)
        reading.note(key, Fate.USED, "for all connections to the cluster")
    elif name == "enabled":
        if value.strip().lower() not in ("true", "false"):
            raise UnusableFile(key, value, "true or false")
        settings[_BOTH, name] = _Given(value, key)
        reading.note(key, Fate.USED, "mirrored" if _is_true(value) else "left alone")
    elif name == "replication.policy.class":
        policy = _policy(key, value).value
        settings[_BOTH, "topic.naming.policy"] = _Given(policy, key)
        reading.note(key, Fate.USED, f"topic.naming.policy={policy}")
    elif name == "exactly.once.source.support":
        # For a cluster it counts where that is written to.
        is_on = _exactly_once(key, value)
        settings[_TARGET, TRANSACTIONS] = _Given(is_on, key)
        reading.note(key, Fate.USED, f"{TRANSACTIONS}={is_on}; records arrive once either way")
    elif name in RENAMED and (present := _present_spelling(key)) in reading.keys:
        reading.note(key, Fate.NOT_HONOURED, f"{present} is used, which is in the file too")
    elif name in RENAMED:
        settings[_BOTH, RENAMED[name]] = _Given(value, key)
        reading.note(key, Fate.USED, f"as {RENAMED[name]}{BESIDE.get(RENAMED[name], '')}")
    elif name in OWN or name.startswith("antipode."):
        settings[_BOTH, name] = _Given(value, key)
        reading.note(key, Fate.USED, "ours")
    elif name in SECONDS:
        _translate_interval(reading, key, name, value, settings)
    else:
        reading.note(key, *judge(key, name, value))


def _present_spelling(key: str) -> str:
    """The current name of a key that MirrorMaker used in its first years; empty for other keys."""
    return f"{key.removesuffix('blacklist')}exclude" if key.endswith(".blacklist") else ""


def _translate_interval(reading: _Reading, key: str, name: str, value: str, settings: _Settings) -> None:
    """Translate an interval. For MirrorMaker a negative one means never."""
    milliseconds, switch = _milliseconds(key, value), name.replace(".interval.seconds", ".enabled")
    if milliseconds >= 0:
        settings[_BOTH, SECONDS[name]] = _Given(str(max(1000, milliseconds)), key)
        reading.note(key, Fate.USED, f"as {SECONDS[name]}")
    elif switch in RENAMED:
        settings[_BOTH, RENAMED[switch]] = _Given("false", key)
        reading.note(key, Fate.USED, f"{RENAMED[switch]}=false, since a negative interval means never")
    else:
        reading.note(key, Fate.NOT_HONOURED, "new topics are always found")


def _translate_client(
    reading: _Reading, key: str, name: str, value: str, settings: _Settings, *, end: str, side: str
) -> None:
    """A setting of the connections to one end. A consumer's counts at the source and a producer's
    at the target, and nowhere else.
    """
    known = {("consumer", _SOURCE): CONSUMER, ("producer", _TARGET): PRODUCER}.get((side, end), {})
    if name in SECURITY:
        settings[end, name] = _Given(value, key)
        reading.note(key, Fate.USED, "for all connections to the cluster")
    elif name in known:
        fitted, remark = known[name].fitted(value)
        settings[end, known[name].name] = _Given(fitted, key)
        reading.note(key, Fate.USED, remark)
    elif side == "cluster" and name == "bootstrap.servers":
        settings[_BOTH, f"{end}.{name}"] = _Given(value, key)
        reading.note(key, Fate.USED, "where the cluster is, for this flow")
    elif side == "cluster" and name == "alias":
        reading.note(key, Fate.NOT_NEEDED, "the flow's name says it")
    else:
        reading.note(key, *judge(key, name, value))


def _exactly_once(key: str, value: str) -> str:
    """The effect of `exactly.once.source.support` on transactions; `required` is Connect's value of
    `exactly.once.support`.
    """
    given = value.strip().lower()
    if given not in EXACTLY_ONCE:
        raise UnusableFile(key, value, f"{', '.join(EXACTLY_ONCE)}, in upper or lower case")
    return EXACTLY_ONCE[given]


def _policy(key: str, value: str) -> NamingPolicy:
    if value not in POLICIES:
        raise UnusableFile(key, value, f"{DEFAULT_POLICY} or {IDENTITY_POLICY}; topic.naming.table serves others")
    return POLICIES[value]


def _milliseconds(key: str, value: str) -> int:
    try:
        return int(value) * 1000
    except ValueError as error:
        raise UnusableFile(key, value, "a whole number of seconds") from error


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"


def _flow(reading: _Reading, source: str, target: str) -> Flow:
    given = {name: _Given(value, "") for name, value in DEFAULTS.items()}
    _count(given, reading.everywhere)
    for cluster, end in ((source, _SOURCE), (target, _TARGET)):
        _count_of_cluster(given, reading.by_cluster.get(cluster, {}), end)
    _count(given, reading.by_flow.get((source, target), {}))
    given.pop("enabled", None)
    settings = {name: one.value for name, one in given.items()}
    for cluster, end in ((source, _SOURCE), (target, _TARGET)):
        if not settings.get(f"{end}.bootstrap.servers"):
            raise UnusableFile(f"{cluster}.bootstrap.servers", "", "host:port[,host:port...]")
    settings |= {
        "link.mode": "translate",
        "link.name": f"{source}-{target}",
        "source.alias": source,
        "target.alias": target,
    }
    return Flow(source, target, settings, {name: one.key for name, one in given.items() if one.key})


def _count(settings: dict[str, _Given], given: _Settings) -> None:
    """The keys for the whole file or for a flow; security without an end is for both."""
    for (end, name), one in given.items():
        if name not in SECURITY:
            settings[name] = one
            continue
        for its_end in (end,) if end else (_SOURCE, _TARGET):
            settings[f"{its_end}.{name}"] = one


def _count_of_cluster(settings: dict[str, _Given], given: _Settings, end: str) -> None:
    """The keys for a cluster that is at this end of the flow. Security of its clients for the other
    end is better than none.
    """
    other = _TARGET if end == _SOURCE else _SOURCE
    for rank in (other, _BOTH, end):
        for (its_end, name), one in given.items():
            if its_end != rank:
                continue
            if name in SECURITY or name == "bootstrap.servers":
                settings[f"{end}.{name}"] = one
            elif rank != other:
                settings[name] = one
