"""One of our private messages: `RangeDigests`; `wire/protocol/private.py` has the table of all.

A broker answers with digests of what the logs that it leads hold, by ranges of offsets
(`broker/log/core/leaf_digests.py`): a leaf has `leaf_offsets` offsets from a multiple of it, a node
spans neighbouring leaves. Error codes by partition: NOT_LEADER_OR_FOLLOWER and
UNKNOWN_TOPIC_OR_PARTITION as for clients, INVALID_REQUEST for more digests than one answer has,
UNSUPPORTED_FOR_MESSAGE_FORMAT for a compacted log, which has none, KAFKA_STORAGE_ERROR where the
log holds bytes that are no batch. Answers hold the leaves that have ended below the high watermark.
"""

# Annotations stay real types here (no postponed evaluation): kio reads them from the dataclass
# fields.
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

RANGE_DIGESTS: Final = 20010

DIGEST_BYTES: Final = 16
DIGESTS_MAX: Final = 8192
"""Of one answer, over all its partitions."""
PARTITIONS_MAX: Final = 2000
"""Of one request."""
WHOLE_RANGE: Final = 0
"""A span: one digest for all leaves of the range."""
NO_END: Final = -1
"""An end: that of what has a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDigestsQuery:
    """What is asked about one partition."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RANGE_DIGESTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    first_leaf: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    """The first leaf of the range; a log that begins later answers from there."""
    end_leaf: i64 = field(metadata={"kafka_type": "int64"}, default=i64(NO_END))
    """The leaf behind the range; NO_END for all."""
    span: i64 = field(metadata={"kafka_type": "int64"}, default=i64(WHOLE_RANGE))
    """Leaves in a node, whose first one is a multiple of it; WHOLE_RANGE for one digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDigestsTopic:
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RANGE_DIGESTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partitions: tuple[RangeDigestsQuery, ...]
    """Each partition that is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDigestsRequest:
    """A question about digests."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RANGE_DIGESTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topics: tuple[RangeDigestsTopic, ...]
    """Each topic that is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDigestsAnswer:
    """What one log holds."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RANGE_DIGESTS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE, or why there are no digests."""
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)
    """A sentence for the operator."""
    log_start_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    """Where the log starts."""
    high_watermark: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    """Up to where everything is replicated in the site."""
    first_leaf: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    """The first leaf that the digests below count."""
    end_leaf: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    """The leaf behind the last one that they count; not above `first_leaf` when there is none."""
    pending_leaves: i32 = field(metadata={"kafka_type": "int32"}, default=i32(0))
    """Leaves that have ended and have no digest yet: the broker is reading the log."""
    digests: bytes = field(metadata={"kafka_type": "bytes"}, default=b"")
    """The digests of the nodes, joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDigestsTopicAnswer:
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RANGE_DIGESTS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: TopicName = field(metadata={"kafka_type": "string"})
    """The topic name."""
    partitions: tuple[RangeDigestsAnswer, ...]
    """In the order of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDigestsResponse:
    """Digests by partition."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RANGE_DIGESTS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    leaf_offsets: i32 = field(metadata={"kafka_type": "int32"})
    """Offsets of a leaf."""
    topics: tuple[RangeDigestsTopicAnswer, ...]
    """In the order of the request."""
