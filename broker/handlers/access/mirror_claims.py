"""The link in whose name a mirror's private request acts."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.authorization.core.mirror_scope import CLAIMING_APIS
from broker.network.connection_owner import Frame
from wire.protocol.byte_reader import ByteReader
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND
from wire.protocol.messages.private import MIRROR_OFFSET_COMMIT, parse_link_claim
from wire.protocol.streams.frames import RequestHeader, decode_request_body


def claimed_link(frame: Frame, header: RequestHeader) -> str | None:
    """The link; None if the request names no link. Raises Malformed and MalformedRequest."""
    if header.api_key not in CLAIMING_APIS:
        return None
    if header.api_key == MIRROR_APPEND:
        # only the first field is read: the request may have megabytes of records, which are decoded
        # only once
        return ByteReader(frame, header.body_position).string(flexible=True)
    request = decode_request_body(frame, header)
    if header.api_key == MIRROR_OFFSET_COMMIT:
        try:
            return parse_link_claim(request.group_instance_id)[0]
        except ValueError:
            return ""
    return str(request.link)


def unnamed_link_refusal(request: Any) -> tuple[ErrorCode, str] | None:
    """The refusal of a mirror's write that names no link: the controller would take it for the
    request of a client of this site, which it does not check against any link.
    """
    if request.link:
        return None
    return ErrorCode.invalid_request, "the request names no link; a mirror writes access rules in the name of its link"
