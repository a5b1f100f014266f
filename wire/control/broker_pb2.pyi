from wire.control import cluster_pb2 as _cluster_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SyncMark(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_MARK_UNCHANGED: _ClassVar[SyncMark]
    OUT_OF_SYNC: _ClassVar[SyncMark]
    IN_SYNC: _ClassVar[SyncMark]
SYNC_MARK_UNCHANGED: SyncMark
OUT_OF_SYNC: SyncMark
IN_SYNC: SyncMark

class DescribeGroupOffsetsRequest(_message.Message):
    __slots__ = ("link", "is_brief")
    LINK_FIELD_NUMBER: _ClassVar[int]
    IS_BRIEF_FIELD_NUMBER: _ClassVar[int]
    link: str
    is_brief: bool
    def __init__(self, link: _Optional[str] = ..., is_brief: _Optional[bool] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class GroupRecord(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class GroupMembers(_message.Message):
    __slots__ = ("group", "records")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    records: _containers.RepeatedCompositeFieldContainer[GroupRecord]
    def __init__(self, group: _Optional[str] = ..., records: _Optional[_Iterable[_Union[GroupRecord, _Mapping]]] = ...) -> None: ...

class DescribeGroupMembersRequest(_message.Message):
    __slots__ = ("link",)
    LINK_FIELD_NUMBER: _ClassVar[int]
    link: str
    def __init__(self, link: _Optional[str] = ...) -> None: ...

class DescribeGroupMembersReply(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupMembers]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupMembers, _Mapping]]] = ...) -> None: ...

class TakeGroupMembersRequest(_message.Message):
    __slots__ = ("link", "epoch", "groups")
    LINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    link: str
    epoch: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupMembers]
    def __init__(self, link: _Optional[str] = ..., epoch: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupMembers, _Mapping]]] = ...) -> None: ...

class TakeGroupMembersReply(_message.Message):
    __slots__ = ("taken", "refused")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    taken: _containers.RepeatedScalarFieldContainer[str]
    refused: _containers.ScalarMap[str, str]
    def __init__(self, taken: _Optional[_Iterable[str]] = ..., refused: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GroupOffsets(_message.Message):
    __slots__ = ("group", "has_members", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HAS_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    has_members: bool
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, group: _Optional[str] = ..., has_members: _Optional[bool] = ..., offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class TransactionalProducer(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "is_carried")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_CARRIED_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_carried: bool
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., is_carried: _Optional[bool] = ...) -> None: ...

class TransactionalProducers(_message.Message):
    __slots__ = ("producers",)
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.RepeatedCompositeFieldContainer[TransactionalProducer]
    def __init__(self, producers: _Optional[_Iterable[_Union[TransactionalProducer, _Mapping]]] = ...) -> None: ...

class AccessDigests(_message.Message):
    __slots__ = ("by_part",)
    class ByPartEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BY_PART_FIELD_NUMBER: _ClassVar[int]
    by_part: _containers.ScalarMap[str, str]
    def __init__(self, by_part: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SyncReport(_message.Message):
    __slots__ = ("daemon", "slots", "problems", "received_ms_ago", "carried_access")
    class ProblemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DAEMON_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    CARRIED_ACCESS_FIELD_NUMBER: _ClassVar[int]
    daemon: str
    slots: _containers.RepeatedScalarFieldContainer[int]
    problems: _containers.ScalarMap[str, str]
    received_ms_ago: int
    carried_access: AccessDigests
    def __init__(self, daemon: _Optional[str] = ..., slots: _Optional[_Iterable[int]] = ..., problems: _Optional[_Mapping[str, str]] = ..., received_ms_ago: _Optional[int] = ..., carried_access: _Optional[_Union[AccessDigests, _Mapping]] = ...) -> None: ...

class DescribeGroupOffsetsReply(_message.Message):
    __slots__ = ("node_id", "partitions", "partition_count", "groups", "synced_at_ms", "transaction_partitions", "transaction_partition_count", "committing_transactions", "synced_ms_ago", "words", "resting_ms_ago", "transactional_producers", "report_round_ms", "fenced_access", "access_synced_ms_ago")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SYNCED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMMITTING_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    SYNCED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    RESTING_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    REPORT_ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    FENCED_ACCESS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_SYNCED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    partitions: _containers.RepeatedScalarFieldContainer[int]
    partition_count: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupOffsets]
    synced_at_ms: int
    transaction_partitions: _containers.RepeatedScalarFieldContainer[int]
    transaction_partition_count: int
    committing_transactions: int
    synced_ms_ago: _containers.RepeatedScalarFieldContainer[int]
    words: _containers.RepeatedCompositeFieldContainer[SyncReport]
    resting_ms_ago: int
    transactional_producers: TransactionalProducers
    report_round_ms: int
    fenced_access: AccessDigests
    access_synced_ms_ago: int
    def __init__(self, node_id: _Optional[int] = ..., partitions: _Optional[_Iterable[int]] = ..., partition_count: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupOffsets, _Mapping]]] = ..., synced_at_ms: _Optional[int] = ..., transaction_partitions: _Optional[_Iterable[int]] = ..., transaction_partition_count: _Optional[int] = ..., committing_transactions: _Optional[int] = ..., synced_ms_ago: _Optional[_Iterable[int]] = ..., words: _Optional[_Iterable[_Union[SyncReport, _Mapping]]] = ..., resting_ms_ago: _Optional[int] = ..., transactional_producers: _Optional[_Union[TransactionalProducers, _Mapping]] = ..., report_round_ms: _Optional[int] = ..., fenced_access: _Optional[_Union[AccessDigests, _Mapping]] = ..., access_synced_ms_ago: _Optional[int] = ...) -> None: ...

