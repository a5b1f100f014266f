from wire.control import broker_pb2 as _broker_pb2
from wire.control import cluster_pb2 as _cluster_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetSiteViewRequest(_message.Message):
    __slots__ = ("asking_site", "known_version", "known_topics_version")
    ASKING_SITE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TOPICS_VERSION_FIELD_NUMBER: _ClassVar[int]
    asking_site: str
    known_version: int
    known_topics_version: int
    def __init__(self, asking_site: _Optional[str] = ..., known_version: _Optional[int] = ..., known_topics_version: _Optional[int] = ...) -> None: ...

class GetSiteViewReply(_message.Message):
    __slots__ = ("is_unchanged", "view", "unreadable")
    IS_UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    is_unchanged: bool
    view: _cluster_pb2.SiteView
    unreadable: _containers.RepeatedCompositeFieldContainer[UnreadableZnode]
    def __init__(self, is_unchanged: _Optional[bool] = ..., view: _Optional[_Union[_cluster_pb2.SiteView, _Mapping]] = ..., unreadable: _Optional[_Iterable[_Union[UnreadableZnode, _Mapping]]] = ...) -> None: ...

class UnreadableZnode(_message.Message):
    __slots__ = ("kind", "name", "problem")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    problem: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class ListLinksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinkStatus(_message.Message):
    __slots__ = ("record", "is_confirmed", "is_peer_reachable", "peer_seen_at_ms", "contested_by", "lease", "is_unknown_to_peer")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    IS_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    IS_PEER_REACHABLE_FIELD_NUMBER: _ClassVar[int]
    PEER_SEEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CONTESTED_BY_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    IS_UNKNOWN_TO_PEER_FIELD_NUMBER: _ClassVar[int]
    record: _cluster_pb2.LinkRecord
    is_confirmed: bool
    is_peer_reachable: bool
    peer_seen_at_ms: int
    contested_by: str
    lease: LinkLease
    is_unknown_to_peer: bool
    def __init__(self, record: _Optional[_Union[_cluster_pb2.LinkRecord, _Mapping]] = ..., is_confirmed: _Optional[bool] = ..., is_peer_reachable: _Optional[bool] = ..., peer_seen_at_ms: _Optional[int] = ..., contested_by: _Optional[str] = ..., lease: _Optional[_Union[LinkLease, _Mapping]] = ..., is_unknown_to_peer: _Optional[bool] = ...) -> None: ...

class LinkLease(_message.Message):
    __slots__ = ("is_arbiter_reachable", "permit_from", "permit_left_ms", "problem", "failover_verdict", "is_out_of_sync")
    IS_ARBITER_REACHABLE_FIELD_NUMBER: _ClassVar[int]
    PERMIT_FROM_FIELD_NUMBER: _ClassVar[int]
    PERMIT_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_VERDICT_FIELD_NUMBER: _ClassVar[int]
    IS_OUT_OF_SYNC_FIELD_NUMBER: _ClassVar[int]
    is_arbiter_reachable: bool
    permit_from: str
    permit_left_ms: int
    problem: str
    failover_verdict: str
    is_out_of_sync: bool
    def __init__(self, is_arbiter_reachable: _Optional[bool] = ..., permit_from: _Optional[str] = ..., permit_left_ms: _Optional[int] = ..., problem: _Optional[str] = ..., failover_verdict: _Optional[str] = ..., is_out_of_sync: _Optional[bool] = ...) -> None: ...

class ListLinksReply(_message.Message):
    __slots__ = ("site", "links")
    SITE_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    site: str
    links: _containers.RepeatedCompositeFieldContainer[LinkStatus]
    def __init__(self, site: _Optional[str] = ..., links: _Optional[_Iterable[_Union[LinkStatus, _Mapping]]] = ...) -> None: ...

