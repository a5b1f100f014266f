"""The settings of `link.mode=translate`, and the settings of groups and ACLs: names at the target,
transactions there, and MirrorMaker 2's topics.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from mirror.link.core.topic_naming import Naming, NamingPolicy, parse_table
from mirror.settings.values import ALIAS, MIB, ExistingTarget, OffsetSyncsLocation, Patterns
from runtime.configuration import ConfigurationError, Settings


class TranslateSettings(Settings):
    """The part of `MirrorConfig` that concerns groups, ACLs and translate links."""

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
        default=16 * MIB,
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
    group_whitelist: Patterns = Field(
        default=(".*",), alias="groups", description="regular expressions of consumer groups, comma-separated"
    )
    group_blacklist: Patterns = Field(
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
    acl_principal_blacklist: Patterns = Field(
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
        description="true mirrors heartbeats regardless of the filters, because its tools need the heartbeats of upstream clusters",
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

    @model_validator(mode="after")
    def _transactions_end_in_time(self) -> Self:
        if (
            self.is_transactional
            and max(self.commit_hold_ms, self.commit_interval_ms) * 2 > self.transaction_timeout_ms
        ):
            raise ConfigurationError(
                "antipode.target.transactions.timeout.ms",
                str(self.transaction_timeout_ms),
                "at least twice the commit interval and hold time: the target would abort what is still written",
            )
        return self

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
