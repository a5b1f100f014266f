from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_PHASE_UNSPECIFIED: _ClassVar[LinkPhase]
    MIRRORING: _ClassVar[LinkPhase]
    FENCED: _ClassVar[LinkPhase]
LINK_PHASE_UNSPECIFIED: LinkPhase
MIRRORING: LinkPhase
FENCED: LinkPhase

class Endpoint(_message.Message):
    __slots__ = ("listener", "host", "port", "security_protocol")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    listener: str
    host: str
    port: int
    security_protocol: str
    def __init__(self, listener: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., security_protocol: _Optional[str] = ...) -> None: ...

class BrokerInfo(_message.Message):
    __slots__ = ("node_id", "broker_epoch", "rack", "endpoints", "grpc_address")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    rack: str
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    grpc_address: str
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., rack: _Optional[str] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., grpc_address: _Optional[str] = ...) -> None: ...

class PartitionState(_message.Message):
    __slots__ = ("partition", "leader", "leader_epoch", "partition_epoch", "controller_epoch", "replicas", "isr", "offline_replicas")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    offline_replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., offline_replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class TopicInfo(_message.Message):
    __slots__ = ("name", "topic_id", "configs", "partitions")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    configs: _containers.ScalarMap[str, str]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionState]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., configs: _Optional[_Mapping[str, str]] = ..., partitions: _Optional[_Iterable[_Union[PartitionState, _Mapping]]] = ...) -> None: ...

class LinkSite(_message.Message):
    __slots__ = ("bootstrap_servers", "agents")
    BOOTSTRAP_SERVERS_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    bootstrap_servers: str
    agents: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bootstrap_servers: _Optional[str] = ..., agents: _Optional[_Iterable[str]] = ...) -> None: ...