class SurveyLinkRequest(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: _cluster_pb2.LinkRecord
    def __init__(self, record: _Optional[_Union[_cluster_pb2.LinkRecord, _Mapping]] = ...) -> None: ...

class SurveyedTopic(_message.Message):
    __slots__ = ("name", "topic_id", "partition_count", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    partition_count: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition_count: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SurveyLinkReply(_message.Message):
    __slots__ = ("site", "version", "topics", "topic_count", "problems", "arbiter_id", "security", "warnings")
    SITE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    ARBITER_ID_FIELD_NUMBER: _ClassVar[int]
    SECURITY_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    site: str
    version: str
    topics: _containers.RepeatedCompositeFieldContainer[SurveyedTopic]
    topic_count: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    arbiter_id: str
    security: SecuritySurvey
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, site: _Optional[str] = ..., version: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[SurveyedTopic, _Mapping]]] = ..., topic_count: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ..., arbiter_id: _Optional[str] = ..., security: _Optional[_Union[SecuritySurvey, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class SecuritySurvey(_message.Message):
    __slots__ = ("has_authorizer", "super_users", "users", "acls", "listeners", "delegation_tokens", "control_certificate_ends_at_ms", "delegation_token_secret")
    HAS_AUTHORIZER_FIELD_NUMBER: _ClassVar[int]
    SUPER_USERS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_CERTIFICATE_ENDS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_TOKEN_SECRET_FIELD_NUMBER: _ClassVar[int]
    has_authorizer: bool
    super_users: _containers.RepeatedScalarFieldContainer[str]
    users: _containers.RepeatedScalarFieldContainer[str]
    acls: _containers.RepeatedCompositeFieldContainer[PrincipalAcls]
    listeners: _containers.RepeatedCompositeFieldContainer[ListenerSurvey]
    delegation_tokens: int
    control_certificate_ends_at_ms: int
    delegation_token_secret: int
    def __init__(self, has_authorizer: _Optional[bool] = ..., super_users: _Optional[_Iterable[str]] = ..., users: _Optional[_Iterable[str]] = ..., acls: _Optional[_Iterable[_Union[PrincipalAcls, _Mapping]]] = ..., listeners: _Optional[_Iterable[_Union[ListenerSurvey, _Mapping]]] = ..., delegation_tokens: _Optional[int] = ..., control_certificate_ends_at_ms: _Optional[int] = ..., delegation_token_secret: _Optional[int] = ...) -> None: ...

class PrincipalAcls(_message.Message):
    __slots__ = ("principal", "acls")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    principal: str
    acls: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, principal: _Optional[str] = ..., acls: _Optional[_Iterable[int]] = ...) -> None: ...

class ListenerSurvey(_message.Message):
    __slots__ = ("name", "protocol", "mechanisms", "client_auth", "authorities", "certificate_ends_at_ms", "mapping_rules", "authorities_found", "certificate_issuer", "unnamed_host", "tls_versions", "token_rules", "plain_passwords")
    class AuthoritiesFoundEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AuthoritySurvey
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AuthoritySurvey, _Mapping]] = ...) -> None: ...
    class TokenRulesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class PlainPasswordsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MECHANISMS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_AUTH_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_ENDS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_RULES_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FOUND_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_ISSUER_FIELD_NUMBER: _ClassVar[int]
    UNNAMED_HOST_FIELD_NUMBER: _ClassVar[int]
    TLS_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_RULES_FIELD_NUMBER: _ClassVar[int]
    PLAIN_PASSWORDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    protocol: str
    mechanisms: _containers.RepeatedScalarFieldContainer[str]
    client_auth: str
    authorities: _containers.RepeatedScalarFieldContainer[str]
    certificate_ends_at_ms: int
    mapping_rules: str
    authorities_found: _containers.MessageMap[str, AuthoritySurvey]
    certificate_issuer: str
    unnamed_host: str
    tls_versions: _containers.RepeatedScalarFieldContainer[str]
    token_rules: _containers.ScalarMap[str, str]
    plain_passwords: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., protocol: _Optional[str] = ..., mechanisms: _Optional[_Iterable[str]] = ..., client_auth: _Optional[str] = ..., authorities: _Optional[_Iterable[str]] = ..., certificate_ends_at_ms: _Optional[int] = ..., mapping_rules: _Optional[str] = ..., authorities_found: _Optional[_Mapping[str, AuthoritySurvey]] = ..., certificate_issuer: _Optional[str] = ..., unnamed_host: _Optional[str] = ..., tls_versions: _Optional[_Iterable[str]] = ..., token_rules: _Optional[_Mapping[str, str]] = ..., plain_passwords: _Optional[_Mapping[str, int]] = ...) -> None: ...

class AuthoritySurvey(_message.Message):
    __slots__ = ("subject", "ends_at_ms")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    ends_at_ms: int
    def __init__(self, subject: _Optional[str] = ..., ends_at_ms: _Optional[int] = ...) -> None: ...

