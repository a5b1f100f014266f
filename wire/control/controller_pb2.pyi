from wire.control import cluster_pb2 as _cluster_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NewTopic(_message.Message):
    __slots__ = ("name", "partition_count", "replication_factor", "configs", "topic_id", "link", "link_epoch", "assignments")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition_count: int
    replication_factor: int
    configs: _containers.ScalarMap[str, str]
    topic_id: bytes
    link: str
    link_epoch: int
    assignments: _containers.RepeatedCompositeFieldContainer[ReplicaAssignment]
    def __init__(self, name: _Optional[str] = ..., partition_count: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ..., topic_id: _Optional[bytes] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[ReplicaAssignment, _Mapping]]] = ...) -> None: ...

class ReplicaAssignment(_message.Message):
    __slots__ = ("partition", "replicas")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("topics", "is_validate_only", "timeout_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    IS_VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    is_validate_only: bool
    timeout_ms: int
    def __init__(self, topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., is_validate_only: _Optional[bool] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class TopicResult(_message.Message):
    __slots__ = ("name", "topic_id", "error_code", "error_message", "partition_count", "replication_factor", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    error_code: int
    error_message: str
    partition_count: int
    replication_factor: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., partition_count: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("names", "topic_ids", "link", "link_epoch", "timeout_ms")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    topic_ids: _containers.RepeatedScalarFieldContainer[bytes]
    link: str
    link_epoch: int
    timeout_ms: int
    def __init__(self, names: _Optional[_Iterable[str]] = ..., topic_ids: _Optional[_Iterable[bytes]] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class DeleteTopicsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class NewPartitions(_message.Message):
    __slots__ = ("name", "total_count", "assignments", "link", "link_epoch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    total_count: int
    assignments: _containers.RepeatedCompositeFieldContainer[ReplicaAssignment]
    link: str
    link_epoch: int
    def __init__(self, name: _Optional[str] = ..., total_count: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[ReplicaAssignment, _Mapping]]] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("topics", "is_validate_only", "timeout_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    IS_VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewPartitions]
    is_validate_only: bool
    timeout_ms: int
    def __init__(self, topics: _Optional[_Iterable[_Union[NewPartitions, _Mapping]]] = ..., is_validate_only: _Optional[bool] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class CreatePartitionsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class TopicConfigChange(_message.Message):
    __slots__ = ("name", "set", "remove", "replaces_all", "link", "link_epoch", "lists")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    REPLACES_ALL_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    replaces_all: bool
    link: str
    link_epoch: int
    lists: _containers.RepeatedCompositeFieldContainer[ListChange]
    def __init__(self, name: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ..., replaces_all: _Optional[bool] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ..., lists: _Optional[_Iterable[_Union[ListChange, _Mapping]]] = ...) -> None: ...

class ListChange(_message.Message):
    __slots__ = ("name", "items", "is_removal", "inherited")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    IS_REMOVAL_FIELD_NUMBER: _ClassVar[int]
    INHERITED_FIELD_NUMBER: _ClassVar[int]
    name: str
    items: _containers.RepeatedScalarFieldContainer[str]
    is_removal: bool
    inherited: str
    def __init__(self, name: _Optional[str] = ..., items: _Optional[_Iterable[str]] = ..., is_removal: _Optional[bool] = ..., inherited: _Optional[str] = ...) -> None: ...

class AlterTopicConfigsRequest(_message.Message):
    __slots__ = ("changes", "is_validate_only")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    IS_VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[TopicConfigChange]
    is_validate_only: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[TopicConfigChange, _Mapping]]] = ..., is_validate_only: _Optional[bool] = ...) -> None: ...

class AlterTopicConfigsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TopicResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TopicResult, _Mapping]]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("node_id", "broker_epoch")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsReply(_message.Message):
    __slots__ = ("first_producer_id", "count")
    FIRST_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first_producer_id: int
    count: int
    def __init__(self, first_producer_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class DescribeControllerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeControllerReply(_message.Message):
    __slots__ = ("controller_id", "controller_epoch", "is_active", "brokers", "deletions", "unregistered_brokers", "quarantines")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    UNREGISTERED_BROKERS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINES_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    controller_epoch: int
    is_active: bool
    brokers: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.BrokerInfo]
    deletions: _containers.RepeatedCompositeFieldContainer[PendingDeletion]
    unregistered_brokers: _containers.RepeatedScalarFieldContainer[int]
    quarantines: _containers.RepeatedCompositeFieldContainer[Quarantine]
    def __init__(self, controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., is_active: _Optional[bool] = ..., brokers: _Optional[_Iterable[_Union[_cluster_pb2.BrokerInfo, _Mapping]]] = ..., deletions: _Optional[_Iterable[_Union[PendingDeletion, _Mapping]]] = ..., unregistered_brokers: _Optional[_Iterable[int]] = ..., quarantines: _Optional[_Iterable[_Union[Quarantine, _Mapping]]] = ...) -> None: ...

class PendingDeletion(_message.Message):
    __slots__ = ("topic", "absent_brokers")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ABSENT_BROKERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    absent_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., absent_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class Quarantine(_message.Message):
    __slots__ = ("kind", "name", "problem")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    problem: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("node_id", "timeout_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    timeout_ms: int
    def __init__(self, node_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class UnregisterBrokerReply(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class InSyncReplica(_message.Message):
    __slots__ = ("node_id", "broker_epoch")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ProposedPartition(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "leader_epoch", "partition_epoch", "isr")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: _containers.RepeatedCompositeFieldContainer[InSyncReplica]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[_Union[InSyncReplica, _Mapping]]] = ...) -> None: ...

class AlterPartitionsRequest(_message.Message):
    __slots__ = ("node_id", "broker_epoch", "partitions")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[ProposedPartition]
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ProposedPartition, _Mapping]]] = ...) -> None: ...

