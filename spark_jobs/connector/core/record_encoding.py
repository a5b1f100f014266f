"""Encodes columns of keys and values as records of batches (KIP-98's format 2), and finds the
partitions of keys as Java's clients do: column by column, without a Python object for a row. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clients.core.partitioners import murmur2
from wire.protocol.byte_writer import uvarint_bytes

_SEED: Final = 0x9747B28C
_FACTOR: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)
_LONG_KEY_BYTES: Final = 256
"""Keys beyond are rare, and hashed one at a time: a round over all keys for each of their words
would cost more.
"""
RECORD_OVERHEAD_BYTES: Final = 21
"""Lengths, deltas and attributes of a record, at most (as in Java's clients)."""
HEADER_OVERHEAD_BYTES: Final = 10
"""The two lengths of a header, at most."""
_WORD: Final = 4
_BITS: Final = 7
_NO_ATTRIBUTES_AND_TIME_DELTA: Final = pa.scalar(b"\0\0", pa.binary())
_NO_HEADERS: Final = pa.scalar(b"\0", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())

Numbers = np.ndarray[Any, np.dtype[Any]]


def partitions_of(keys: pa.BinaryArray, partition_count: int) -> Numbers:
    """The partition of each key, int64; that of a null has no meaning."""
    return (murmur2_hashes(keys) & _POSITIVE).astype(np.int64) % partition_count


def murmur2_hashes(keys: pa.BinaryArray) -> Numbers:
    """Java's `Utils.murmur2` of each key, uint32."""
    ends, content = _parts(keys)
    starts, lengths = ends[:-1], np.diff(ends)
    found = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    short = lengths <= _LONG_KEY_BYTES
    words = np.where(short, lengths // _WORD, 0)
    with np.errstate(over="ignore"):
        for number in range(int(words.max(initial=0))):
            rows = np.flatnonzero(words > number)
            word = _little_endian(content, starts[rows] + number * _WORD, _WORD) * _FACTOR
            found[rows] = found[rows] * _FACTOR ^ (word ^ word >> np.uint32(24)) * _FACTOR
        for left in range(1, _WORD):
            rows = np.flatnonzero(short & (lengths % _WORD == left))
            found[rows] = (found[rows] ^ _little_endian(content, ends[1:][rows] - left, left)) * _FACTOR
        found = (found ^ found >> np.uint32(13)) * _FACTOR
    found ^= found >> np.uint32(15)
    for row in np.flatnonzero(~short):
        found[row] = murmur2(content[starts[row] : ends[row + 1]].tobytes())
    return found


def encoded_records(keys: pa.BinaryArray, values: pa.BinaryArray, headers: pa.BinaryArray | None) -> bytes:
    """The records of one batch, all of its base timestamp. `headers` are encoded already, with
    their count (`encoded_headers`); None where no record has any.
    """
    sizes = [varints(np.arange(len(values), dtype=np.int64))]
    columns = []
    for column in (keys, values):
        sizes.append(varints(_or(pc.binary_length(column), -1)))
        columns.append(pc.fill_null(column, _NOTHING))
    (deltas, key_sizes, value_sizes), (some_keys, some_values) = sizes, columns
    parts = [deltas, key_sizes, some_keys, value_sizes, some_values]
    tail = _NO_HEADERS if headers is None else headers
    lengths = sum((_or(pc.binary_length(part), 0) for part in parts), np.zeros(len(values), np.int64))
    lengths += 2 + (1 if headers is None else _or(pc.binary_length(headers), 0))
    joined = pc.binary_join_element_wise(varints(lengths), _NO_ATTRIBUTES_AND_TIME_DELTA, *parts, tail, _NOTHING)
    ends, content = _parts(joined)
    return content[ends[0] : ends[-1]].tobytes()


def encoded_headers(headers: pa.Array) -> pa.BinaryArray:
    """Lists of structs of key and value as a record holds them, each with the count in front."""
    return pa.array(map(_headers, headers.to_pylist()), pa.binary())


def varints(numbers: Numbers) -> pa.BinaryArray:
    """Zigzag varints of int64 numbers that fit into 32 bits."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    sizes = np.ones(len(numbers), np.int32)
    for size in range(1, 5):
        sizes += zigzag >= np.uint64(1 << size * _BITS)
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)])
    content = np.empty(int(ends[-1]), np.uint8)
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        more = np.where(sizes[rows] > place + 1, np.uint8(0x80), np.uint8(0))
        bits = (zigzag[rows] >> np.uint64(place * _BITS)) & np.uint64(0x7F)
        content[ends[:-1][rows] + place] = bits.astype(np.uint8) | more
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(content)])


def sizes_of(keys: pa.BinaryArray, values: pa.BinaryArray, headers: pa.Array | None) -> Numbers:
    """Bytes that each row takes at most as a record, int64."""
    found = _or(pc.binary_length(keys), 0) + _or(pc.binary_length(values), 0) + RECORD_OVERHEAD_BYTES
    if headers is not None:
        flat = headers.flatten()
        lengths = (_or(pc.binary_length(flat.field(number)), 0) for number in range(flat.type.num_fields))
        parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
        found += np.bincount(parents, sum(lengths) + HEADER_OVERHEAD_BYTES, len(keys)).astype(np.int64)
    return found


def _headers(headers: list[dict[str, Any]] | None) -> bytes:
    parts = [_varint(len(headers or ()))]
    for header in headers or ():
        name = header["key"].encode()
        parts += [_varint(len(name)), name]
        value = header["value"]
        parts += [_varint(-1)] if value is None else [_varint(len(value)), value]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    return uvarint_bytes((number << 1) ^ (number >> 31))


def _or(numbers: pa.Array, instead_of_null: int) -> Numbers:
    found: Numbers = pc.fill_null(numbers, instead_of_null).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _parts(column: pa.BinaryArray) -> tuple[Numbers, Numbers]:
    """The n + 1 offsets of a binary column, and the bytes that they point into."""
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1] if offsets else None
    if ends is None or not len(ends):
        ends = np.zeros(1, np.int32)
    return ends.astype(np.int64), np.frombuffer(content or b"", np.uint8)


def _little_endian(content: Numbers, starts: Numbers, size: int) -> Numbers:
    found = np.zeros(len(starts), np.uint32)
    for place in range(size):
        found |= content[starts + place].astype(np.uint32) << np.uint32(8 * place)
    return found
