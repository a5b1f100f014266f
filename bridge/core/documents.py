"""JSON documents read and written without touching what users put into them.

A JSON key or value is taken as its bytes in the request (`msgspec.Raw`) and written into the answer
as its bytes in the log: numbers keep every digit, objects the order of their names. Null and a
missing member are no key or a tombstone.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Raw

from bridge.core.refusals import malformed, unprocessable

DocumentT = TypeVar("DocumentT")

NULL = b"null"
RAW_NULL = Raw(NULL)


class UnusableDocument(ValueError):
    """Bytes that should be JSON and are none."""


def read(body: bytes | bytearray, document: type[DocumentT]) -> DocumentT:
    """The document in `body`. Refused: 400 when it is no JSON, 422 when it has another shape."""
    try:
        str(body, "utf-8")
        return msgspec.json.decode(body, type=document)
    except msgspec.ValidationError as error:
        raise unprocessable(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(str(error)) from error
    except RecursionError as error:
        raise malformed("nested too deeply") from error


def write(document: object) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document)


def stored_bytes(raw: Raw) -> bytes | None:
    """The bytes for the log of a JSON key or value."""
    data = bytes(raw)
    return None if data == NULL else data


def embedded_json(data: bytes | None) -> Raw:
    """Bytes of the log as part of a document. UnusableDocument when they are no JSON."""
    if data is None:
        return RAW_NULL
    try:
        str(data, "utf-8")
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableDocument(str(error)) from error
    return Raw(data)