class AlteredPartition(_message.Message):
    __slots__ = ("topic", "partition", "error_code", "state")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error_code: int
    state: _cluster_pb2.PartitionState
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error_code: _Optional[int] = ..., state: _Optional[_Union[_cluster_pb2.PartitionState, _Mapping]] = ...) -> None: ...

class AlterPartitionsReply(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[AlteredPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[AlteredPartition, _Mapping]]] = ...) -> None: ...

class ControlledShutdownRequest(_message.Message):
    __slots__ = ("node_id", "broker_epoch")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ControlledShutdownReply(_message.Message):
    __slots__ = ("error_code", "remaining_count")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_COUNT_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    remaining_count: int
    def __init__(self, error_code: _Optional[int] = ..., remaining_count: _Optional[int] = ...) -> None: ...

class ReportOfflineReplicasRequest(_message.Message):
    __slots__ = ("node_id", "broker_epoch", "partitions")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionName]
    def __init__(self, node_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionName, _Mapping]]] = ...) -> None: ...

class ReportOfflineReplicasReply(_message.Message):
    __slots__ = ("error_code",)
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    def __init__(self, error_code: _Optional[int] = ...) -> None: ...

class PartitionName(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class PartitionResult(_message.Message):
    __slots__ = ("topic", "partition", "error_code", "error_message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error_code: int
    error_message: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class PartitionResultsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionResult]
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionResult, _Mapping]]] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("is_unclean", "is_all", "partitions", "timeout_ms")
    IS_UNCLEAN_FIELD_NUMBER: _ClassVar[int]
    IS_ALL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    is_unclean: bool
    is_all: bool
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionName]
    timeout_ms: int
    def __init__(self, is_unclean: _Optional[bool] = ..., is_all: _Optional[bool] = ..., partitions: _Optional[_Iterable[_Union[PartitionName, _Mapping]]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class Reassignment(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "is_cancelled")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IS_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    is_cancelled: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., is_cancelled: _Optional[bool] = ...) -> None: ...

class AlterReassignmentsRequest(_message.Message):
    __slots__ = ("partitions", "must_keep_replication_factor", "timeout_ms")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MUST_KEEP_REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Reassignment]
    must_keep_replication_factor: bool
    timeout_ms: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[Reassignment, _Mapping]]] = ..., must_keep_replication_factor: _Optional[bool] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ListReassignmentsRequest(_message.Message):
    __slots__ = ("is_all", "partitions")
    IS_ALL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    is_all: bool
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionName]
    def __init__(self, is_all: _Optional[bool] = ..., partitions: _Optional[_Iterable[_Union[PartitionName, _Mapping]]] = ...) -> None: ...