class DescribeQuarantineRequest(_message.Message):
    __slots__ = ("link",)
    LINK_FIELD_NUMBER: _ClassVar[int]
    link: str
    def __init__(self, link: _Optional[str] = ...) -> None: ...

class QuarantinedEnd(_message.Message):
    __slots__ = ("topic", "partition", "first_offset", "end_offset", "size_bytes", "link_epoch", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    first_offset: int
    end_offset: int
    size_bytes: int
    link_epoch: int
    name: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., link_epoch: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class DescribeQuarantineReply(_message.Message):
    __slots__ = ("ends",)
    ENDS_FIELD_NUMBER: _ClassVar[int]
    ends: _containers.RepeatedCompositeFieldContainer[QuarantinedEnd]
    def __init__(self, ends: _Optional[_Iterable[_Union[QuarantinedEnd, _Mapping]]] = ...) -> None: ...

class IdentifyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IdentifyReply(_message.Message):
    __slots__ = ("node_id", "broker_epoch")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ControlBatch(_message.Message):
    __slots__ = ("controller_id", "controller_epoch", "broker_epoch", "is_full", "cluster_id", "brokers", "topics", "deleted_topics", "links", "deleted_links", "client_quotas", "group_configs", "scram_users", "quarantined_topics", "acls", "delegation_tokens", "removed_replicas", "epoch_raises")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    DELETED_LINKS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    GROUP_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    SCRAM_USERS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_RAISES_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    is_full: bool
    cluster_id: str
    brokers: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.BrokerInfo]
    topics: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.TopicInfo]
    deleted_topics: _containers.RepeatedCompositeFieldContainer[DeletedTopic]
    links: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.LinkRecord]
    deleted_links: _containers.RepeatedScalarFieldContainer[str]
    client_quotas: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.ClientQuota]
    group_configs: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.GroupConfigs]
    scram_users: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.ScramUser]
    quarantined_topics: _containers.RepeatedScalarFieldContainer[str]
    acls: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.ResourceAcls]
    delegation_tokens: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.DelegationToken]
    removed_replicas: _containers.RepeatedCompositeFieldContainer[RemovedReplicas]
    epoch_raises: _containers.RepeatedCompositeFieldContainer[EpochRaise]
    def __init__(self, controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., is_full: _Optional[bool] = ..., cluster_id: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[_cluster_pb2.BrokerInfo, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[_cluster_pb2.TopicInfo, _Mapping]]] = ..., deleted_topics: _Optional[_Iterable[_Union[DeletedTopic, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[_cluster_pb2.LinkRecord, _Mapping]]] = ..., deleted_links: _Optional[_Iterable[str]] = ..., client_quotas: _Optional[_Iterable[_Union[_cluster_pb2.ClientQuota, _Mapping]]] = ..., group_configs: _Optional[_Iterable[_Union[_cluster_pb2.GroupConfigs, _Mapping]]] = ..., scram_users: _Optional[_Iterable[_Union[_cluster_pb2.ScramUser, _Mapping]]] = ..., quarantined_topics: _Optional[_Iterable[str]] = ..., acls: _Optional[_Iterable[_Union[_cluster_pb2.ResourceAcls, _Mapping]]] = ..., delegation_tokens: _Optional[_Iterable[_Union[_cluster_pb2.DelegationToken, _Mapping]]] = ..., removed_replicas: _Optional[_Iterable[_Union[RemovedReplicas, _Mapping]]] = ..., epoch_raises: _Optional[_Iterable[_Union[EpochRaise, _Mapping]]] = ...) -> None: ...

