"""Reads and writes JSON documents without changing the values of users.

The bytes of a JSON key or value are copied unchanged from the request (`msgspec.Raw`) to the log
and from the log to the response: numbers keep every digit, objects the order of their names. Null
and a missing member mean no key, or a tombstone.
"""

from __future__ import annotations

import json
import re
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from bridge.core.refusals import malformed, unprocessable

DocumentT = TypeVar("DocumentT")

NULL = b"null"
RAW_NULL = Raw(NULL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF_A_PAIR: Final = r"a string has half of a surrogate pair (\uD800 to \uDFFF), which UTF-8 cannot encode; accepted: both halves together"


class UnusableDocument(ValueError):
    """Bytes that should be JSON and are not."""


def read(body: bytes | bytearray, document: type[DocumentT]) -> DocumentT:
    """The document in `body`. Raises Refused: 400 if the body is not JSON, 422 if it has another
    structure.
    """
    try:
        str(body, "utf-8")
        return msgspec.json.decode(body, type=document)
    except msgspec.ValidationError as error:
        raise unprocessable(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(_HALF_A_PAIR if _has_half_a_pair(body) else str(error)) from error
    except RecursionError as error:
        raise malformed("nested too deeply") from error


def _has_half_a_pair(body: bytes | bytearray) -> bool:
    """True if only half of a surrogate pair makes the body unusable; msgspec would name a truncated
    body.
    """
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return _SURROGATE.search(body) is not None


def read_texts(body: bytes | bytearray, document: type[DocumentT]) -> DocumentT:
    """As `read`, for a document whose texts go to librdkafka: 422 if one contains U+0000."""
    found = read(body, document)
    # librdkafka would take the text to end there, and act on another topic or value
    if _has_nul(msgspec.to_builtins(found)):
        raise unprocessable("a text contains the character U+0000, which no name or config in Kafka has")
    return found


def _has_nul(value: object) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(_has_nul(member) for member in value.values())
        case list():
            return any(_has_nul(item) for item in value)
        case _:
            return False


def write(document: object) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document)


def stored_bytes(raw: Raw) -> bytes | None:
    """The bytes for the log of a JSON key or value."""
    data = bytes(raw)
    return None if data == NULL else data


def embedded_json(data: bytes | None) -> Raw:
    """Bytes of the log as a part of a document. Raises UnusableDocument if they are not JSON."""
    if data is None:
        return RAW_NULL
    try:
        str(data, "utf-8")
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableDocument(str(error)) from error
    return Raw(data)