class OngoingReassignment(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class ListReassignmentsReply(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[OngoingReassignment]
    def __init__(self, partitions: _Optional[_Iterable[_Union[OngoingReassignment, _Mapping]]] = ...) -> None: ...

class QuotaChange(_message.Message):
    __slots__ = ("entity", "set", "remove")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.QuotaEntityPart]
    set: _containers.ScalarMap[str, float]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, entity: _Optional[_Iterable[_Union[_cluster_pb2.QuotaEntityPart, _Mapping]]] = ..., set: _Optional[_Mapping[str, float]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class AlterClientQuotasRequest(_message.Message):
    __slots__ = ("changes", "is_validate_only", "link", "link_epoch")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    IS_VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[QuotaChange]
    is_validate_only: bool
    link: str
    link_epoch: int
    def __init__(self, changes: _Optional[_Iterable[_Union[QuotaChange, _Mapping]]] = ..., is_validate_only: _Optional[bool] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ...) -> None: ...

class QuotaResult(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class AlterClientQuotasReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[QuotaResult]
    def __init__(self, results: _Optional[_Iterable[_Union[QuotaResult, _Mapping]]] = ...) -> None: ...

class ScramUserChange(_message.Message):
    __slots__ = ("name", "set", "remove")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class AlterScramUsersRequest(_message.Message):
    __slots__ = ("changes", "link", "link_epoch")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ScramUserChange]
    link: str
    link_epoch: int
    def __init__(self, changes: _Optional[_Iterable[_Union[ScramUserChange, _Mapping]]] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ...) -> None: ...

class AlterScramUsersReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[QuotaResult]
    def __init__(self, results: _Optional[_Iterable[_Union[QuotaResult, _Mapping]]] = ...) -> None: ...

class DelegationTokenChange(_message.Message):
    __slots__ = ("token", "is_new")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    token: _cluster_pb2.DelegationToken
    is_new: bool
    def __init__(self, token: _Optional[_Union[_cluster_pb2.DelegationToken, _Mapping]] = ..., is_new: _Optional[bool] = ...) -> None: ...

class AlterDelegationTokensRequest(_message.Message):
    __slots__ = ("tokens", "link", "link_epoch")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[DelegationTokenChange]
    link: str
    link_epoch: int
    def __init__(self, tokens: _Optional[_Iterable[_Union[DelegationTokenChange, _Mapping]]] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ...) -> None: ...

class AlterDelegationTokensReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[QuotaResult]
    def __init__(self, results: _Optional[_Iterable[_Union[QuotaResult, _Mapping]]] = ...) -> None: ...

class AlterAclsRequest(_message.Message):
    __slots__ = ("creations", "removals", "link", "link_epoch")
    CREATIONS_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    creations: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.ResourceAcls]
    removals: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.AclFilter]
    link: str
    link_epoch: int
    def __init__(self, creations: _Optional[_Iterable[_Union[_cluster_pb2.ResourceAcls, _Mapping]]] = ..., removals: _Optional[_Iterable[_Union[_cluster_pb2.AclFilter, _Mapping]]] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ...) -> None: ...

class AclResult(_message.Message):
    __slots__ = ("error_code", "error_message", "removed")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    removed: _containers.RepeatedCompositeFieldContainer[_cluster_pb2.ResourceAcls]
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., removed: _Optional[_Iterable[_Union[_cluster_pb2.ResourceAcls, _Mapping]]] = ...) -> None: ...

class AlterAclsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AclResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AclResult, _Mapping]]] = ...) -> None: ...

class GroupConfigChange(_message.Message):
    __slots__ = ("group", "set", "remove", "replaces_all")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    REPLACES_ALL_FIELD_NUMBER: _ClassVar[int]
    group: str
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    replaces_all: bool
    def __init__(self, group: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ..., replaces_all: _Optional[bool] = ...) -> None: ...

class AlterGroupConfigsRequest(_message.Message):
    __slots__ = ("changes", "link", "link_epoch")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[GroupConfigChange]
    link: str
    link_epoch: int
    def __init__(self, changes: _Optional[_Iterable[_Union[GroupConfigChange, _Mapping]]] = ..., link: _Optional[str] = ..., link_epoch: _Optional[int] = ...) -> None: ...

class AlterGroupConfigsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[QuotaResult]
    def __init__(self, results: _Optional[_Iterable[_Union[QuotaResult, _Mapping]]] = ...) -> None: ...
