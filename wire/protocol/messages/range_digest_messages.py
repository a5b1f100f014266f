"""One of our private messages: `RangeDigests`; `wire/protocol/messages/private.py` has the table of
all.

A broker answers with digests of what the logs that it leads hold in a range of offsets
(`wire/batches/leaf_digests.py`). A leaf has `leaf_offsets` offsets from a multiple of that
number, a node spans neighbouring leaves, and a leaf or node at either end of the range counts only
records in the range. A batch belongs to the range and the leaf of its base offset.

Error codes by partition: NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_OR_PARTITION as for clients,
OFFSET_OUT_OF_RANGE for a range that is not between log start and high watermark, INVALID_REQUEST
for more than one answer may hold, UNSUPPORTED_FOR_MESSAGE_FORMAT for a compacted log, which has no
digests, INVALID_RECORD (Kafka's codes for damage are retriable, and this one is not) where the log
holds bytes that are not what was written.
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
"""The maximum number of digests in one answer, over all its partitions."""
HEADER_RANGES_MAX: Final = 16
"""The maximum number of ranges in one request whose headers are asked for."""
HEADER_OFFSETS_MAX: Final = 65_536
"""The maximum number of offsets in these ranges together. An answer has a header for each of
them at most: 4 MB.
"""
PARTITIONS_MAX: Final = 2000
"""The maximum number of partitions in one request."""
WHOLE_RANGE: Final = 0
"""A span: one digest for the range."""
HEADERS: Final = -1
"""A span: the headers of the batches themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeDigestsQuery:
    """A range of one partition. An empty range asks only where the log starts and ends."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(RANGE_DIGESTS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    index: i32 = field(metadata={"kafka_type": "int32"})
    """The partition index."""
    first_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    """The first offset of the range."""
    end_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    """The offset behind the range."""
    span: i32 = field(metadata={"kafka_type": "int32"}, default=i32(WHOLE_RANGE))
    """Leaves in a node, whose first one is a multiple of it; or WHOLE_RANGE, or HEADERS."""


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
    """Each range that is asked about; a partition may have several."""


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
    """The content of one log in one range."""

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
    """The start of the log."""
    high_watermark: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    """Up to where everything is replicated in the site."""
    pending_leaves: i32 = field(metadata={"kafka_type": "int32"}, default=i32(0))
    """Number of leaves that the broker has yet to read; above 0 the answer has no content, and the
    request is to be repeated.
    """
    content: bytes = field(metadata={"kafka_type": "bytes"}, default=b"")
    """The digests of the nodes, or the headers of the batches, joined."""


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
    """The answers in the order of the request."""


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
    """The answers in the order of the request."""
