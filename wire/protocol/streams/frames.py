"""Framing of Kafka requests and responses: size, header, body; for servers and for clients.

A frame here is what follows the four size bytes. Headers are handled by hand (they are read for
every request, also for those whose schema is unknown), bodies by `wire/protocol/schemas.py`.
Servers call `parse_request_header`, `check_supported`, `decode_request_body` and `encode_response`;
clients `encode_request` and `decode_response`.

Hot messages have parsers of their own (produce_codec, fetch_codec, mirror_append_codec) that take
the frame and the header's `body_position`. Source: https://kafka.apache.org/protocol, KIP-482
(tags), KIP-511 (ApiVersions).
"""

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from wire.protocol import schemas
from wire.protocol.byte_reader import Buffer, ByteReader, Malformed

SIZE_PREFIX_SIZE: Final = 4

_REQUEST_START: Final = struct.Struct(">hhi")
_SIZE_AND_CORRELATION: Final = struct.Struct(">ii")
_SIZED_REQUEST_START: Final = struct.Struct(">ihhih")


class VersionRange(NamedTuple):
    """Versions of an API that a side speaks, both ends included."""

    lowest: int
    highest: int


class RequestHeader(NamedTuple):
    """Header of a request, and where its body begins in the frame (the frame's end when that cannot
    be known).
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


class MalformedRequest(ValueError):
    """The frame is not a valid request. The connection is closed, since Kafka has no response to
    such a frame either.

    `header` is there if it was intact.
    """

    def __init__(self, reason: str, header: RequestHeader | None = None) -> None:
        name = f"{schemas.api_name(header.api_key)} v{header.api_version}: " if header else ""
        super().__init__(f"{name}{reason}")
        self.header = header


class UnsupportedVersion(ValueError):
    """A request in a version, or of an API, that this side does not speak.

    ApiVersions is answered in version 0 with UNSUPPORTED_VERSION and the list; for others the
    connection is closed.
    """

    def __init__(self, header: RequestHeader, supported: VersionRange | None) -> None:
        spoken = f"supported: {supported.lowest} to {supported.highest}" if supported else "not supported at all"
        super().__init__(f"{schemas.api_name(header.api_key)} v{header.api_version}; {spoken}")
        self.header = header
        self.supported = supported

    @property
    def is_api_versions(self) -> bool:
        """True if Kafka answers the request instead of closing the connection."""
        return self.header.api_key == schemas.API_VERSIONS_KEY


class MalformedResponse(ValueError):
    """A broker's response that contradicts its version's schema: the connection is no longer
    usable.
    """


def parse_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request frame. Raises MalformedRequest."""
    if len(frame) < _REQUEST_START.size:
        raise MalformedRequest(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame)
    reader = ByteReader(frame, _REQUEST_START.size)
    client_id = None
    try:
        # An unknown schema gets this far too: ApiVersions of a newer version must be answered,
        # others are closed.
        if len(frame) > _REQUEST_START.size:
            client_id = reader.nullable_string(flexible=False)
        has_tags = schemas.is_flexible(api_key, api_version)
        if has_tags:
            reader.skip_tags()
    except schemas.UnknownSchema:
        return RequestHeader(api_key, api_version, correlation_id, client_id, len(frame))
    except Malformed as error:
        header = RequestHeader(api_key, api_version, correlation_id, client_id, len(frame))
        raise MalformedRequest(f"header: {error}", header) from error
    # here and below, `tuple.__new__`: the constructor of a named tuple is Python, and takes longer
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, reader.position))


def check_supported(header: RequestHeader, supported: Mapping[int, VersionRange]) -> None:
    """Raises UnsupportedVersion unless `supported` (by API key) has the request's API and
    version.
    """
    spoken = supported.get(header.api_key)
    if spoken is None or not spoken.lowest <= header.api_version <= spoken.highest:
        raise UnsupportedVersion(header, spoken)


def decode_request_body(frame: Buffer, header: RequestHeader) -> Any:
    """The kio (or private) entity of the request. Raises MalformedRequest for any other bytes."""
    try:
        entity_type = schemas.request_type(header.api_key, header.api_version)
        return schemas.decode(entity_type, frame, header.body_position)
    except (Malformed, schemas.UnknownSchema) as error:
        raise MalformedRequest(str(error), header) from error


def response_prefix(api_key: int, api_version: int, correlation_id: int, *, body_size: int) -> bytes:
    """Size and header of a response whose body of `body_size` bytes follows."""
    # the tags of the header: one zero byte
    if schemas.response_header_has_tags(api_key, api_version):
        # four of the correlation id, one of the tags
        return _SIZE_AND_CORRELATION.pack(body_size + 5, correlation_id) + b"\0"
    return _SIZE_AND_CORRELATION.pack(body_size + 4, correlation_id)


def encode_response(api_key: int, api_version: int, correlation_id: int, entity: Any) -> bytes:
    """A whole response, size included. `entity` must be of the request's version."""
    body = schemas.encode(entity)
    return response_prefix(api_key, api_version, correlation_id, body_size=len(body)) + body


def request_prefix(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, *, body_size: int
) -> bytes:
    """Size and header of a request whose body of `body_size` bytes follows."""
    client_id_bytes = b"" if client_id is None else client_id.encode()
    client_id_length = -1 if client_id is None else len(client_id_bytes)
    tags = b"\0" if schemas.is_flexible(api_key, api_version) else b""
    size = 10 + len(client_id_bytes) + len(tags) + body_size
    start = _SIZED_REQUEST_START.pack(size, api_key, api_version, correlation_id, client_id_length)
    return start + client_id_bytes + tags


def encode_request(api_key: int, api_version: int, correlation_id: int, client_id: str | None, entity: Any) -> bytes:
    """A whole request, size included."""
    body = schemas.encode(entity)
    return request_prefix(api_key, api_version, correlation_id, client_id, body_size=len(body)) + body


def response_body_position(frame: Buffer, api_key: int, api_version: int) -> int:
    """Return the position of a response frame's body. Raises MalformedResponse."""
    reader = ByteReader(frame)
    try:
        reader.skip(4)
        if schemas.response_header_has_tags(api_key, api_version):
            reader.skip_tags()
    except Malformed as error:
        raise MalformedResponse(f"{schemas.api_name(api_key)} v{api_version}: header: {error}") from error
    return reader.position


def decode_response(frame: Buffer, api_key: int, api_version: int) -> Any:
    """The entity of a response frame. Raises MalformedResponse."""
    position = response_body_position(frame, api_key, api_version)
    try:
        return schemas.decode(schemas.response_type(api_key, api_version), frame, position)
    except Malformed as error:
        raise MalformedResponse(f"{schemas.api_name(api_key)} v{api_version}: {error}") from error
