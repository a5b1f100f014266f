"""Random but valid messages of any API, built from kio's own field descriptions: material for round
trips and fuzzing.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_TEXT = st.text(max_size=12)


def messages(entity_type: type[Any]) -> st.SearchStrategy[Any]:
    """Instances of an entity whose encoding is valid."""
    return st.builds(entity_type, **{field.name: _field(field) for field in fields(entity_type)})


def _field(field: Any) -> st.SearchStrategy[Any]:
    kind, is_nullable = field.type, False
    if get_origin(kind) is UnionType:
        kind = next(part for part in get_args(kind) if part is not NoneType)
        is_nullable = True
    is_tagged = "tag" in field.metadata
    is_array = get_origin(kind) is tuple
    strategy = _value(get_args(kind)[0] if is_array else kind, field)
    if is_array:
        strategy = st.lists(strategy, max_size=3).map(tuple)
    # Null in a tagged field means that the field is absent; only its default may represent that.
    if is_nullable and not (is_tagged and field.default is not None):
        strategy = st.none() | strategy
    return strategy


def _value(kind: Any, field: Any) -> st.SearchStrategy[Any]:
    if is_dataclass(kind):
        return messages(kind)  # type: ignore[arg-type]
    return _primitive(field.metadata["kafka_type"])


def _primitive(name: str) -> st.SearchStrategy[Any]:
    if name in _INTEGER_BITS:
        half = 2 ** (_INTEGER_BITS[name] - 1)
        return st.integers(-half, half - 1)
    if name in _UNSIGNED_BITS:
        return st.integers(0, 2 ** _UNSIGNED_BITS[name] - 1)
    return {
        "string": _TEXT,
        "bytes": st.binary(max_size=40),
        "records": st.binary(max_size=40),
        "bool": st.booleans(),
        "uuid": st.none() | st.uuids(),
        "float64": st.floats(allow_nan=False, allow_infinity=False),
        "error_code": st.sampled_from(ErrorCode),
        "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(_milliseconds),
        "timedelta_i64": st.integers(-(2**40), 2**40).map(_milliseconds),
        "datetime_i64": st.integers(0, 2**41).map(_moment),
    }[name]


def _milliseconds(value: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=value)


def _moment(value: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(value // 1000, dt.UTC)
