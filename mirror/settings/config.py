"""The mirror's settings, read from a properties file; MirrorMaker's classic names are accepted
beside our own.

One daemon carries one link. The link's record (sites, filters, epoch) is not repeated here: filters
given here are compared with the record, so that a file with other filters is an error and not a
surprise.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from mirror.link.core.link_roles import GapPolicy
from mirror.link.core.naming import Naming, NamingPolicy, parse_table
from mirror.link.core.slots import Strategy
from mirror.settings.core.mirror_maker_file import Flow, Verdict, is_mirror_maker_file, read_mirror_maker_file
from mirror.settings.core.mirror_maker_keys import NamesFormat, UnusableFile
from mirror.settings.core.own_keys import NAMING_TABLE, SESSION, SHARING, TRANSACTIONAL, idle_keys
from runtime.addresses import HostPort, parse_host_port, parse_host_ports
from runtime.configuration import ConfigurationError, Settings, load_settings
from runtime.protection import check_mirror_protection
from wire.access.settings import CONTROL_KEYS
from wire.client.security import SECURITY_KEYS, ClientSecurity, load_security
from wire.protocol.compressed_stream import LEVEL_MAX, LEVEL_MIN

OLD_SPELLINGS = {
    "queue.enqueueTimeout.ms": "queue.enqueue.timeout.ms",
    "consumer.bootstrap.servers": "source.bootstrap.servers",
    "producer.bootstrap.servers": "target.bootstrap.servers",
    "topics": "whitelist",
    "topics.blacklist": "blacklist",
    "topics.exclude": "blacklist",
}
"""Names of earlier mirrors, and ours for the same thing."""

_MIB = 1024 * 1024
ENDS = ("source", "target")
ALIAS = r"^[A-Za-z0-9._-]+$"


class LinkMode(enum.Enum):
    """The kind of the target."""

    EXACT = "exact"
    TRANSLATE = "translate"


class ExistingTarget(enum.Enum):
    """The reaction to a target topic with records that are neither noted nor the source's."""

    HALT = "halt"
    APPEND = "append"


class OffsetSyncsLocation(enum.Enum):
    """The cluster that holds MirrorMaker 2's offset syncs."""

    SOURCE = "source"
    TARGET = "target"


class CompressionType(enum.Enum):
    """The compression between the mirror and one end."""

    NONE = "none"
    ZSTD = "zstd"


