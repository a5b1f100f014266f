"""The bridge divides a stream into its documents, for any division of the stream's bytes into
pieces.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.core.document_stream import DocumentStream
from bridge.core.refusals import Refused

DOCUMENTS = st.lists(
    st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text()), max_size=3), max_size=6
)


def cut(pieces: list[bytes], *, most: int = 10_000) -> list[bytes]:
    stream = DocumentStream(most)
    found = [document for piece in pieces for document in stream.feed(piece)]
    stream.finish()
    return found


@given(DOCUMENTS, st.sampled_from(["", "\n", " \r\n\t"]), st.integers(1, 9), st.booleans())
def test_documents_come_out_whole_whatever_the_pieces(
    documents: list[dict[str, Any]], between: str, piece_bytes: int, is_ascii: bool
) -> None:
    texts = [json.dumps(document, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass") for document in documents]
    body = between.encode().join(texts) + between.encode()
    pieces = [body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes)]
    assert cut(pieces) == texts


@pytest.mark.parametrize("body", [b"1", b"[]", b"null", b"{} x", b'{}"{}"', b"}{"])
def test_a_body_that_is_not_a_stream_of_objects_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        cut([body])
    assert refused.value.status == 400


@pytest.mark.parametrize("body", [b"{", b'{"a":"', b'{"a":"\\', b"{[}"])
def test_a_document_that_is_broken_off_is_refused_at_the_end(body: bytes) -> None:
    with pytest.raises(Refused, match="incomplete"):
        cut([body])


@pytest.mark.parametrize("body", [b'{"a":"' + b"x" * 200, b'{"a":"' + b"x" * 100 + b'"}', b"{" * 200])
def test_a_document_that_is_too_large_is_refused_whether_it_ends_or_not(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        cut([body[at : at + 10] for at in range(0, len(body), 10)], most=100)
    assert refused.value.status == 413


def test_documents_before_a_broken_one_are_given_out() -> None:
    stream = DocumentStream(100)
    found = stream.feed(b'{"a":1}{"b":2} oops')
    assert (next(found), next(found)) == (b'{"a":1}', b'{"b":2}')
    with pytest.raises(Refused):
        next(found)