class LinkRecord(_message.Message):
    __slots__ = ("name", "source_site", "target_site", "mode", "epoch", "active_site", "phase", "leader_epoch_floor", "topic_whitelist", "topic_blacklist", "group_whitelist", "group_blacklist", "is_routed", "sites", "updated_at_ms", "sync_policy", "sync_timeout_ms", "revision", "sync_policy_to_restore", "is_blacklist_complete", "reinstate_policy", "lease_ms", "failover_mode", "failover_lag_records_max", "failover_lag_ms_max", "kept_before_ms", "is_cut_consistent", "sync_bound_ms", "replaced_site", "made_at_ms")
    class SitesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: LinkSite
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[LinkSite, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SITE_FIELD_NUMBER: _ClassVar[int]
    TARGET_SITE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SITE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FLOOR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_WHITELIST_FIELD_NUMBER: _ClassVar[int]
    TOPIC_BLACKLIST_FIELD_NUMBER: _ClassVar[int]
    GROUP_WHITELIST_FIELD_NUMBER: _ClassVar[int]
    GROUP_BLACKLIST_FIELD_NUMBER: _ClassVar[int]
    IS_ROUTED_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SYNC_POLICY_FIELD_NUMBER: _ClassVar[int]
    SYNC_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SYNC_POLICY_TO_RESTORE_FIELD_NUMBER: _ClassVar[int]
    IS_BLACKLIST_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    REINSTATE_POLICY_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_MODE_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_LAG_RECORDS_MAX_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_LAG_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    KEPT_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    IS_CUT_CONSISTENT_FIELD_NUMBER: _ClassVar[int]
    SYNC_BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_SITE_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    source_site: str
    target_site: str
    mode: str
    epoch: int
    active_site: str
    phase: LinkPhase
    leader_epoch_floor: int
    topic_whitelist: _containers.RepeatedScalarFieldContainer[str]
    topic_blacklist: _containers.RepeatedScalarFieldContainer[str]
    group_whitelist: _containers.RepeatedScalarFieldContainer[str]
    group_blacklist: _containers.RepeatedScalarFieldContainer[str]
    is_routed: bool
    sites: _containers.MessageMap[str, LinkSite]
    updated_at_ms: int
    sync_policy: str
    sync_timeout_ms: int
    revision: int
    sync_policy_to_restore: str
    is_blacklist_complete: bool
    reinstate_policy: str
    lease_ms: int
    failover_mode: str
    failover_lag_records_max: int
    failover_lag_ms_max: int
    kept_before_ms: int
    is_cut_consistent: bool
    sync_bound_ms: int
    replaced_site: str
    made_at_ms: int
    def __init__(self, name: _Optional[str] = ..., source_site: _Optional[str] = ..., target_site: _Optional[str] = ..., mode: _Optional[str] = ..., epoch: _Optional[int] = ..., active_site: _Optional[str] = ..., phase: _Optional[_Union[LinkPhase, str]] = ..., leader_epoch_floor: _Optional[int] = ..., topic_whitelist: _Optional[_Iterable[str]] = ..., topic_blacklist: _Optional[_Iterable[str]] = ..., group_whitelist: _Optional[_Iterable[str]] = ..., group_blacklist: _Optional[_Iterable[str]] = ..., is_routed: _Optional[bool] = ..., sites: _Optional[_Mapping[str, LinkSite]] = ..., updated_at_ms: _Optional[int] = ..., sync_policy: _Optional[str] = ..., sync_timeout_ms: _Optional[int] = ..., revision: _Optional[int] = ..., sync_policy_to_restore: _Optional[str] = ..., is_blacklist_complete: _Optional[bool] = ..., reinstate_policy: _Optional[str] = ..., lease_ms: _Optional[int] = ..., failover_mode: _Optional[str] = ..., failover_lag_records_max: _Optional[int] = ..., failover_lag_ms_max: _Optional[int] = ..., kept_before_ms: _Optional[int] = ..., is_cut_consistent: _Optional[bool] = ..., sync_bound_ms: _Optional[int] = ..., replaced_site: _Optional[str] = ..., made_at_ms: _Optional[int] = ...) -> None: ...

class SiteView(_message.Message):
    __slots__ = ("site", "version", "cluster_id", "brokers", "controller_id", "topics", "group_coordinators", "links", "topics_version", "has_known_topics")
    SITE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUP_COORDINATORS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_VERSION_FIELD_NUMBER: _ClassVar[int]
    HAS_KNOWN_TOPICS_FIELD_NUMBER: _ClassVar[int]
    site: str
    version: int
    cluster_id: str
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerInfo]
    controller_id: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicInfo]
    group_coordinators: _containers.RepeatedScalarFieldContainer[int]
    links: _containers.RepeatedCompositeFieldContainer[LinkRecord]
    topics_version: int
    has_known_topics: bool
    def __init__(self, site: _Optional[str] = ..., version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[BrokerInfo, _Mapping]]] = ..., controller_id: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicInfo, _Mapping]]] = ..., group_coordinators: _Optional[_Iterable[int]] = ..., links: _Optional[_Iterable[_Union[LinkRecord, _Mapping]]] = ..., topics_version: _Optional[int] = ..., has_known_topics: _Optional[bool] = ...) -> None: ...

class QuotaEntityPart(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ClientQuota(_message.Message):
    __slots__ = ("entity", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPart]
    values: _containers.ScalarMap[str, float]
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntityPart, _Mapping]]] = ..., values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ScramUser(_message.Message):
    __slots__ = ("name", "credentials")
    class CredentialsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    name: str
    credentials: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., credentials: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DelegationToken(_message.Message):
    __slots__ = ("token_id", "owner", "requester", "renewers", "issued_at_ms", "expires_at_ms", "ends_at_ms")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    owner: str
    requester: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    issued_at_ms: int
    expires_at_ms: int
    ends_at_ms: int
    def __init__(self, token_id: _Optional[str] = ..., owner: _Optional[str] = ..., requester: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., issued_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., ends_at_ms: _Optional[int] = ...) -> None: ...

class GroupConfigs(_message.Message):
    __slots__ = ("group", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    group: str
    configs: _containers.ScalarMap[str, str]
    def __init__(self, group: _Optional[str] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AccessEntry(_message.Message):
    __slots__ = ("principal", "host", "operation", "permission")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class ResourceAcls(_message.Message):
    __slots__ = ("resource_type", "name", "pattern_type", "entries")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    name: str
    pattern_type: int
    entries: _containers.RepeatedCompositeFieldContainer[AccessEntry]
    def __init__(self, resource_type: _Optional[int] = ..., name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[AccessEntry, _Mapping]]] = ...) -> None: ...

class AclFilter(_message.Message):
    __slots__ = ("resource_type", "name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, resource_type: _Optional[int] = ..., name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...
