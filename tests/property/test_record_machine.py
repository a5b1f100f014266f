"""The walk over records, compiled and interpreted: both agree on every body, sound or damaged, and
with the reader that makes records.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wire.batches.record_walks
from runtime import compiled
from tests.support.disks.mutated_batches import CASES, record
from wire.batches.record_batch import HEADER_SIZE, BatchHeader, InvalidBatch, read_header
from wire.batches.record_walks import RecordSummary, read_keys, record_spans, summarize_records
from wire.batches.records import decode_body


def _interpreted() -> ModuleType:
    """`wire/batches/record_walks.py` as Python runs it without its compiled file, beside the module
    that the process uses.
    """
    spec = importlib.util.spec_from_file_location(
        "interpreted_record_walks", compiled.source("wire.batches.record_walks")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


INTERPRETED = _interpreted()
BODIES = st.lists(
    st.builds(
        record,
        st.integers(-3, 5),
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=200),
        timestamp_delta=st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 20_000),
        attributes=st.integers(0, 255),
        header_count=st.none() | st.integers(-2, 3),
        headers=st.sampled_from([b"", b"\x02h\x02v", b"\x02h\x01", b"\x01\x02v"]),
        length=st.none() | st.integers(-2, 40),
    ),
    max_size=5,
).map(b"".join)
CASE_BODIES = [case.records[HEADER_SIZE:] for case in CASES.values() if len(case.records) < 1000]


def _outcome(module: Any, name: str, *arguments: Any) -> Any:
    try:
        return getattr(module, name)(*arguments)
    except ValueError as error:
        return f"refused: {error}"


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """A body with bytes that were replaced, left out or added."""
    body = bytearray(draw(BODIES | st.sampled_from(CASE_BODIES)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(body)


@settings(max_examples=400, deadline=None)
@given(body=_damaged(), count=st.integers(-1, 6))
@example(body=b"", count=0)
def test_compiled_and_interpreted_code_agree(body: bytes, count: int) -> None:
    for name in ("summarize_records", "record_spans"):
        assert _outcome(wire.batches.record_walks, name, body, count) == _outcome(INTERPRETED, name, body, count)
    ours: dict[bytes | None, int] = {}
    theirs: dict[bytes | None, int] = {}
    assert _outcome(wire.batches.record_walks, "read_keys", body, 0, len(body), count, 7, ours) == _outcome(
        INTERPRETED, "read_keys", body, 0, len(body), count, 7, theirs
    )
    assert ours == theirs


@settings(max_examples=400, deadline=None)
@given(body=_damaged(), count=st.integers(1, 6))
def test_every_reader_can_read_a_body_that_the_walk_accepts(body: bytes, count: int) -> None:
    header = _header(count)
    try:
        summary = summarize_records(body, count)
    except InvalidBatch:
        return
    records = list(decode_body(body, header))
    assert summary == RecordSummary(
        min(one.timestamp_ms for one in records),
        max(one.timestamp_ms for one in records),
        sum(one.key is None for one in records),
        next((index for index, one in enumerate(records) if one.offset != index), -1),
    )
    keys: dict[bytes | None, int] = {}
    assert read_keys(body, 0, len(body), count, 0, keys) == sum(one.value is None for one in records)
    assert set(keys) == {one.key for one in records}
    assert [span.offset_delta for span in record_spans(body, count)] == [one.offset for one in records]


def _header(count: int) -> BatchHeader:
    return read_header(CASES["as-claimed"].records)._replace(base_offset=0, base_timestamp=0, record_count=count)


IS_INTERPRETED = os.environ.get(compiled.INTERPRETED_VARIABLE) == "1"


@pytest.mark.skipif(
    not IS_INTERPRETED and not compiled.compiled_files(compiled.directory()), reason="no C compiler on this machine"
)
def test_modules_run_as_this_run_of_the_tests_is_meant_to() -> None:
    for name in compiled.MODULES:
        importlib.import_module(name)
        assert compiled.is_compiled(name) is not IS_INTERPRETED, name
    assert INTERPRETED.__file__ == str(compiled.source("wire.batches.record_walks"))
