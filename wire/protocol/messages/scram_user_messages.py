"""One of our private messages: `ScramUsers`, by which the mirror of an exact link carries SCRAM
users; `wire/protocol/messages/private.py` has the table of all.

Kafka's own requests never show what is stored of a password, and take a salted password only; this
one reads and writes the stored form (salt, keys and iterations, never the password). A request
without entries reads all users. One with entries writes them at the standby of the link: an entry
without a credential removes the user's credential of that mechanism. Errors: SECURITY_DISABLED
where the broker has no authorizer, POLICY_VIOLATION where the site is not the link's standby at the
link's epoch, NOT_CONTROLLER while no controller answers, INVALID_REQUEST for a write that names no
link.
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

SCRAM_USERS: Final = 20012


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUserToWrite:
    """One credential to write or to remove."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(SCRAM_USERS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: str = field(metadata={"kafka_type": "string"})
    """The user."""
    mechanism: str = field(metadata={"kafka_type": "string"})
    """SCRAM-SHA-256 or SCRAM-SHA-512."""
    credential: str | None = field(metadata={"kafka_type": "string"})
    """The credential as ZooKeeper stores it; null removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUsersRequest:
    """Reads all users, or writes some in the name of a link's mirror."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(SCRAM_USERS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    users: tuple[ScramUserToWrite, ...]
    """The credentials to write; none to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUserStored:
    """One credential that the site has."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(SCRAM_USERS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: str = field(metadata={"kafka_type": "string"})
    """The user."""
    mechanism: str = field(metadata={"kafka_type": "string"})
    """SCRAM-SHA-256 or SCRAM-SHA-512."""
    credential: str = field(metadata={"kafka_type": "string"})
    """The credential as ZooKeeper stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUsersResponse:
    """All credentials, or what became of those that were written."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(SCRAM_USERS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when all was read or written."""
    error_message: str | None = field(metadata={"kafka_type": "string"})
    """The reason of an error."""
    users: tuple[ScramUserStored, ...]
    """Answer to a reading."""
