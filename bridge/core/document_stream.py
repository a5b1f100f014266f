"""Splits a stream of bytes into JSON documents that follow one another, with or without line breaks
between them.

Only brackets and strings are parsed here: whether a document is valid JSON is checked when it is
read. Bytes wait until their document is complete, bounded by `document_bytes_max`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.core.refusals import malformed, too_large

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]"]', re.DOTALL)
_SOLID = re.compile(rb"[^ \t\r\n]")
_BLANK = b" \t\r\n"


class DocumentStream:
    """Takes pieces of bytes, returns complete documents."""

    __slots__ = ("_buffer", "_depth", "_looked_at", "document_bytes_max")

    def __init__(self, document_bytes_max: int) -> None:
        self.document_bytes_max = document_bytes_max
        self._buffer = bytearray()
        self._looked_at = 0
        self._depth = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of an incomplete document."""
        return len(self._buffer)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The documents that the piece completes. Raises Refused if something other than an object
        begins, or if a document is too large.
        """
        self._buffer += piece
        while (end := self._end_of_document()) is not None:
            document = bytes(self._buffer[:end]).strip(_BLANK)
            del self._buffer[:end]
            self._looked_at = 0
            if len(document) > self.document_bytes_max:
                raise too_large(self.document_bytes_max)
            yield document
        if len(self._buffer) > self.document_bytes_max:
            raise too_large(self.document_bytes_max)

    def finish(self) -> None:
        """The stream has ended. Raises Refused if a document is incomplete."""
        if self._buffer.strip(_BLANK):
            raise malformed("the last document is incomplete")

    def _end_of_document(self) -> int | None:
        """The end of the first document; None while it is incomplete."""
        if self._depth == 0:
            first = _SOLID.search(self._buffer)
            if first is not None and first[0] != b"{":
                raise malformed("a record is a JSON object")
        for token in _TOKEN.finditer(self._buffer, self._looked_at):
            match token[0]:
                case b"{" | b"[":
                    self._depth += 1
                case b"}" | b"]":
                    self._depth -= 1
                    if self._depth == 0:
                        return token.end()
                case b'"':  # the end of the string has not arrived yet
                    self._looked_at = token.start()
                    return None
            self._looked_at = token.end()
        return None
