from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeMirrorRequest(_message.Message):
    __slots__ = ("link",)
    LINK_FIELD_NUMBER: _ClassVar[int]
    link: str
    def __init__(self, link: _Optional[str] = ...) -> None: ...

class MirrorPartition(_message.Message):
    __slots__ = ("topic", "partition", "state", "reason", "source_high_watermark", "target_log_end_offset", "lag_records", "lag_bytes", "lag_ms", "mirrored_bytes", "mirrored_records", "stalled_ms", "skipped_bytes", "skipped_records", "complete_ms_ago")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SOURCE_HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    TARGET_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    MIRRORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MIRRORED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    STALLED_MS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    state: str
    reason: str
    source_high_watermark: int
    target_log_end_offset: int
    lag_records: int
    lag_bytes: int
    lag_ms: int
    mirrored_bytes: int
    mirrored_records: int
    stalled_ms: int
    skipped_bytes: int
    skipped_records: int
    complete_ms_ago: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., source_high_watermark: _Optional[int] = ..., target_log_end_offset: _Optional[int] = ..., lag_records: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., mirrored_bytes: _Optional[int] = ..., mirrored_records: _Optional[int] = ..., stalled_ms: _Optional[int] = ..., skipped_bytes: _Optional[int] = ..., skipped_records: _Optional[int] = ..., complete_ms_ago: _Optional[int] = ...) -> None: ...

class RefusedChange(_message.Message):
    __slots__ = ("topic", "reason", "way_out", "since_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAY_OUT_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    reason: str
    way_out: str
    since_ms: int
    def __init__(self, topic: _Optional[str] = ..., reason: _Optional[str] = ..., way_out: _Optional[str] = ..., since_ms: _Optional[int] = ...) -> None: ...

class MirrorTransactions(_message.Message):
    __slots__ = ("transactional_id", "committed", "aborted", "fenced", "open_records", "open_ms")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    OPEN_RECORDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_MS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    committed: int
    aborted: int
    fenced: int
    open_records: int
    open_ms: int
    def __init__(self, transactional_id: _Optional[str] = ..., committed: _Optional[int] = ..., aborted: _Optional[int] = ..., fenced: _Optional[int] = ..., open_records: _Optional[int] = ..., open_ms: _Optional[int] = ...) -> None: ...

class Disagreement(_message.Message):
    __slots__ = ("key", "value", "daemon", "value_there", "reason")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DAEMON_FIELD_NUMBER: _ClassVar[int]
    VALUE_THERE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    daemon: str
    value_there: str
    reason: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., daemon: _Optional[str] = ..., value_there: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class UntakenPartition(_message.Message):
    __slots__ = ("topic", "partition", "daemon", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DAEMON_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    daemon: str
    reason: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., daemon: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DescribeMirrorReply(_message.Message):
    __slots__ = ("link", "link_epoch", "state", "reason", "is_serving", "is_resting", "partitions", "queued_bytes", "groups_synced_at_ms", "mode", "paused_topics", "group_problems", "groups_stale_since_ms", "transactions", "acls", "refused_changes", "mirror_maker_problem", "groups_ahead", "failing_daemons", "disagreements", "untaken_partitions", "untaken_count")
    class GroupProblemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class GroupsStaleSinceMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class GroupsAheadEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class FailingDaemonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LINK_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    IS_SERVING_FIELD_NUMBER: _ClassVar[int]
    IS_RESTING_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_SYNCED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUP_PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_STALE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_CHANGES_FIELD_NUMBER: _ClassVar[int]
    MIRROR_MAKER_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    GROUPS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    FAILING_DAEMONS_FIELD_NUMBER: _ClassVar[int]
    DISAGREEMENTS_FIELD_NUMBER: _ClassVar[int]
    UNTAKEN_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    UNTAKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    link: str
    link_epoch: int
    state: str
    reason: str
    is_serving: bool
    is_resting: bool
    partitions: _containers.RepeatedCompositeFieldContainer[MirrorPartition]
    queued_bytes: int
    groups_synced_at_ms: int
    mode: str
    paused_topics: _containers.RepeatedScalarFieldContainer[str]
    group_problems: _containers.ScalarMap[str, str]
    groups_stale_since_ms: _containers.ScalarMap[str, int]
    transactions: MirrorTransactions
    acls: str
    refused_changes: _containers.RepeatedCompositeFieldContainer[RefusedChange]
    mirror_maker_problem: str
    groups_ahead: _containers.ScalarMap[str, str]
    failing_daemons: _containers.ScalarMap[str, str]
    disagreements: _containers.RepeatedCompositeFieldContainer[Disagreement]
    untaken_partitions: _containers.RepeatedCompositeFieldContainer[UntakenPartition]
    untaken_count: int
    def __init__(self, link: _Optional[str] = ..., link_epoch: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., is_serving: _Optional[bool] = ..., is_resting: _Optional[bool] = ..., partitions: _Optional[_Iterable[_Union[MirrorPartition, _Mapping]]] = ..., queued_bytes: _Optional[int] = ..., groups_synced_at_ms: _Optional[int] = ..., mode: _Optional[str] = ..., paused_topics: _Optional[_Iterable[str]] = ..., group_problems: _Optional[_Mapping[str, str]] = ..., groups_stale_since_ms: _Optional[_Mapping[str, int]] = ..., transactions: _Optional[_Union[MirrorTransactions, _Mapping]] = ..., acls: _Optional[str] = ..., refused_changes: _Optional[_Iterable[_Union[RefusedChange, _Mapping]]] = ..., mirror_maker_problem: _Optional[str] = ..., groups_ahead: _Optional[_Mapping[str, str]] = ..., failing_daemons: _Optional[_Mapping[str, str]] = ..., disagreements: _Optional[_Iterable[_Union[Disagreement, _Mapping]]] = ..., untaken_partitions: _Optional[_Iterable[_Union[UntakenPartition, _Mapping]]] = ..., untaken_count: _Optional[int] = ...) -> None: ...

class PauseMirrorRequest(_message.Message):
    __slots__ = ("topics", "link")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    link: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., link: _Optional[str] = ...) -> None: ...

class PauseMirrorReply(_message.Message):
    __slots__ = ("paused_topics", "partitions")
    PAUSED_TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    paused_topics: _containers.RepeatedScalarFieldContainer[str]
    partitions: int
    def __init__(self, paused_topics: _Optional[_Iterable[str]] = ..., partitions: _Optional[int] = ...) -> None: ...

class ResetTopicsRequest(_message.Message):
    __slots__ = ("topics", "is_dry_run", "link")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    is_dry_run: bool
    link: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., is_dry_run: _Optional[bool] = ..., link: _Optional[str] = ...) -> None: ...

