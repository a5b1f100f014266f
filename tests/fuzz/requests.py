"""Requests of every advertised API and version, read as the broker reads them: anything else than a
refusal is a defect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from broker.handlers.registry import load_handlers
from broker.network.error_responses import error_response
from wire.client.requests.fetch_requests import parse_fetch_request
from wire.protocol.byte_reader import Malformed
from wire.protocol.messages.mirror_append_codec import parse_mirror_append
from wire.protocol.messages.mirror_append_messages import MIRROR_APPEND
from wire.protocol.messages.offset_commit_codec import parse_offset_commit_request
from wire.protocol.messages.produce_codec import parse_produce_request
from wire.protocol.streams.frames import (
    MalformedRequest,
    UnsupportedVersion,
    VersionRange,
    check_supported,
    decode_request_body,
    encode_response,
    parse_request_header,
    request_prefix,
)

FILLERS: Final = (bytes(200), bytes((1,)) * 200, bytes((2,)) * 200)

READERS: Final[Mapping[int, Callable[[bytes, int, int], Any]]] = {
    0: parse_produce_request,
    1: parse_fetch_request,
    8: parse_offset_commit_request,
    MIRROR_APPEND: lambda frame, position, _: parse_mirror_append(frame, position),
}
"""Requests that their handlers read themselves."""


@cache
def _supported() -> dict[int, VersionRange]:
    return {key: VersionRange(module.MIN_VERSION, module.MAX_VERSION) for key, module in load_handlers().items()}


def run(data: bytes) -> None:
    """A frame without its size."""
    try:
        header = parse_request_header(data)
        check_supported(header, _supported())
        reader = READERS.get(header.api_key)
        if reader is not None:
            reader(data, header.body_position, header.api_version)
        request = decode_request_body(data, header)
    except (MalformedRequest, Malformed, UnsupportedVersion):
        return
    answer = error_response(header.api_key, header.api_version, request)
    if answer is not None:
        encode_response(header.api_key, header.api_version, header.correlation_id, answer)


def seeds() -> Sequence[bytes]:
    """A request of the first and the last version of each API, with null, empty, and filled
    fields.
    """
    return [
        request_prefix(key, version, 7, "fuzz", body_size=len(filler))[4:] + filler
        for key, versions in _supported().items()
        for version in sorted(set(versions))
        for filler in FILLERS
    ]
