"""The mirror's settings, read from a properties file; MirrorMaker's classic names are accepted
beside our own.

One daemon carries one link. The link's record (sites, filters, epoch) is not repeated here: filters
given here are compared with the record, so that a file with other filters is an error and not a
surprise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from mirror.link.core.slots import Strategy
from mirror.link.core.topic_naming import NamingPolicy
from mirror.settings.core.mirror_maker_file import Flow, Verdict, is_mirror_maker_file, read_mirror_maker_file
from mirror.settings.core.mirror_maker_keys import NamesFormat, UnusableFile
from mirror.settings.core.own_keys import NAMING_TABLE, SESSION, SHARING, TRANSACTIONAL, idle_keys
from mirror.settings.transfer_settings import TransferSettings
from mirror.settings.translate_settings import TranslateSettings
from mirror.settings.values import LinkMode, Patterns, PatternsOrNone, comma_list
from runtime.addresses import HostPort, checked_zookeeper_connect, parse_host_port, parse_host_ports
from runtime.configuration import ConfigurationError, load_settings
from runtime.security.protection import check_mirror_protection
from wire.access.metrics import METRICS_KEYS
from wire.access.settings import CONTROL_KEYS
from wire.client.security import SECURITY_KEYS, ClientSecurity, load_security

OLD_SPELLINGS = {
    "queue.enqueueTimeout.ms": "queue.enqueue.timeout.ms",
    "consumer.bootstrap.servers": "source.bootstrap.servers",
    "producer.bootstrap.servers": "target.bootstrap.servers",
    "topics": "whitelist",
    "topics.blacklist": "blacklist",
    "topics.exclude": "blacklist",
}
"""Names of earlier mirrors, and ours for the same thing."""
ENDS = ("source", "target")


class MirrorConfig(TransferSettings, TranslateSettings):
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
    whitelist: PatternsOrNone = Field(
        default=None,
        alias="whitelist",
        description="regular expressions, comma-separated; of an exact link the link's own",
    )
    blacklist: PatternsOrNone = Field(
        default=None,
        alias="blacklist",
        description="regular expressions, comma-separated; of an exact link the link's own",
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
    config_properties_exclude: Patterns = Field(
        default=("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"),
        alias="config.properties.exclude",
        description="topic configs that each site keeps for itself: names or regular expressions, comma-separated",
    )
    metrics_listener: HostPort | None = Field(
        default=None, alias="antipode.metrics.listener", description="host:port, or empty for none"
    )
    figure_names: Annotated[tuple[NamesFormat, ...], BeforeValidator(comma_list)] = Field(
        default=(NamesFormat.LEGACY,),
        min_length=1,
        alias="metric.names.formats",
        description="legacy, new or both, comma-separated: the names of MirrorMaker 2 under which its figures are shown",
    )
    grpc_listener: HostPort | None = Field(
        default=None, alias="antipode.grpc.listener", description="host:port, or empty for none"
    )
    is_link_awaited: bool = Field(
        default=False,
        alias="antipode.link.awaited",
        description="true waits for an exact link that the target site does not have yet",
    )
    is_sharing: bool = Field(
        default=False,
        alias="antipode.sharing.enabled",
        description="true shares the link's partitions with the other daemons of the link that say so",
    )
    sharing_zookeeper_connect: Annotated[str, AfterValidator(checked_zookeeper_connect)] = Field(
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
    shutdown_drain_timeout_ms: int = Field(
        default=10_000, alias="shutdown.drain.timeout.ms", ge=0, description="0 ms or more"
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
        if self.is_transactional and self.link_mode is LinkMode.EXACT:
            raise ConfigurationError(
                "antipode.target.transactions", "true", "false: an exact link needs none; or link.mode=translate"
            )
        return self


def load_config(properties: Mapping[str, str]) -> MirrorConfig:
    """Settings from properties; an old spelling is used unless the present name is there too.
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
    known |= CONTROL_KEYS | METRICS_KEYS
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
