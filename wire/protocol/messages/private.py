"""Kafka-protocol messages of our own, in the style of kio's entities so that kio's reader and
writer serve them too.

| key | name | versions | schema |
| --- | --- | --- | --- |
| 20001 | MirrorAppend | 0 | `mirror_append_messages.py`; raw batches that continue a mirrored log |
| 20002 | SiteMetadata | 12 | that of Metadata version 12, with the same number |
| 20003 | MirrorOffsetCommit | 8 and 9 | that of OffsetCommit, link and link epoch in the group instance id (`link_claim`) |
| 20004 | CompressConnection | 0 | below; after a good answer both sides send compressed chunks (`streams/compressed_stream.py`) |
| 20005 | LinkProgress | 0 | `link_messages.py`; what a sync link's standby has, reported to the source's leaders |
| 20006 | MirrorTransactionalIds | 0 | `link_messages.py`; the source's transactional producers, for the target's coordinators |
| 20007 | QuarantineRecords | 0 | `quarantine_messages.py`; what is kept of copies before they are deleted or truncated |
| 20008 | Quarantine | 0 | `quarantine_messages.py`; lists, reads and deletes what a broker keeps |
| 20009 | TopicsChanged | 0 | `topics_changed_messages.py`; a broker reports changed topics to the brokers of its peer |
| 20010 | RangeDigests | 0 | `range_digest_messages.py`; what logs hold in ranges of offsets, as digests or headers |
| 20011 | ReplaceBatches | 0 | `batch_replacement_messages.py`; sound bytes for batches that are damaged on a disk |
| 20012 | ScramUsers | 0 | `scram_user_messages.py`; SCRAM users as they are stored, for the standby of an exact link |
| 20013 | EndTransactions | 0 | `transaction_end_messages.py`; decided transactions for the logs of their partitions |
| 20014 | MirrorGroupOffsets | 0 | `group_offset_messages.py`; the offsets of several groups, as MirrorOffsetCommit of one |
| 20015 | DamagedBatches | 0 | `damaged_batch_messages.py`; what a broker's scrubber has found on its disks |
| 20016 | MirrorReports | 0 | `mirror_report_messages.py`; the source has no new records of the partitions of a session |
| 20017 | CarriedOffsets | 0 | `group_offset_messages.py`; the offsets of groups that mirrors of a link have written |
| 20018 | DelegationTokens | 0 | `delegation_token_messages.py`; delegation tokens as they are stored, for the standby of an exact link |
| 20019 | ClientTokenRequest | 0 | `delegation_token_messages.py`; a client's request about tokens that a standby hands on |
| 20020 | AccessChanges | 0 | `access_change_messages.py`; the mirror of an exact link waits for a change of access rules |
| 20021 | StandbyRules | 0 | `access_change_messages.py`; ACLs, client quotas and configs of groups for the standby of an exact link |

A MirrorOffsetCommit without a group has, in the member id, as of when (Unix ms) the mirror has
carried all offsets, 0 when it has not. The metadata of its one partition names the daemon, its
parts of the link, and its failures (`wire/rules/sync_reports.py`).

A broker advertises them in ApiVersions only to clients whose software name is `antipode`.
MirrorAppend's error codes, by partition:

| code | meaning | what a mirror does |
| --- | --- | --- |
| NONE | appended, or was there already with the same bytes | goes on at `log_end_offset` |
| OFFSET_OUT_OF_RANGE, `divergence_epoch` -1 | not the log's end: a gap, or an overlap across a batch | resumes at `log_end_offset` |
| OFFSET_OUT_OF_RANGE, `divergence_epoch` >= 0 | histories differ: see `divergence_end_offset` | stops the partition |
| FENCED_LEADER_EPOCH | the link has a higher epoch (`link_epoch` says which) | reads the link anew |
| UNKNOWN_LEADER_EPOCH | the broker does not know the link, or not yet this epoch | retries |
| NOT_LEADER_OR_FOLLOWER | not the leader here, or the site may not take mirrored records | refreshes metadata |
| UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID | not (yet) there; another topic of that name | retries; stops, reports |
| CORRUPT_MESSAGE, INVALID_RECORD | CRC; structure of a batch | fetches again |
| KAFKA_STORAGE_ERROR | the disk failed | retries |
"""

# Annotations stay real types here (no postponed evaluation): kio reads them from the dataclass
# fields.
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16