class EpochRaise(_message.Message):
    __slots__ = ("floor", "topics")
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    floor: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, floor: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DeletedTopic(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class RemovedReplicas(_message.Message):
    __slots__ = ("topic_id", "partitions", "registrations_zxid")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REGISTRATIONS_ZXID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    registrations_zxid: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ..., registrations_zxid: _Optional[int] = ...) -> None: ...

class PartitionFailure(_message.Message):
    __slots__ = ("topic", "partition", "error_code")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error_code: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error_code: _Optional[int] = ...) -> None: ...

class ControlReply(_message.Message):
    __slots__ = ("node_id", "failures")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    failures: _containers.RepeatedCompositeFieldContainer[PartitionFailure]
    def __init__(self, node_id: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[PartitionFailure, _Mapping]]] = ...) -> None: ...

class ConfirmLinkRequest(_message.Message):
    __slots__ = ("link", "epoch", "permit_until_ms", "mark", "asks_writable", "asks_leaders")
    LINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PERMIT_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    ASKS_WRITABLE_FIELD_NUMBER: _ClassVar[int]
    ASKS_LEADERS_FIELD_NUMBER: _ClassVar[int]
    link: str
    epoch: int
    permit_until_ms: int
    mark: SyncMark
    asks_writable: bool
    asks_leaders: bool
    def __init__(self, link: _Optional[str] = ..., epoch: _Optional[int] = ..., permit_until_ms: _Optional[int] = ..., mark: _Optional[_Union[SyncMark, str]] = ..., asks_writable: _Optional[bool] = ..., asks_leaders: _Optional[bool] = ...) -> None: ...

class ConfirmLinkReply(_message.Message):
    __slots__ = ("is_confirmed", "wants_mark", "is_standby_behind", "are_writable", "leaders_digest")
    IS_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    WANTS_MARK_FIELD_NUMBER: _ClassVar[int]
    IS_STANDBY_BEHIND_FIELD_NUMBER: _ClassVar[int]
    ARE_WRITABLE_FIELD_NUMBER: _ClassVar[int]
    LEADERS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    is_confirmed: bool
    wants_mark: bool
    is_standby_behind: bool
    are_writable: bool
    leaders_digest: int
    def __init__(self, is_confirmed: _Optional[bool] = ..., wants_mark: _Optional[bool] = ..., is_standby_behind: _Optional[bool] = ..., are_writable: _Optional[bool] = ..., leaders_digest: _Optional[int] = ...) -> None: ...

class UpdatePeerViewReply(_message.Message):
    __slots__ = ("lacks_topics",)
    LACKS_TOPICS_FIELD_NUMBER: _ClassVar[int]
    lacks_topics: bool
    def __init__(self, lacks_topics: _Optional[bool] = ...) -> None: ...

class PeerViewConfirmedRequest(_message.Message):
    __slots__ = ("site",)
    SITE_FIELD_NUMBER: _ClassVar[int]
    site: str
    def __init__(self, site: _Optional[str] = ...) -> None: ...

class PeerViewConfirmedReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribePartitionsRequest(_message.Message):
    __slots__ = ("topics", "link", "is_brief", "awaited", "wait_ms", "with_version", "known_versions", "accepts_columns")
    class KnownVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    IS_BRIEF_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    WITH_VERSION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    link: str
    is_brief: bool
    awaited: _cluster_pb2.LinkRecord
    wait_ms: int
    with_version: bool
    known_versions: _containers.ScalarMap[int, int]
    accepts_columns: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., link: _Optional[str] = ..., is_brief: _Optional[bool] = ..., awaited: _Optional[_Union[_cluster_pb2.LinkRecord, _Mapping]] = ..., wait_ms: _Optional[int] = ..., with_version: _Optional[bool] = ..., known_versions: _Optional[_Mapping[int, int]] = ..., accepts_columns: _Optional[bool] = ...) -> None: ...

class PartitionDescription(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "leader_epoch", "log_start_offset", "high_watermark", "log_end_offset", "last_log_epoch", "link", "link_epoch", "is_writable", "source_high_watermark", "source_seen_at_ms", "max_timestamp_ms", "size_bytes", "is_degraded", "epochs", "has_markers", "thinned_to")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_WRITABLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SEEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_DEGRADED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    HAS_MARKERS_FIELD_NUMBER: _ClassVar[int]
    THINNED_TO_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    last_log_epoch: int
    link: str
    link_epoch: int
    is_writable: bool
    source_high_watermark: int
    source_seen_at_ms: int
    max_timestamp_ms: int
    size_bytes: int
    is_degraded: bool
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    has_markers: bool
    thinned_to: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., last_log_epoch: _Optional[int] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ..., is_writable: _Optional[bool] = ..., source_high_watermark: _Optional[int] = ..., source_seen_at_ms: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ..., is_degraded: _Optional[bool] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., has_markers: _Optional[bool] = ..., thinned_to: _Optional[int] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class TruncatedLog(_message.Message):
    __slots__ = ("topic", "partition", "node_id", "cuts", "records", "bytes", "kept_bytes", "last_first_offset", "last_at_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    KEPT_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    node_id: int
    cuts: int
    records: int
    bytes: int
    kept_bytes: int
    last_first_offset: int
    last_at_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., node_id: _Optional[int] = ..., cuts: _Optional[int] = ..., records: _Optional[int] = ..., bytes: _Optional[int] = ..., kept_bytes: _Optional[int] = ..., last_first_offset: _Optional[int] = ..., last_at_ms: _Optional[int] = ...) -> None: ...

