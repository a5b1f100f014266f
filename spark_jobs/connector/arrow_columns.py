"""Arrow columns from buffers. `pyarrow.array` and `pyarrow.scalar` import pandas at their first
use, which takes a fresh worker longer than a small read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_TYPES = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64()}


def number_column(values: np.ndarray, kind: type[np.int32 | np.int64]) -> pa.Array:
    """Numbers of any integer type and byte order, as numbers of this type."""
    data = pa.py_buffer(values.astype(kind).tobytes())
    return pa.Array.from_buffers(_TYPES[np.dtype(kind)], len(values), [None, data])


def repeated_number(value: int, count: int) -> pa.Array:
    """The same 32-bit number in each row."""
    return number_column(np.full(count, value), np.int32)


def repeated_text(value: str, count: int) -> pa.Array:
    """The same text in each row."""
    content = value.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(content))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(content * count)]
    )