from wire.protocol.messages.access_change_messages import (
    ACCESS_CHANGES,
    STANDBY_RULES,
    AccessChangesRequest,
    AccessChangesResponse,
    StandbyRulesRequest,
    StandbyRulesResponse,
)
from wire.protocol.messages.batch_replacement_messages import (
    REPLACE_BATCHES,
    ReplaceBatchesRequest,
    ReplaceBatchesResponse,
)
from wire.protocol.messages.damaged_batch_messages import (
    DAMAGED_BATCHES,
    DamagedBatchesRequest,
    DamagedBatchesResponse,
)
from wire.protocol.messages.delegation_token_messages import (
    CLIENT_TOKEN_REQUEST,
    DELEGATION_TOKENS,
    ClientTokenRequest,
    ClientTokenRequestResponse,
    DelegationTokensRequest,
    DelegationTokensResponse,
)
from wire.protocol.messages.group_offset_messages import (
    CARRIED_OFFSETS,
    MIRROR_GROUP_OFFSETS,
    CarriedOffsetsRequest,
    CarriedOffsetsResponse,
    MirrorGroupOffsetsRequest,
    MirrorGroupOffsetsResponse,
)
from wire.protocol.messages.link_messages import (
    LINK_PROGRESS,
    MIRROR_TRANSACTIONAL_IDS,
    LinkProgressRequest,
    LinkProgressResponse,
    MirrorTransactionalIdsRequest,
    MirrorTransactionalIdsResponse,
)
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND, MirrorAppendRequest, MirrorAppendResponse
from wire.protocol.messages.mirror_report_messages import (
    MIRROR_REPORTS,
    MirrorReportsRequest,
    MirrorReportsResponse,
)
from wire.protocol.messages.quarantine_messages import (
    QUARANTINE,
    QUARANTINE_RECORDS,
    QuarantineRecordsRequest,
    QuarantineRecordsResponse,
    QuarantineRequest,
    QuarantineResponse,
)
from wire.protocol.messages.range_digest_messages import RANGE_DIGESTS, RangeDigestsRequest, RangeDigestsResponse
from wire.protocol.messages.scram_user_messages import SCRAM_USERS, ScramUsersRequest, ScramUsersResponse
from wire.protocol.messages.topics_changed_messages import TOPICS_CHANGED, TopicsChangedRequest, TopicsChangedResponse
from wire.protocol.messages.transaction_end_messages import (
    END_TRANSACTIONS,
    EndTransactionsRequest,
    EndTransactionsResponse,
)

SITE_METADATA: Final = 20002
MIRROR_OFFSET_COMMIT: Final = 20003
COMPRESS_CONNECTION: Final = 20004

CODEC_ZSTD: Final = 4
"""The number in the attributes of a record batch."""

CLIENT_SOFTWARE_NAME: Final = "antipode"
"""Software name in ApiVersions requests to which brokers advertise these messages."""

PRIVATE_NAMES: Final = {
    MIRROR_APPEND: "mirror_append",
    SITE_METADATA: "site_metadata",
    MIRROR_OFFSET_COMMIT: "mirror_offset_commit",
    COMPRESS_CONNECTION: "compress_connection",
    LINK_PROGRESS: "link_progress",
    MIRROR_TRANSACTIONAL_IDS: "mirror_transactional_ids",
    QUARANTINE_RECORDS: "quarantine_records",
    QUARANTINE: "quarantine",
    TOPICS_CHANGED: "topics_changed",
    RANGE_DIGESTS: "range_digests",
    REPLACE_BATCHES: "replace_batches",
    SCRAM_USERS: "scram_users",
    END_TRANSACTIONS: "end_transactions",
    MIRROR_GROUP_OFFSETS: "mirror_group_offsets",
    CARRIED_OFFSETS: "carried_offsets",
    MIRROR_REPORTS: "mirror_reports",
    DAMAGED_BATCHES: "damaged_batches",
    DELEGATION_TOKENS: "delegation_tokens",
    CLIENT_TOKEN_REQUEST: "client_token_request",
    ACCESS_CHANGES: "access_changes",
    STANDBY_RULES: "standby_rules",
}
PRIVATE_VERSIONS: Final = {
    MIRROR_APPEND: (0, 0),
    SITE_METADATA: (12, 12),
    MIRROR_OFFSET_COMMIT: (8, 9),
    COMPRESS_CONNECTION: (0, 0),
    LINK_PROGRESS: (0, 0),
    MIRROR_TRANSACTIONAL_IDS: (0, 0),
    QUARANTINE_RECORDS: (0, 0),
    QUARANTINE: (0, 0),
    TOPICS_CHANGED: (0, 0),
    RANGE_DIGESTS: (0, 0),
    REPLACE_BATCHES: (0, 0),
    SCRAM_USERS: (0, 0),
    END_TRANSACTIONS: (0, 0),
    MIRROR_GROUP_OFFSETS: (0, 0),
    CARRIED_OFFSETS: (0, 0),
    MIRROR_REPORTS: (0, 0),
    DAMAGED_BATCHES: (0, 0),
    DELEGATION_TOKENS: (0, 0),
    CLIENT_TOKEN_REQUEST: (0, 0),
    ACCESS_CHANGES: (0, 0),
    STANDBY_RULES: (0, 0),
}