class ResetPartition(_message.Message):
    __slots__ = ("partition", "log_start_offset", "log_end_offset", "kept_from_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    KEPT_FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    log_start_offset: int
    log_end_offset: int
    kept_from_offset: int
    def __init__(self, partition: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., kept_from_offset: _Optional[int] = ...) -> None: ...

class ResetTopic(_message.Message):
    __slots__ = ("topic", "outcome", "reason", "copy_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COPY_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    outcome: str
    reason: str
    copy_id: str
    partitions: _containers.RepeatedCompositeFieldContainer[ResetPartition]
    def __init__(self, topic: _Optional[str] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., copy_id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[ResetPartition, _Mapping]]] = ...) -> None: ...

class ResetTopicsReply(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[ResetTopic]
    def __init__(self, topics: _Optional[_Iterable[_Union[ResetTopic, _Mapping]]] = ...) -> None: ...

class ReinstateCopiesRequest(_message.Message):
    __slots__ = ("topics", "is_dry_run", "link")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    is_dry_run: bool
    link: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., is_dry_run: _Optional[bool] = ..., link: _Optional[str] = ...) -> None: ...

class ReinstatedCopy(_message.Message):
    __slots__ = ("topic", "partition", "outcome", "reason", "from_offset", "end_offset", "entry")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    outcome: str
    reason: str
    from_offset: int
    end_offset: int
    entry: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., from_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., entry: _Optional[str] = ...) -> None: ...

class ReinstateCopiesReply(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ReinstatedCopy]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ReinstatedCopy, _Mapping]]] = ...) -> None: ...

class VerifyMirrorRequest(_message.Message):
    __slots__ = ("topics", "last_offsets", "link")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    last_offsets: int
    link: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., last_offsets: _Optional[int] = ..., link: _Optional[str] = ...) -> None: ...

class VerifiedPartition(_message.Message):
    __slots__ = ("topic", "partition", "verdict", "finding", "from_offset", "to_offset", "batches", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    FINDING_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    verdict: str
    finding: str
    from_offset: int
    to_offset: int
    batches: int
    records: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., verdict: _Optional[str] = ..., finding: _Optional[str] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., batches: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...
