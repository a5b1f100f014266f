"""One of our private messages: `AccessChanges`; `wire/protocol/messages/private.py` has the table
of all.

The mirror of an exact link waits by it for a change of the access rules of the source: ACLs, SCRAM
users, client quotas and delegation tokens. The answer has a mark of the rules that the broker has,
and comes when this mark differs from that of the request, or at the end of the wait. Marks of two
brokers differ, and those of a broker before and after a restart do. CLUSTER_AUTHORIZATION_FAILED
without ClusterAction, or for a mirror of another link.
"""

# Annotations stay real types here (no postponed evaluation): kio reads them from the dataclass
# fields.
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

ACCESS_CHANGES: Final = 20020


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChangesRequest:
    """Waits until the broker's access rules are others than those of the mark."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(ACCESS_CHANGES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    mark: str = field(metadata={"kafka_type": "string"})
    """The mark of the last answer; empty for none."""
    max_wait_ms: i32 = field(metadata={"kafka_type": "int32"})
    """The longest wait for a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChangesResponse:
    """The mark of the rules that the broker has."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(ACCESS_CHANGES)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE unless the request is refused."""
    error_message: str | None = field(metadata={"kafka_type": "string"})
    """The reason of an error."""
    mark: str = field(metadata={"kafka_type": "string"})
    """The mark; empty with an error."""