_BORROWED_SCHEMAS: Final = {SITE_METADATA: 3, MIRROR_OFFSET_COMMIT: 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressConnectionRequest:
    """The wish to compress a connection, both ways, from the answer on; no other request may be
    under way.
    """

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(COMPRESS_CONNECTION)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    codec: i8 = field(metadata={"kafka_type": "int8"})
    """CODEC_ZSTD."""
    level: i8 = field(metadata={"kafka_type": "int8"})
    """The compression level: 1 to 19."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressConnectionResponse:
    """INVALID_REQUEST for a level out of range, UNSUPPORTED_COMPRESSION_TYPE for a codec that the
    broker lacks.
    """

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(COMPRESS_CONNECTION)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when the next byte of either side is the first of a chunk."""


_OWN_REQUESTS: Final[dict[int, type[Any]]] = {
    MIRROR_APPEND: MirrorAppendRequest,
    COMPRESS_CONNECTION: CompressConnectionRequest,
    LINK_PROGRESS: LinkProgressRequest,
    MIRROR_TRANSACTIONAL_IDS: MirrorTransactionalIdsRequest,
    QUARANTINE_RECORDS: QuarantineRecordsRequest,
    QUARANTINE: QuarantineRequest,
    TOPICS_CHANGED: TopicsChangedRequest,
    RANGE_DIGESTS: RangeDigestsRequest,
    REPLACE_BATCHES: ReplaceBatchesRequest,
    SCRAM_USERS: ScramUsersRequest,
    END_TRANSACTIONS: EndTransactionsRequest,
    MIRROR_GROUP_OFFSETS: MirrorGroupOffsetsRequest,
    CARRIED_OFFSETS: CarriedOffsetsRequest,
    MIRROR_REPORTS: MirrorReportsRequest,
    DAMAGED_BATCHES: DamagedBatchesRequest,
    DELEGATION_TOKENS: DelegationTokensRequest,
    CLIENT_TOKEN_REQUEST: ClientTokenRequest,
    ACCESS_CHANGES: AccessChangesRequest,
    STANDBY_RULES: StandbyRulesRequest,
}
_OWN_RESPONSES: Final[dict[int, type[Any]]] = {
    MIRROR_APPEND: MirrorAppendResponse,
    COMPRESS_CONNECTION: CompressConnectionResponse,
    LINK_PROGRESS: LinkProgressResponse,
    MIRROR_TRANSACTIONAL_IDS: MirrorTransactionalIdsResponse,
    QUARANTINE_RECORDS: QuarantineRecordsResponse,
    QUARANTINE: QuarantineResponse,
    TOPICS_CHANGED: TopicsChangedResponse,
    RANGE_DIGESTS: RangeDigestsResponse,
    REPLACE_BATCHES: ReplaceBatchesResponse,
    SCRAM_USERS: ScramUsersResponse,
    END_TRANSACTIONS: EndTransactionsResponse,
    MIRROR_GROUP_OFFSETS: MirrorGroupOffsetsResponse,
    CARRIED_OFFSETS: CarriedOffsetsResponse,
    MIRROR_REPORTS: MirrorReportsResponse,
    DAMAGED_BATCHES: DamagedBatchesResponse,
    DELEGATION_TOKENS: DelegationTokensResponse,
    CLIENT_TOKEN_REQUEST: ClientTokenRequestResponse,
    ACCESS_CHANGES: AccessChangesResponse,
    STANDBY_RULES: StandbyRulesResponse,
}


def load_private_request(api_key: int, version: int) -> type[Any]:
    """The entity of a private request. Raises LookupError for an unknown key or version."""
    _check_version(api_key, version)
    if api_key in _OWN_REQUESTS:
        return _OWN_REQUESTS[api_key]
    return load_request_schema(_BORROWED_SCHEMAS[api_key], version)


def load_private_response(api_key: int, version: int) -> type[Any]:
    """The entity of a private response. Raises LookupError for an unknown key or version."""
    _check_version(api_key, version)
    if api_key in _OWN_RESPONSES:
        return _OWN_RESPONSES[api_key]
    return load_response_schema(_BORROWED_SCHEMAS[api_key], version)


def _check_version(api_key: int, version: int) -> None:
    lowest, highest = PRIVATE_VERSIONS[api_key]
    if not lowest <= version <= highest:
        raise LookupError(f"{PRIVATE_NAMES[api_key]} has versions {lowest} to {highest}, not {version}")


def link_claim(link: str, link_epoch: int) -> str:
    """The group instance id of a MirrorOffsetCommit: which link, and at which epoch, writes the
    offsets.
    """
    return f"{link}@{link_epoch}"


def parse_link_claim(claim: str | None) -> tuple[str, int]:
    """Link and epoch of a `link_claim`. ValueError when it is none."""
    link, separator, epoch = (claim or "").rpartition("@")
    if not separator or not link or not epoch.isascii() or not epoch.isdecimal():
        raise ValueError(f"{claim!r} is not a link claim; accepted: link@epoch")
    return link, int(epoch)
