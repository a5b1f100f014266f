"""The rights that each API needs, in one table. Source: Apache Kafka's table of operations and
resources for each protocol (documentation, "Authorization using ACLs").

APIs that are not here authorize themselves, because their frames are not decoded into entities or
their responses need checks that no rule expresses (`BY_HANDLER`), or need no right (`OPEN`).
Private APIs need ClusterAction, except SiteMetadata of named topics, which the dispatcher checks:
the software name `antipode` alone gives no right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.authorization.authorizer import CLUSTER_ACTION, Check, topics
from broker.handlers.access import hiding
from broker.handlers.access.rules import After, Each, EntryCheck, Operations, Rule, Shown, Whole
from broker.metadata.core.cluster_image import ClusterImage
from wire.protocol.ids import CONSUMER
from wire.rules.acls import CLUSTER_NAME, Operation, ResourceType

_TOPIC_RESOURCE: Final = 2
_GROUP_RESOURCE: Final = 32
_TOPIC_DENIED: Final = "Topic authorization failed."
_KEY_TYPES: Final = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def _topic(operation: Operation) -> EntryCheck:
    return lambda entry, _, __: Check(operation, ResourceType.TOPIC, entry.name)


def _named(operation: Operation, resource_type: ResourceType) -> EntryCheck:
    return lambda entry, _, __: Check(operation, resource_type, entry)


def _resource(operation: Operation) -> EntryCheck:
    """The right for an entry of a request about configs: on its topic, on its group, or else on the
    cluster.
    """

    def check(entry: Any, _: Any, __: ClusterImage) -> Check:
        if entry.resource_type == _TOPIC_RESOURCE:
            return Check(operation, ResourceType.TOPIC, entry.resource_name)
        if entry.resource_type == _GROUP_RESOURCE:
            return Check(operation, ResourceType.GROUP, entry.resource_name)
        return Check(operation, ResourceType.CLUSTER)

    return check


def _cluster(*operations: Operation) -> Whole:
    return Whole(lambda _: tuple(Check(operation, ResourceType.CLUSTER) for operation in operations))


def _group(operation: Operation) -> Whole:
    return Whole(lambda request: (Check(operation, ResourceType.GROUP, request.group_id),))


def _described_group(request: Any) -> tuple[Check, ...]:
    """The right for versions of the API that name one group in the request."""
    return (Check(Operation.DESCRIBE, ResourceType.GROUP, request.group_id),) if hasattr(request, "group_id") else ()


def _written_transaction(request: Any) -> tuple[Check, ...]:
    name = request.transactional_id
    return () if name is None else (Check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name),)


def _deleted(entry: Any, _: Any, image: ClusterImage) -> Check | None:
    """The right for a topic that is named, or whose id is known here: the other site of a link may
    be the only one that has it.
    """
    name = entry.name
    if entry.topic_id is not None:
        topic_id = entry.topic_id.bytes
        routed = image.routed_topic_with_id(topic_id)
        name = image.topic_names.get(topic_id, name if routed is None else routed.topic.name)
    return None if name is None else Check(Operation.DELETE, ResourceType.TOPIC, name)


def _coordinator(key: str, request: Any, _: Any = None) -> Check | None:
    resource_type = _KEY_TYPES.get(getattr(request, "key_type", 0))
    return None if resource_type is None else Check(Operation.DESCRIBE, resource_type, key)


def _only_coordinator(request: Any) -> tuple[Check, ...]:
    """The right for versions of the API that name one coordinator in the request."""
    check = _coordinator(request.key, request) if hasattr(request, "key") else None
    return () if check is None else (check,)


def _not_as_consumer(request: Any) -> Check | None:
    """Replicas, mirrors and tools read with the right of brokers (ClusterAction)."""
    return None if request.replica_id == CONSUMER else CLUSTER_ACTION


def _as_replica(request: Any) -> tuple[Check, ...]:
    check = _not_as_consumer(request)
    return () if check is None else (check,)


def _subscribed(request: Any) -> tuple[Check, ...]:
    return tuple(topics(Operation.DESCRIBE, request.subscribed_topic_names or ()))


_ALTER, _DESCRIBE = _cluster(Operation.ALTER), _cluster(Operation.DESCRIBE)
_READS_GROUP: Final = (_group(Operation.READ),)
_WRITES_TRANSACTION: Final = Whole(_written_transaction)
_GROUP_OPERATIONS: Final = Operations("groups", ResourceType.GROUP, lambda group: group.group_id)
_DESCRIBED_GROUP: Final = _named(Operation.DESCRIBE, ResourceType.GROUP)
_DESCRIBED_TRANSACTION: Final = _named(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)

RULES: Final[Mapping[int, tuple[Rule, ...]]] = {
    # ListOffsets
    2: (Whole(_as_replica), Each("topics", "topics", _topic(Operation.DESCRIBE), _not_as_consumer)),
    # OffsetFetch
    9: (
        Whole(_described_group),
        Each("groups", "groups", lambda entry, _, __: Check(Operation.DESCRIBE, ResourceType.GROUP, entry.group_id)),
        After(hiding.without_hidden_offsets),
    ),
    # FindCoordinator
    10: (Whole(_only_coordinator), Each("coordinator_keys", "coordinators", _coordinator)),
    # JoinGroup, Heartbeat, LeaveGroup, SyncGroup
    **dict.fromkeys((11, 12, 13, 14), _READS_GROUP),
    # DescribeGroups
    15: (Each("groups", "groups", _DESCRIBED_GROUP), _GROUP_OPERATIONS),
    # ListGroups
    16: (
        Shown(
            "groups",
            lambda group: Check(Operation.DESCRIBE, ResourceType.GROUP, group.group_id),
            exempt=Operation.DESCRIBE,
        ),
    ),
    # CreateTopics
    19: (
        Each(
            "topics",
            "topics",
            _topic(Operation.CREATE),
            lambda _: Check(Operation.CREATE, ResourceType.CLUSTER),
            message="Authorization failed.",
        ),
        After(hiding.without_configs),
    ),
    # DeleteTopics
    20: (
        Each("topics", "responses", _deleted, message=_TOPIC_DENIED),
        Each("topic_names", "responses", _named(Operation.DELETE, ResourceType.TOPIC), message=_TOPIC_DENIED),
    ),
    # DeleteRecords
    21: (Each("topics", "topics", _topic(Operation.DELETE)),),
    # InitProducerId; without a transactional id, its handler checks
    22: (_WRITES_TRANSACTION,),
    # OffsetForLeaderEpoch
    23: (
        Each(
            "topics",
            "topics",
            lambda entry, _, __: Check(Operation.DESCRIBE, ResourceType.TOPIC, entry.topic),
            lambda _: CLUSTER_ACTION,
        ),
    ),
    # AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit
    25: (_WRITES_TRANSACTION, *_READS_GROUP),
    26: (_WRITES_TRANSACTION,),
    27: (_cluster(Operation.ALTER, Operation.CLUSTER_ACTION),),
    28: (_WRITES_TRANSACTION, *_READS_GROUP, Each("topics", "topics", _topic(Operation.READ))),
    # DescribeAcls, CreateAcls, DeleteAcls
    29: (_DESCRIBE,),
    30: (_ALTER,),
    31: (_ALTER,),
    # DescribeConfigs, AlterConfigs, IncrementalAlterConfigs
    32: (Each("resources", "results", _resource(Operation.DESCRIBE_CONFIGS)),),
    33: (Each("resources", "responses", _resource(Operation.ALTER_CONFIGS)),),
    44: (Each("resources", "responses", _resource(Operation.ALTER_CONFIGS)),),
    # AlterReplicaLogDirs, DescribeLogDirs
    34: (_ALTER,),
    35: (_DESCRIBE,),
    # CreatePartitions
    37: (Each("topics", "results", _topic(Operation.ALTER)),),
    # DeleteGroups
    42: (Each("groups_names", "results", _named(Operation.DELETE, ResourceType.GROUP)),),
    # ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments
    43: (_ALTER,),
    45: (_ALTER,),
    46: (_DESCRIBE,),
    # OffsetDelete
    47: (_group(Operation.DELETE), Each("topics", "topics", _topic(Operation.READ))),
    # DescribeClientQuotas, AlterClientQuotas
    48: (_cluster(Operation.DESCRIBE_CONFIGS),),
    49: (_cluster(Operation.ALTER_CONFIGS),),
    # DescribeUserScramCredentials, AlterUserScramCredentials
    50: (_DESCRIBE,),
    51: (_ALTER,),
    # UpdateFeatures
    57: (_ALTER,),
    # DescribeCluster
    60: (Operations("", ResourceType.CLUSTER, lambda _: CLUSTER_NAME, "cluster_authorized_operations"),),
    # DescribeProducers
    61: (Each("topics", "topics", _topic(Operation.READ)),),
    # UnregisterBroker
    64: (_ALTER,),
    # DescribeTransactions, ListTransactions
    65: (
        Each("transactional_ids", "transaction_states", _DESCRIBED_TRANSACTION),
        After(hiding.without_hidden_partitions),
    ),
    66: (
        Shown(
            "transaction_states",
            lambda found: Check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, found.transactional_id),
        ),
    ),
    # ConsumerGroupHeartbeat, ConsumerGroupDescribe
    68: (*_READS_GROUP, Whole(_subscribed, needs_all=True), After(hiding.without_hidden_assignment)),
    69: (
        Each("group_ids", "groups", _DESCRIBED_GROUP),
        After(hiding.without_hidden_members),
        _GROUP_OPERATIONS,
    ),
    # ListConfigResources
    74: (_cluster(Operation.DESCRIBE_CONFIGS),),
    # DescribeTopicPartitions; its handler filters a list of all topics
    75: (
        Each("topics", "topics", _topic(Operation.DESCRIBE), is_all_when_empty=True),
        Operations("topics", ResourceType.TOPIC, lambda topic: topic.name, "topic_authorized_operations"),
    ),
}
BY_HANDLER: Final = frozenset({0, 1, 3, 8, 24, 38, 39, 40, 41})
"""Produce, Fetch, Metadata, OffsetCommit, AddPartitionsToTxn; delegation tokens (`tokens/`)."""
OPEN: Final = frozenset({17, 18, 36})
"""APIs that a client may call before it is authenticated."""
