"""Two of our private messages about delegation tokens; `wire/protocol/messages/private.py` has the
table of all.

By `DelegationTokens` the mirror of an exact link carries tokens. A request without entries reads
all tokens of a site. One with entries writes them at the standby of the link: an entry without a
document removes the token. No HMAC and no secret crosses: both sites derive HMACs from the same
`delegation.token.secret.key`, and `secret_check` shows whether they do. Errors: SECURITY_DISABLED
where the broker has no authorizer, DELEGATION_TOKEN_AUTH_DISABLED where it has no secret key,
INVALID_REQUEST for a document that is no token, and those of `ScramUsers`.

By `ClientTokenRequest` a broker of the standby hands a client's request about tokens on to the
active site, with the client's principal: unlike other requests, those about tokens depend on it.
POLICY_VIOLATION: the request is none about tokens, or the site follows another one itself.
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

DELEGATION_TOKENS: Final = 20018
CLIENT_TOKEN_REQUEST: Final = 20019


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenToWrite:
    """One token to write or to remove."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELEGATION_TOKENS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    token_id: str = field(metadata={"kafka_type": "string"})
    """The token's id."""
    document: str | None = field(metadata={"kafka_type": "string"})
    """The token as ZooKeeper stores it; null removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokensRequest:
    """Reads all tokens, or writes some in the name of a link's mirror."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELEGATION_TOKENS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knows it."""
    tokens: tuple[DelegationTokenToWrite, ...]
    """The tokens to write; none to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenStored:
    """One token that the site has."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELEGATION_TOKENS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    token_id: str = field(metadata={"kafka_type": "string"})
    """The token's id."""
    owner: str = field(metadata={"kafka_type": "string"})
    """The principal that owns the token."""
    document: str = field(metadata={"kafka_type": "string"})
    """The token as ZooKeeper stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokensResponse:
    """All tokens, or what became of those that were written."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELEGATION_TOKENS)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when all was read or written."""
    error_message: str | None = field(metadata={"kafka_type": "string"})
    """The reason of an error."""
    secret_check: i16 = field(metadata={"kafka_type": "int16"})
    """One byte of a hash of the site's secret key; -1 with an error."""
    tokens: tuple[DelegationTokenStored, ...]
    """Answer to a reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTokenRequest:
    """A client's request about tokens, as the standby's broker received it."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(CLIENT_TOKEN_REQUEST)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    principal_type: str = field(metadata={"kafka_type": "string"})
    """The type of the client's principal."""
    principal_name: str = field(metadata={"kafka_type": "string"})
    """Its name."""
    client_address: str = field(metadata={"kafka_type": "string"})
    """Host and port of the client: ACLs may name the host."""
    request_key: i16 = field(metadata={"kafka_type": "int16"})
    """The API key of the client's request."""
    request_version: i16 = field(metadata={"kafka_type": "int16"})
    """Its version."""
    request: bytes = field(metadata={"kafka_type": "bytes"})
    """Its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTokenRequestResponse:
    """The active site's answer."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(CLIENT_TOKEN_REQUEST)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when the request was answered, also where that answer is a refusal."""
    error_message: str | None = field(metadata={"kafka_type": "string"})
    """The reason of an error."""
    response: bytes = field(metadata={"kafka_type": "bytes"})
    """The body of the answer for the client, in the version of its request."""