class CreateLinkRequest(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: _cluster_pb2.LinkRecord
    def __init__(self, record: _Optional[_Union[_cluster_pb2.LinkRecord, _Mapping]] = ...) -> None: ...

class DeleteLinkRequest(_message.Message):
    __slots__ = ("name", "epoch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    epoch: int
    def __init__(self, name: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class AdoptLinkRequest(_message.Message):
    __slots__ = ("record", "timeout_ms", "account_json", "unless_accounted")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_JSON_FIELD_NUMBER: _ClassVar[int]
    UNLESS_ACCOUNTED_FIELD_NUMBER: _ClassVar[int]
    record: _cluster_pb2.LinkRecord
    timeout_ms: int
    account_json: str
    unless_accounted: bool
    def __init__(self, record: _Optional[_Union[_cluster_pb2.LinkRecord, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., account_json: _Optional[str] = ..., unless_accounted: _Optional[bool] = ...) -> None: ...

class AlterLinkRequest(_message.Message):
    __slots__ = ("name", "sync_policy", "sync_timeout_ms", "is_dry_run", "timeout_ms", "reinstate_policy", "lease_ms", "failover_mode", "failover_lag_records_max", "failover_lag_ms_max", "sync_bound_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SYNC_POLICY_FIELD_NUMBER: _ClassVar[int]
    SYNC_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REINSTATE_POLICY_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_MODE_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_LAG_RECORDS_MAX_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_LAG_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    SYNC_BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    sync_policy: str
    sync_timeout_ms: int
    is_dry_run: bool
    timeout_ms: int
    reinstate_policy: str
    lease_ms: int
    failover_mode: str
    failover_lag_records_max: int
    failover_lag_ms_max: int
    sync_bound_ms: int
    def __init__(self, name: _Optional[str] = ..., sync_policy: _Optional[str] = ..., sync_timeout_ms: _Optional[int] = ..., is_dry_run: _Optional[bool] = ..., timeout_ms: _Optional[int] = ..., reinstate_policy: _Optional[str] = ..., lease_ms: _Optional[int] = ..., failover_mode: _Optional[str] = ..., failover_lag_records_max: _Optional[int] = ..., failover_lag_ms_max: _Optional[int] = ..., sync_bound_ms: _Optional[int] = ...) -> None: ...

class ConfirmSiteLinkRequest(_message.Message):
    __slots__ = ("name", "epoch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    epoch: int
    def __init__(self, name: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class LinkReply(_message.Message):
    __slots__ = ("record", "has_leaders", "are_writable")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    HAS_LEADERS_FIELD_NUMBER: _ClassVar[int]
    ARE_WRITABLE_FIELD_NUMBER: _ClassVar[int]
    record: _cluster_pb2.LinkRecord
    has_leaders: bool
    are_writable: bool
    def __init__(self, record: _Optional[_Union[_cluster_pb2.LinkRecord, _Mapping]] = ..., has_leaders: _Optional[bool] = ..., are_writable: _Optional[bool] = ...) -> None: ...

class DescribeLinkRequest(_message.Message):
    __slots__ = ("name", "is_brief", "with_log_versions", "known_log_versions", "accepts_columns")
    class KnownLogVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_BRIEF_FIELD_NUMBER: _ClassVar[int]
    WITH_LOG_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_LOG_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    name: str
    is_brief: bool
    with_log_versions: bool
    known_log_versions: _containers.ScalarMap[int, int]
    accepts_columns: bool
    def __init__(self, name: _Optional[str] = ..., is_brief: _Optional[bool] = ..., with_log_versions: _Optional[bool] = ..., known_log_versions: _Optional[_Mapping[int, int]] = ..., accepts_columns: _Optional[bool] = ...) -> None: ...

class DescribeLinkReply(_message.Message):
    __slots__ = ("site", "record", "partitions", "enforced_epochs", "cuts", "peer_seen_at_ms", "unprotected", "protection", "verification", "rehearsal", "quarantines", "log_versions", "are_logs_unchanged", "columns", "unfenced")
    class EnforcedEpochsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class LogVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    SITE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    PEER_SEEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UNPROTECTED_FIELD_NUMBER: _ClassVar[int]
    PROTECTION_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    REHEARSAL_FIELD_NUMBER: _ClassVar[int]
    QUARANTINES_FIELD_NUMBER: _ClassVar[int]
    LOG_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ARE_LOGS_UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    UNFENCED_FIELD_NUMBER: _ClassVar[int]
    site: str
    record: _cluster_pb2.LinkRecord
    partitions: _containers.RepeatedCompositeFieldContainer[_broker_pb2.PartitionDescription]
    enforced_epochs: _containers.ScalarMap[int, int]
    cuts: _containers.RepeatedCompositeFieldContainer[_broker_pb2.TruncatedLog]
    peer_seen_at_ms: int
    unprotected: _containers.RepeatedCompositeFieldContainer[UnprotectedTopic]
    protection: LinkProtection
    verification: LinkVerification
    rehearsal: LinkRehearsal
    quarantines: _containers.RepeatedCompositeFieldContainer[_broker_pb2.QuarantineUse]
    log_versions: _containers.ScalarMap[int, int]
    are_logs_unchanged: bool
    columns: _containers.RepeatedCompositeFieldContainer[_broker_pb2.PartitionColumns]
    unfenced: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, site: _Optional[str] = ..., record: _Optional[_Union[_cluster_pb2.LinkRecord, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[_broker_pb2.PartitionDescription, _Mapping]]] = ..., enforced_epochs: _Optional[_Mapping[int, int]] = ..., cuts: _Optional[_Iterable[_Union[_broker_pb2.TruncatedLog, _Mapping]]] = ..., peer_seen_at_ms: _Optional[int] = ..., unprotected: _Optional[_Iterable[_Union[UnprotectedTopic, _Mapping]]] = ..., protection: _Optional[_Union[LinkProtection, _Mapping]] = ..., verification: _Optional[_Union[LinkVerification, _Mapping]] = ..., rehearsal: _Optional[_Union[LinkRehearsal, _Mapping]] = ..., quarantines: _Optional[_Iterable[_Union[_broker_pb2.QuarantineUse, _Mapping]]] = ..., log_versions: _Optional[_Mapping[int, int]] = ..., are_logs_unchanged: _Optional[bool] = ..., columns: _Optional[_Iterable[_Union[_broker_pb2.PartitionColumns, _Mapping]]] = ..., unfenced: _Optional[_Iterable[int]] = ...) -> None: ...

class LinkProtection(_message.Message):
    __slots__ = ("epoch", "since_ms", "reason", "judged_at_ms")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JUDGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    since_ms: int
    reason: str
    judged_at_ms: int
    def __init__(self, epoch: _Optional[int] = ..., since_ms: _Optional[int] = ..., reason: _Optional[str] = ..., judged_at_ms: _Optional[int] = ...) -> None: ...

class LinkVerification(_message.Message):
    __slots__ = ("epoch", "verified_until_ms", "compared_at_ms", "differences", "reason", "not_covered")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NOT_COVERED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    verified_until_ms: int
    compared_at_ms: int
    differences: int
    reason: str
    not_covered: str
    def __init__(self, epoch: _Optional[int] = ..., verified_until_ms: _Optional[int] = ..., compared_at_ms: _Optional[int] = ..., differences: _Optional[int] = ..., reason: _Optional[str] = ..., not_covered: _Optional[str] = ...) -> None: ...

class LinkRehearsal(_message.Message):
    __slots__ = ("site", "started_at_ms", "ended_at_ms", "is_passed", "reason", "promotion_ms", "partitions")
    SITE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    IS_PASSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROMOTION_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    site: str
    started_at_ms: int
    ended_at_ms: int
    is_passed: bool
    reason: str
    promotion_ms: int
    partitions: int
    def __init__(self, site: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., is_passed: _Optional[bool] = ..., reason: _Optional[str] = ..., promotion_ms: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class UnprotectedTopic(_message.Message):
    __slots__ = ("topic", "partitions", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ...) -> None: ...

class DescribeGroupsRequest(_message.Message):
    __slots__ = ("link", "is_brief")
    LINK_FIELD_NUMBER: _ClassVar[int]
    IS_BRIEF_FIELD_NUMBER: _ClassVar[int]
    link: str
    is_brief: bool
    def __init__(self, link: _Optional[str] = ..., is_brief: _Optional[bool] = ...) -> None: ...

class DescribeGroupsReply(_message.Message):
    __slots__ = ("groups", "problems", "synced_at_ms", "committing_transactions", "transaction_problems", "failing", "answered_at_ms", "resting_ms_ago", "transactional_producers", "report_round_ms", "fenced_access", "carried_access", "access_synced_ms_ago", "has_mirror_reported")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    SYNCED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    COMMITTING_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RESTING_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    REPORT_ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    FENCED_ACCESS_FIELD_NUMBER: _ClassVar[int]
    CARRIED_ACCESS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_SYNCED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    HAS_MIRROR_REPORTED_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[_broker_pb2.GroupOffsets]
    problems: _containers.RepeatedScalarFieldContainer[str]
    synced_at_ms: int
    committing_transactions: int
    transaction_problems: _containers.RepeatedScalarFieldContainer[str]
    failing: _containers.RepeatedCompositeFieldContainer[_broker_pb2.SyncReport]
    answered_at_ms: int
    resting_ms_ago: int
    transactional_producers: _broker_pb2.TransactionalProducers
    report_round_ms: int
    fenced_access: _broker_pb2.AccessDigests
    carried_access: _broker_pb2.AccessDigests
    access_synced_ms_ago: int
    has_mirror_reported: bool
    def __init__(self, groups: _Optional[_Iterable[_Union[_broker_pb2.GroupOffsets, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ..., synced_at_ms: _Optional[int] = ..., committing_transactions: _Optional[int] = ..., transaction_problems: _Optional[_Iterable[str]] = ..., failing: _Optional[_Iterable[_Union[_broker_pb2.SyncReport, _Mapping]]] = ..., answered_at_ms: _Optional[int] = ..., resting_ms_ago: _Optional[int] = ..., transactional_producers: _Optional[_Union[_broker_pb2.TransactionalProducers, _Mapping]] = ..., report_round_ms: _Optional[int] = ..., fenced_access: _Optional[_Union[_broker_pb2.AccessDigests, _Mapping]] = ..., carried_access: _Optional[_Union[_broker_pb2.AccessDigests, _Mapping]] = ..., access_synced_ms_ago: _Optional[int] = ..., has_mirror_reported: _Optional[bool] = ...) -> None: ...

class ObserveLinkRequest(_message.Message):
    __slots__ = ("link", "asking_site", "known_view_version", "known_account_versions", "with_groups", "with_log_versions", "known_log_versions", "accepts_columns", "known_topics_version")
    class KnownAccountVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class KnownLogVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    LINK_FIELD_NUMBER: _ClassVar[int]
    ASKING_SITE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VIEW_VERSION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_ACCOUNT_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    WITH_GROUPS_FIELD_NUMBER: _ClassVar[int]
    WITH_LOG_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_LOG_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TOPICS_VERSION_FIELD_NUMBER: _ClassVar[int]
    link: str
    asking_site: str
    known_view_version: int
    known_account_versions: _containers.ScalarMap[int, int]
    with_groups: bool
    with_log_versions: bool
    known_log_versions: _containers.ScalarMap[int, int]
    accepts_columns: bool
    known_topics_version: int
    def __init__(self, link: _Optional[str] = ..., asking_site: _Optional[str] = ..., known_view_version: _Optional[int] = ..., known_account_versions: _Optional[_Mapping[int, int]] = ..., with_groups: _Optional[bool] = ..., with_log_versions: _Optional[bool] = ..., known_log_versions: _Optional[_Mapping[int, int]] = ..., accepts_columns: _Optional[bool] = ..., known_topics_version: _Optional[int] = ...) -> None: ...

class ObserveLinkReply(_message.Message):
    __slots__ = ("description", "view", "links", "failovers", "groups")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    FAILOVERS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    description: DescribeLinkReply
    view: GetSiteViewReply
    links: ListLinksReply
    failovers: ListFailoversReply
    groups: DescribeGroupsReply
    def __init__(self, description: _Optional[_Union[DescribeLinkReply, _Mapping]] = ..., view: _Optional[_Union[GetSiteViewReply, _Mapping]] = ..., links: _Optional[_Union[ListLinksReply, _Mapping]] = ..., failovers: _Optional[_Union[ListFailoversReply, _Mapping]] = ..., groups: _Optional[_Union[DescribeGroupsReply, _Mapping]] = ...) -> None: ...

class RecordFailoverRequest(_message.Message):
    __slots__ = ("link", "epoch", "json")
    LINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    link: str
    epoch: int
    json: str
    def __init__(self, link: _Optional[str] = ..., epoch: _Optional[int] = ..., json: _Optional[str] = ...) -> None: ...

class RecordFailoverReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListFailoversRequest(_message.Message):
    __slots__ = ("link", "with_runs", "known_versions")
    class KnownVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    LINK_FIELD_NUMBER: _ClassVar[int]
    WITH_RUNS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    link: str
    with_runs: bool
    known_versions: _containers.ScalarMap[int, int]
    def __init__(self, link: _Optional[str] = ..., with_runs: _Optional[bool] = ..., known_versions: _Optional[_Mapping[int, int]] = ...) -> None: ...

class ListFailoversReply(_message.Message):
    __slots__ = ("json", "runs", "epochs", "versions")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    JSON_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    json: _containers.RepeatedScalarFieldContainer[str]
    runs: _containers.RepeatedScalarFieldContainer[str]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    versions: _containers.ScalarMap[int, int]
    def __init__(self, json: _Optional[_Iterable[str]] = ..., runs: _Optional[_Iterable[str]] = ..., epochs: _Optional[_Iterable[int]] = ..., versions: _Optional[_Mapping[int, int]] = ...) -> None: ...

class RequestFailoverRequest(_message.Message):
    __slots__ = ("link", "asked_by")
    LINK_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    link: str
    asked_by: str
    def __init__(self, link: _Optional[str] = ..., asked_by: _Optional[str] = ...) -> None: ...

class RequestFailoverReply(_message.Message):
    __slots__ = ("epoch", "json")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    json: str
    def __init__(self, epoch: _Optional[int] = ..., json: _Optional[str] = ...) -> None: ...

class RecordRunRequest(_message.Message):
    __slots__ = ("link", "run", "json")
    LINK_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    link: str
    run: str
    json: str
    def __init__(self, link: _Optional[str] = ..., run: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class RecordRunReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecordRehearsalRequest(_message.Message):
    __slots__ = ("link", "rehearsal")
    LINK_FIELD_NUMBER: _ClassVar[int]
    REHEARSAL_FIELD_NUMBER: _ClassVar[int]
    link: str
    rehearsal: LinkRehearsal
    def __init__(self, link: _Optional[str] = ..., rehearsal: _Optional[_Union[LinkRehearsal, _Mapping]] = ...) -> None: ...

class RecordRehearsalReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SharedAccess(_message.Message):
    __slots__ = ("epoch", "by_part")
    class ByPartEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BY_PART_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    by_part: _containers.ScalarMap[str, bytes]
    def __init__(self, epoch: _Optional[int] = ..., by_part: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class GetSharedAccessRequest(_message.Message):
    __slots__ = ("link", "epoch")
    LINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    link: str
    epoch: int
    def __init__(self, link: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class GetSharedAccessReply(_message.Message):
    __slots__ = ("shared", "version")
    SHARED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    shared: SharedAccess
    version: int
    def __init__(self, shared: _Optional[_Union[SharedAccess, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class RecordSharedAccessRequest(_message.Message):
    __slots__ = ("link", "shared", "version")
    LINK_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    link: str
    shared: SharedAccess
    version: int
    def __init__(self, link: _Optional[str] = ..., shared: _Optional[_Union[SharedAccess, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class RecordSharedAccessReply(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class GrantVowRequest(_message.Message):
    __slots__ = ("link", "epoch", "asking_site", "node_id", "is_release")
    LINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASKING_SITE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_RELEASE_FIELD_NUMBER: _ClassVar[int]
    link: str
    epoch: int
    asking_site: str
    node_id: int
    is_release: bool
    def __init__(self, link: _Optional[str] = ..., epoch: _Optional[int] = ..., asking_site: _Optional[str] = ..., node_id: _Optional[int] = ..., is_release: _Optional[bool] = ...) -> None: ...

class GrantVowReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ArbiterRecord(_message.Message):
    __slots__ = ("link", "epoch", "active_site", "is_open", "lease_ms", "updated_at_ms", "wait_ms", "has_lost_former")
    LINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SITE_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    HAS_LOST_FORMER_FIELD_NUMBER: _ClassVar[int]
    link: str
    epoch: int
    active_site: str
    is_open: bool
    lease_ms: int
    updated_at_ms: int
    wait_ms: int
    has_lost_former: bool
    def __init__(self, link: _Optional[str] = ..., epoch: _Optional[int] = ..., active_site: _Optional[str] = ..., is_open: _Optional[bool] = ..., lease_ms: _Optional[int] = ..., updated_at_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., has_lost_former: _Optional[bool] = ...) -> None: ...