class MirrorConfig(Settings):
    """Settings of one mirror daemon."""

    link_name: str = Field(alias="link.name", min_length=1, description="the name of a link that the target site has")
    link_mode: LinkMode = Field(default=LinkMode.EXACT, alias="link.mode", description="exact or translate")
    site_agents: tuple[HostPort, ...] = Field(
        default=(),
        alias="site.agents",
        description="gRPC addresses of the target site's brokers: host:port[,host:port...]",
    )
    source_bootstrap_servers: tuple[HostPort, ...] = Field(
        default=(), alias="source.bootstrap.servers", description="host:port list; empty: as in the link record"
    )
    target_bootstrap_servers: tuple[HostPort, ...] = Field(
        default=(), alias="target.bootstrap.servers", description="host:port list; empty: as the site agents report"
    )
    source_security: ClientSecurity = Field(
        default_factory=ClientSecurity,
        alias="source.security",
        description="source.security.protocol, source.ssl.*, source.sasl.* as in Kafka's clients",
    )
    target_security: ClientSecurity = Field(
        default_factory=ClientSecurity,
        alias="target.security",
        description="target.security.protocol, target.ssl.*, target.sasl.* as in Kafka's clients",
    )
    whitelist: tuple[str, ...] | None = Field(
        default=None,
        alias="whitelist",
        description="regular expressions, comma-separated; of an exact link the link's own",
    )
    blacklist: tuple[str, ...] | None = Field(
        default=None,
        alias="blacklist",
        description="regular expressions, comma-separated; of an exact link the link's own",
    )
    streams: int = Field(default=2, alias="num.streams", ge=1, le=64, description="fetchers a source broker, 1 to 64")
    producers: int = Field(default=2, alias="num.producers", ge=1, le=64, description="producers, 1 to 64")
    queue_size_bytes: int = Field(
        default=32 * _MIB, alias="queue.byte.size", ge=_MIB, description="bytes held between fetch and acknowledgement"
    )
    queue_enqueue_timeout_ms: int = Field(
        default=-1,
        alias="queue.enqueue.timeout.ms",
        ge=-1,
        description="-1 waits, 0 never waits, more waits that long; batches that find no room are fetched again, never dropped",
    )
    is_abort_on_send_failure: bool = Field(
        default=False,
        alias="abort.on.send.failure",
        description="true ends the daemon when the target refuses a partition for good; false reports it as FAULTED",
    )
    fetch_min_bytes: int = Field(default=1, alias="fetch.min.bytes", ge=0, description="bytes, 0 or more")
    # A little below a power of two: the client receives into buffers of such sizes.
    fetch_max_bytes: int = Field(
        default=4 * _MIB - 64 * 1024, alias="fetch.max.bytes", ge=1024, description="bytes, 1024 or more"
    )
    fetch_interval_ms: int = Field(
        default=3,
        alias="antipode.fetch.interval.ms",
        ge=0,
        le=1000,
        description="least time between two fetches of a stream while answers are small, 0 to 1000 ms; not on sync links",
    )
    fetch_wait_max_ms: int = Field(default=500, alias="fetch.wait.max.ms", ge=0, le=30_000, description="0 to 30000 ms")
    partition_fetch_max_bytes: int = Field(
        default=_MIB, alias="max.partition.fetch.bytes", ge=1024, description="bytes, 1024 or more"
    )
    request_max_bytes: int = Field(
        default=4 * _MIB, alias="max.request.size", ge=1024, description="bytes of batches in one append, 1024 or more"
    )
    in_flight_max: int = Field(
        default=5,
        alias="max.in.flight.requests.per.connection",
        ge=1,
        le=64,
        description="1 to 64; translate links take 64 when it is not given",
    )
    request_timeout_ms: int = Field(default=10_000, alias="request.timeout.ms", ge=100, description="100 ms or more")
    socket_receive_buffer_bytes: int = Field(
        default=-1, alias="socket.receive.buffer.bytes", ge=-1, description="bytes, -1 for the system's default"
    )
    socket_send_buffer_bytes: int = Field(
        default=-1, alias="send.buffer.bytes", ge=-1, description="bytes, -1 for the system's default"
    )
    source_compression_type: CompressionType = Field(
        default=CompressionType.NONE,
        alias="antipode.source.compression.type",
        description="none, or zstd for a narrow line to an Antipode source; batches arrive unchanged",
    )
    source_compression_level: int = Field(
        default=1, alias="antipode.source.compression.level", ge=LEVEL_MIN, le=LEVEL_MAX, description="1 to 19"
    )
    target_compression_type: CompressionType = Field(
        default=CompressionType.NONE,
        alias="antipode.target.compression.type",
        description="none, or zstd for a narrow line to an Antipode target; batches arrive unchanged",
    )
    target_compression_level: int = Field(
        default=1, alias="antipode.target.compression.level", ge=LEVEL_MIN, le=LEVEL_MAX, description="1 to 19"
    )
    topics_refresh_interval_ms: int = Field(
        default=1000, alias="topics.refresh.interval.ms", ge=50, description="50 ms or more"
    )
    link_refresh_interval_ms: int = Field(
        default=1000, alias="link.refresh.interval.ms", ge=50, description="50 ms or more"
    )
    group_sync_interval_ms: int = Field(default=500, alias="group.sync.interval.ms", ge=50, description="50 ms or more")
    config_sync_interval_ms: int = Field(
        default=5000, alias="config.sync.interval.ms", ge=50, description="50 ms or more"
    )
    config_properties_exclude: tuple[str, ...] = Field(
        default=("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"),
        alias="config.properties.exclude",
        description="topic configs that each site keeps for itself: names or regular expressions, comma-separated",
    )
    gap_policy: GapPolicy = Field(
        default=GapPolicy.HALT, alias="antipode.gap.policy", description="halt or skip-and-record"
    )
    metrics_listener: HostPort | None = Field(
        default=None, alias="antipode.metrics.listener", description="host:port, or empty for none"
    )
    figure_names: tuple[NamesFormat, ...] = Field(
        default=(NamesFormat.LEGACY,),
        min_length=1,
        alias="metric.names.formats",
        description="legacy, new or both, comma-separated: by which of MirrorMaker 2's names its figures are shown",
    )
    grpc_listener: HostPort | None = Field(
        default=None, alias="antipode.grpc.listener", description="host:port, or empty for none"
    )
    throttle_bytes_per_second: int = Field(
        default=0, alias="antipode.throttle.bytes.per.second", ge=0, description="bytes fetched a second, 0 no limit"
    )
    high_priority_topics: tuple[str, ...] = Field(
        default=(), alias="antipode.priority.high", description="regular expressions of topics that go first"
    )
    low_priority_topics: tuple[str, ...] = Field(
        default=(), alias="antipode.priority.low", description="regular expressions of topics that go last"
    )
    backfill_bytes: int = Field(
        default=64 * _MIB,
        alias="antipode.backfill.bytes",
        ge=0,
        description="a partition that is further behind counts as backfill and goes after all that is not",
    )
    is_sharing: bool = Field(
        default=False,
        alias="antipode.sharing.enabled",
        description="true shares the link's partitions with the other daemons of the link that say so",
    )
    sharing_zookeeper_connect: str = Field(
        default="",
        alias="antipode.sharing.zookeeper.connect",
        description="host:port[,host:port...][/chroot] through which the daemons share; empty: through a group at the target",
    )
    sharing_strategy: Strategy = Field(
        default=Strategy.STICKY,
        alias="partition.assignment.strategy",
        description="sticky moves as few partitions as possible; roundrobin assigns them in turn; range keeps neighbours together",
    )
    sharing_session_timeout_ms: int = Field(
        default=6000, alias="antipode.sharing.session.timeout.ms", ge=1000, description="1000 ms or more"
    )
    pause_file: Path | None = Field(
        default=None, alias="antipode.pause.file", description="a file in which pauses outlast the daemon, or empty"
    )
    stall_timeout_ms: int = Field(
        default=30_000,
        alias="antipode.stall.timeout.ms",
        ge=100,
        description="100 ms or more without progress after which a partition counts as stalled",
    )
    shutdown_drain_timeout_ms: int = Field(
        default=10_000, alias="shutdown.drain.timeout.ms", ge=0, description="0 ms or more"
    )
    # What follows counts for link.mode=translate alone.
    source_alias: str = Field(
        default="source",
        alias="source.alias",
        pattern=ALIAS,
        description="the source cluster's name: letters, digits, . _ -",
    )
    target_alias: str = Field(
        default="target",
        alias="target.alias",
        pattern=ALIAS,
        description="the target cluster's name: letters, digits, . _ -",
    )
    naming_policy: NamingPolicy = Field(
        default=NamingPolicy.PREFIX, alias="topic.naming.policy", description="prefix, identity or table"
    )
    naming_separator: str = Field(
        default=".",
        alias="replication.policy.separator",
        pattern=ALIAS,
        description="text between alias and topic: letters, digits, . _ -",
    )
    separates_internal_topics: bool = Field(
        default=True,
        alias="replication.policy.internal.topic.separator.enabled",
        description="true names MirrorMaker 2's checkpoints and offset syncs with replication.policy.separator, false with a full stop",
    )
    naming_table: dict[str, str] = Field(
        default_factory=dict, alias="topic.naming.table", description="source=target,... for topic.naming.policy=table"
    )
    replication_factor: int = Field(
        default=-1,
        alias="replication.factor",
        ge=-1,
        description="replicas of topics made at the target, -1 its default",
    )
    heartbeats_replication_factor: int | None = Field(
        default=None,
        alias="heartbeats.topic.replication.factor",
        ge=-1,
        description="replicas, or as replication.factor",
    )
    checkpoints_replication_factor: int | None = Field(
        default=None,
        alias="checkpoints.topic.replication.factor",
        ge=-1,
        description="replicas, or as replication.factor",
    )
    offset_syncs_replication_factor: int | None = Field(
        default=None,
        alias="offset-syncs.topic.replication.factor",
        ge=-1,
        description="replicas, or as replication.factor",
    )
    is_read_committed: bool = Field(
        default=True,
        alias="isolation.level",
        description="read_committed leaves aborted records out, read_uncommitted not",
    )
    existing_target: ExistingTarget = Field(
        default=ExistingTarget.HALT,
        alias="antipode.target.existing",
        description="halt or append, where a target topic has records that are not the source's",
    )
    is_transactional: bool = Field(
        default=False,
        alias="antipode.target.transactions",
        description="true writes in transactions, so that records and the offsets noted of them are seen together",
    )
    commit_interval_ms: int = Field(
        default=100,
        alias="antipode.target.transactions.commit.interval.ms",
        ge=10,
        le=60_000,
        description="10 to 60000 ms until a transaction at the target is committed",
    )
    commit_hold_ms: int = Field(
        default=1000,
        alias="antipode.target.transactions.hold.ms",
        ge=10,
        le=60_000,
        description="10 to 60000 ms that a commit waits for the rest of a transaction of the source, or for appends that wait",
    )
    commit_bytes_max: int = Field(
        default=16 * _MIB,
        alias="antipode.target.transactions.bytes",
        ge=1024,
        description="bytes in one transaction at the target, 1024 or more",
    )
    transaction_timeout_ms: int = Field(
        default=60_000,
        alias="antipode.target.transactions.timeout.ms",
        ge=1000,
        description="1000 ms or more until the target aborts what a silent mirror left open; its own limit counts too",
    )
    group_whitelist: tuple[str, ...] = Field(
        default=(".*",), alias="groups", description="regular expressions of consumer groups, comma-separated"
    )
    group_blacklist: tuple[str, ...] = Field(
        default=("console-consumer-.*", "connect-.*", "__.*"),
        alias="groups.exclude",
        description="groups that are left out; wins over groups",
    )
    is_syncing_groups: bool = Field(
        default=True, alias="sync.group.offsets.enabled", description="true commits groups' offsets at the target"
    )
    is_syncing_configs: bool = Field(
        default=True, alias="sync.topic.configs.enabled", description="true copies topic configs from the source"
    )
    is_syncing_acls: bool | None = Field(
        default=None,
        alias="sync.topic.acls.enabled",
        description="true or false; on an exact link ACLs and quotas are carried unless it is false, on a translate "
        "link those of topics only if it is true, for reading",
    )
    acl_sync_interval_ms: int = Field(default=5000, alias="acl.sync.interval.ms", ge=50, description="50 ms or more")
    acl_principal_blacklist: tuple[str, ...] = Field(
        default=(),
        alias="antipode.acl.principals.exclude",
        description="regular expressions of principals, such as User:admin, whose ACLs are not mirrored",
    )
    is_emitting_heartbeats: bool = Field(
        default=True,
        alias="emit.heartbeats.enabled",
        description="true writes MirrorMaker 2's heartbeats at the target, and at the source in place of a link back",
    )
    is_carrying_heartbeats: bool = Field(
        default=True,
        alias="heartbeats.replication.enabled",
        description="true mirrors heartbeats whatever the filters say, as its tools need to see what is upstream",
    )
    heartbeats_interval_ms: int = Field(
        default=1000, alias="emit.heartbeats.interval.ms", ge=50, description="50 ms or more"
    )
    is_emitting_checkpoints: bool = Field(
        default=True, alias="emit.checkpoints.enabled", description="true writes MirrorMaker 2's checkpoints"
    )
    checkpoints_interval_ms: int = Field(
        default=5000, alias="emit.checkpoints.interval.ms", ge=50, description="50 ms or more"
    )
    is_emitting_offset_syncs: bool = Field(
        default=True, alias="emit.offset-syncs.enabled", description="true writes MirrorMaker 2's offset syncs"
    )
    offset_syncs_location: OffsetSyncsLocation = Field(
        default=OffsetSyncsLocation.TARGET, alias="offset-syncs.topic.location", description="source or target"
    )

    @field_validator("site_agents", "source_bootstrap_servers", "target_bootstrap_servers", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> object:
        if isinstance(value, str):
            return parse_host_ports(value) if value.strip() else ()
        return value

    @field_validator("metrics_listener", "grpc_listener", mode="before")
    @classmethod
    def _listener(cls, value: object) -> object:
        if isinstance(value, str):
            return parse_host_port(value) if value.strip() else None
        return value

    @field_validator("pause_file", mode="before")
    @classmethod
    def _no_file(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("pause_file")
    @classmethod
    def _has_its_directory(cls, value: Path | None) -> Path | None:
        if value is not None and not value.absolute().parent.is_dir():
            raise ValueError(f"there is no directory {value.absolute().parent}")
        return value

    @field_validator(
        "replication_factor",
        "heartbeats_replication_factor",
        "checkpoints_replication_factor",
        "offset_syncs_replication_factor",
    )
    @classmethod
    def _some_replicas(cls, value: int | None) -> int | None:
        if value == 0:
            raise ValueError("1 or more, or -1 for the target's default")
        return value

    @field_validator("is_read_committed", mode="before")
    @classmethod
    def _isolation(cls, value: object) -> object:
        levels = {"read_committed": True, "read_uncommitted": False}
        if isinstance(value, str) and value not in levels:
            raise ValueError("read_committed or read_uncommitted")
        return levels[value] if isinstance(value, str) else value

    @field_validator("naming_table", mode="before")
    @classmethod
    def _table(cls, value: object) -> object:
        return parse_table(value) if isinstance(value, str) else value

    @field_validator(
        "whitelist",
        "blacklist",
        "config_properties_exclude",
        "group_whitelist",
        "group_blacklist",
        "high_priority_topics",
        "low_priority_topics",
        "acl_principal_blacklist",
        "figure_names",
        mode="before",
    )
    @classmethod
    def _comma_list(cls, value: object) -> object:
        return split_patterns(value) if isinstance(value, str) else value

    @field_validator(
        "whitelist",
        "blacklist",
        "config_properties_exclude",
        "group_whitelist",
        "group_blacklist",
        "high_priority_topics",
        "low_priority_topics",
        "acl_principal_blacklist",
    )
    @classmethod
    def _patterns(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for pattern in value or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression ({error})") from error
        return value

    @model_validator(mode="after")
    def _has_its_ends(self) -> Self:
        if self.link_mode is LinkMode.EXACT and not self.site_agents:
            raise ConfigurationError("site.agents", "", "host:port[,host:port...] of the target site's brokers")
        if self.link_mode is LinkMode.TRANSLATE:
            if not self.source_bootstrap_servers:
                raise ConfigurationError("source.bootstrap.servers", "", "host:port[,host:port...] of the source")
            if not self.target_bootstrap_servers:
                raise ConfigurationError("target.bootstrap.servers", "", "host:port[,host:port...] of the target")
            if self.source_alias == self.target_alias:
                raise ConfigurationError("target.alias", self.target_alias, "another name than source.alias")
        if self.is_transactional:
            self._may_be_transactional()
        return self

    def _may_be_transactional(self) -> None:
        key = "antipode.target.transactions"
        if self.link_mode is LinkMode.EXACT:
            raise ConfigurationError(key, "true", "false: an exact link needs none; or link.mode=translate")
        if max(self.commit_hold_ms, self.commit_interval_ms) * 2 > self.transaction_timeout_ms:
            raise ConfigurationError(
                f"{key}.timeout.ms",
                str(self.transaction_timeout_ms),
                "at least twice the commit interval and hold time: the target would abort what is still written",
            )

    @property
    def naming(self) -> Naming:
        """The naming of topics on a translate link."""
        return Naming(
            policy=self.naming_policy,
            source_alias=self.source_alias,
            target_alias=self.target_alias,
            separator=self.naming_separator,
            separates_internal_topics=self.separates_internal_topics,
            table=self.naming_table,
        )


def split_patterns(text: str) -> tuple[str, ...]:
    """A comma-separated list of expressions; blanks and quotes around each are dropped, commas in
    brackets belong to it.
    """
    items = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+", text.strip().strip("\"'"))
    return tuple(item.strip().strip("\"'").strip() for item in items if item.strip())


def load_config(properties: Mapping[str, str]) -> MirrorConfig:
    """Settings from properties; old spellings count unless the present name is there too.
    ConfigurationError as usual.
    """
    mapping: dict[str, object] = dict(properties)
    for old, new in OLD_SPELLINGS.items():
        if old in mapping:
            value = mapping.pop(old)
            mapping.setdefault(new, value)
    for end in ENDS:
        mapping[f"{end}.security"] = _security(end, mapping)
    config = load_settings(MirrorConfig, mapping)
    check_mirror_protection(properties)
    return config


def _security(end: str, mapping: dict[str, object]) -> ClientSecurity:
    """Take an end's security out of the properties; a ConfigurationError names the key as it is in
    the file.
    """
    prefixed = {f"{end}.{name}": name for name in SECURITY_KEYS}
    given = {name: mapping.pop(key) for key, name in prefixed.items() if key in mapping}
    try:
        return load_security(given)
    except ConfigurationError as error:
        raise ConfigurationError(f"{end}.{error.key}", error.value, error.accepted) from error


def load_configs(properties: Mapping[str, str], *, targets: Collection[str] = ()) -> tuple[MirrorConfig, ...]:
    """Load one configuration for each link: a file of our own has one, a MirrorMaker 2 file has one
    for each flow. ConfigurationError as in `load_config`.

    With `targets`, aliases of clusters, only flows that end there: the option of MirrorMaker's for
    a file that several sites share.
    """
    if not is_mirror_maker_file(properties):
        if targets:
            raise ConfigurationError("--clusters", ",".join(targets), "none: it requires a MirrorMaker 2 file")
        return (load_config(properties),)
    try:
        read = read_mirror_maker_file(properties)
    except UnusableFile as error:
        raise ConfigurationError(error.key, error.value, error.accepted) from error
    ends = {flow.target for flow in read.flows}
    if not ends.issuperset(targets):
        raise ConfigurationError(
            "--clusters", ",".join(targets), f"targets of enabled flows: {', '.join(sorted(ends))}"
        )
    return tuple(_load_flow(flow) for flow in read.flows if not targets or flow.target in targets)


def _load_flow(flow: Flow) -> MirrorConfig:
    """Load the configuration of a flow; an error names the key as the file writes it."""
    try:
        return load_config(flow.settings)
    except ConfigurationError as error:
        raise ConfigurationError(flow.keys.get(error.key, error.key), error.value, error.accepted) from error


def verdicts_on(properties: Mapping[str, str]) -> tuple[Verdict, ...]:
    """The verdict on each key of a MirrorMaker 2 file that `load_configs` accepts; of a file of our
    own, the keys without effect.
    """
    if is_mirror_maker_file(properties):
        return read_mirror_maker_file(properties).verdicts
    known = {field.alias or name for name, field in MirrorConfig.model_fields.items()}
    known = (known - {f"{end}.security" for end in ENDS}) | {f"{end}.{key}" for end in ENDS for key in SECURITY_KEYS}
    known |= CONTROL_KEYS
    config = load_config(properties)
    is_translate = config.link_mode is LinkMode.TRANSLATE
    return idle_keys(
        properties,
        known=known,
        old_spellings=OLD_SPELLINGS,
        is_translate=is_translate,
        switched_off=[
            switch
            for switch, is_on in (
                (SHARING, config.is_sharing),
                (SESSION, config.is_sharing or (is_translate and not config.is_transactional)),
                (NAMING_TABLE, config.naming_policy is NamingPolicy.TABLE),
                (TRANSACTIONAL, config.is_transactional),
            )
            if not is_on
        ],
    )
