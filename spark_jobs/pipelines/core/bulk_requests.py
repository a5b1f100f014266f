"""Requests of the bulk interface of Elasticsearch and OpenSearch (`POST /_bulk`), and what their
answers mean. Pure.

Each document is an `index` action with an id, so that a document which is sent again replaces
itself. A request has at most `bytes_max` bytes unless one document is larger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

BYTES_MAX: Final = 5_000_000
CREATED_BELOW: Final = 300
BUSY: Final = frozenset({429, 502, 503, 504})
"""HTTP statuses after which the document is sent again later."""


class Document(NamedTuple):
    """A document: its id, and its fields as JSON."""

    id: str
    source: str


class Rejected(NamedTuple):
    """A document that the engine refuses, and the reason."""

    id: str
    reason: str


class Answered(NamedTuple):
    """The outcome of one request: documents to send again, and refused ones."""

    busy: list[Document]
    rejected: list[Rejected]


def bulk_requests(documents: Iterable[Document], *, bytes_max: int = BYTES_MAX) -> Iterator[list[Document]]:
    """The documents in their order, as many to a request as its bytes allow."""
    held: list[Document] = []
    size = 0
    for document in documents:
        length = len(document.id.encode()) + len(document.source.encode())
        if held and size + length > bytes_max:
            yield held
            held, size = [], 0
        held.append(document)
        size += length
    if held:
        yield held


def body_of(index: str, documents: Iterable[Document]) -> bytes:
    """The body of a request: two lines a document."""
    lines = (
        f"{json.dumps({'index': {'_index': index, '_id': document.id}})}\n{document.source}\n" for document in documents
    )
    return "".join(lines).encode()


def answered(documents: Sequence[Document], answer: Mapping[str, Any]) -> Answered:
    """The outcome of each document of a request, from the answer. Raises ValueError when the answer
    does not fit the request.
    """
    items = answer.get("items")
    if not isinstance(items, list) or len(items) != len(documents):
        raise ValueError(f"the answer is not about the {len(documents)} documents that were sent")
    found = Answered([], [])
    for document, item in zip(documents, items, strict=True):
        outcome = item["index"]
        status = int(outcome["status"])
        if status in BUSY:
            found.busy.append(document)
        elif status >= CREATED_BELOW:
            error = outcome.get("error") or {}
            found.rejected.append(Rejected(document.id, f"{error.get('type')}: {error.get('reason')}"))
    return found
