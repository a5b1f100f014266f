"""Content negotiation of API v2: the embedded format of a body, and the media type of a response.

`application/vnd.kafka.<embedded>.v2+json` defines the encoding of keys and values;
`application/vnd.kafka.v2+json` is for documents without records. API v3 has `application/json`
alone.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from bridge.core.refusals import FORMAT_MISMATCH, Refused

JSON = "application/json"
V2 = "application/vnd.kafka.v2+json"
_FAMILY = "application/vnd.kafka."
GENERAL = (V2, JSON, "application/vnd.kafka+json")
"""The media types of a document without records, the preferred one first."""


class EmbeddedFormat(enum.StrEnum):
    """The encoding of keys and values in a v2 document."""

    BINARY = "binary"
    JSON = "json"

    @property
    def media_type(self) -> str:
        """The name of documents with records of this format."""
        return f"{_FAMILY}{self.value}.v2+json"


def _bare(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def embedded_format_of(content_type: str | None) -> EmbeddedFormat:
    """The format of records that are sent. Raises Refused (415) for every other type."""
    for embedded in EmbeddedFormat:
        if content_type is not None and _bare(content_type) == embedded.media_type:
            return embedded
    accepted = ", ".join(embedded.media_type for embedded in EmbeddedFormat)
    raise Refused(415, 415, f"HTTP 415 Unsupported Media Type: {content_type or '(none)'}; accepted: {accepted}")


def check_v2_content(content_type: str | None) -> None:
    """Check that a body without records has one of the accepted media types."""
    known = (*GENERAL, *(embedded.media_type for embedded in EmbeddedFormat))
    if content_type is not None and _bare(content_type) not in known:
        raise Refused(415, 415, f"HTTP 415 Unsupported Media Type: {content_type}; accepted: {V2}")


def check_v3_content(content_type: str | None) -> None:
    """Raises Refused (415) if a v3 document is sent with a content type other than JSON."""
    if content_type is None or _bare(content_type) != JSON:
        raise Refused(415, 415, f"HTTP 415 Unsupported Media Type: {content_type or '(none)'}; accepted: {JSON}")


def _wanted(accept: str) -> list[str]:
    """The types of an Accept header, the most preferred first; those with q=0 are left out."""
    weighted = []
    for position, item in enumerate(accept.split(",")):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if name and quality > 0:
            weighted.append((-quality, position, name))
    return [name for _, _, name in sorted(weighted)]


def negotiate(accept: str | None, offered: Sequence[str]) -> str:
    """The media type of the response: the offered one that the client prefers most. Raises Refused
    (406) if no type is acceptable.
    """
    if accept is None or not accept.strip():
        return offered[0]
    for name in _wanted(accept):
        if name in ("*/*", "application/*"):
            return offered[0]
        if name in offered:
            return name
    raise Refused(406, 406, f"HTTP 406 Not Acceptable: {accept}; on offer: {', '.join(offered)}")


def negotiate_records(accept: str | None, embedded: EmbeddedFormat) -> str:
    """Negotiate the type of an instance's records; an embedded format other than the instance's has
    an error number of its own.
    """
    offered = (embedded.media_type, *GENERAL)
    try:
        return negotiate(accept, offered)
    except Refused as refused:
        others = {other.media_type for other in EmbeddedFormat if other is not embedded}
        if accept is not None and others & set(_wanted(accept)):
            message = "The requested embedded data format does not match the deserializer for this consumer instance"
            raise Refused(406, FORMAT_MISMATCH, message) from refused
        raise