class QuarantineUse(_message.Message):
    __slots__ = ("node_id", "entries", "bytes", "fullest_percent", "fullest_partition", "first_expiring", "expires_in_ms", "is_expiring")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FULLEST_PERCENT_FIELD_NUMBER: _ClassVar[int]
    FULLEST_PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_EXPIRING_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    IS_EXPIRING_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    entries: int
    bytes: int
    fullest_percent: float
    fullest_partition: str
    first_expiring: str
    expires_in_ms: int
    is_expiring: bool
    def __init__(self, node_id: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., fullest_percent: _Optional[float] = ..., fullest_partition: _Optional[str] = ..., first_expiring: _Optional[str] = ..., expires_in_ms: _Optional[int] = ..., is_expiring: _Optional[bool] = ...) -> None: ...

class PartitionColumns(_message.Message):
    __slots__ = ("topics", "topic", "partition", "leader_epoch", "log_start_offset", "high_watermark", "log_end_offset", "last_log_epoch", "source_high_watermark", "source_seen_at_ms", "max_timestamp_ms", "flags", "epoch_count", "epochs", "epoch_starts", "partition_count", "thinned_to")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SEEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_STARTS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    THINNED_TO_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic: bytes
    partition: bytes
    leader_epoch: bytes
    log_start_offset: bytes
    high_watermark: bytes
    log_end_offset: bytes
    last_log_epoch: bytes
    source_high_watermark: bytes
    source_seen_at_ms: bytes
    max_timestamp_ms: bytes
    flags: bytes
    epoch_count: bytes
    epochs: bytes
    epoch_starts: bytes
    partition_count: int
    thinned_to: bytes
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., topic: _Optional[bytes] = ..., partition: _Optional[bytes] = ..., leader_epoch: _Optional[bytes] = ..., log_start_offset: _Optional[bytes] = ..., high_watermark: _Optional[bytes] = ..., log_end_offset: _Optional[bytes] = ..., last_log_epoch: _Optional[bytes] = ..., source_high_watermark: _Optional[bytes] = ..., source_seen_at_ms: _Optional[bytes] = ..., max_timestamp_ms: _Optional[bytes] = ..., flags: _Optional[bytes] = ..., epoch_count: _Optional[bytes] = ..., epochs: _Optional[bytes] = ..., epoch_starts: _Optional[bytes] = ..., partition_count: _Optional[int] = ..., thinned_to: _Optional[bytes] = ...) -> None: ...

class DescribePartitionsReply(_message.Message):
    __slots__ = ("node_id", "partitions", "link_epochs", "cuts", "link_revisions", "quarantine", "has_leaders", "version", "is_unchanged", "columns", "link_phases")
    class LinkEpochsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LinkRevisionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LinkPhasesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    LINK_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    HAS_LEADERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    LINK_PHASES_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionDescription]
    link_epochs: _containers.ScalarMap[str, int]
    cuts: _containers.RepeatedCompositeFieldContainer[TruncatedLog]
    link_revisions: _containers.ScalarMap[str, int]
    quarantine: QuarantineUse
    has_leaders: bool
    version: int
    is_unchanged: bool
    columns: PartitionColumns
    link_phases: _containers.ScalarMap[str, int]
    def __init__(self, node_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionDescription, _Mapping]]] = ..., link_epochs: _Optional[_Mapping[str, int]] = ..., cuts: _Optional[_Iterable[_Union[TruncatedLog, _Mapping]]] = ..., link_revisions: _Optional[_Mapping[str, int]] = ..., quarantine: _Optional[_Union[QuarantineUse, _Mapping]] = ..., has_leaders: _Optional[bool] = ..., version: _Optional[int] = ..., is_unchanged: _Optional[bool] = ..., columns: _Optional[_Union[PartitionColumns, _Mapping]] = ..., link_phases: _Optional[_Mapping[str, int]] = ...) -> None: ...
