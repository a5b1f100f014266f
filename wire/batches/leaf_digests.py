"""Digests of fixed ranges of offsets, by which two sites compare a log without sending it. Pure.

A leaf is the range of `LEAF_OFFSETS` offsets that begins at a multiple of it: both sites have the
same leaves although their segments differ. A batch belongs to the leaf of its base offset, also if
it extends past the leaf's end. A leaf's digest is BLAKE2b over the headers of its batches in log
order, so over offsets, leader epochs, sizes, times and checksums; a leaf without a batch has the
digest of an empty input. A node of the tree spans neighbouring leaves: its digest is computed from
their digests.

Callers: broker/log/range_digests.py, broker/log/digesting.py, spark_jobs/archiving/verification.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from wire.batches.record_batch import BatchHeader

LEAF_OFFSETS: Final = 4096  # both sites must agree: a change would invalidate every stored digest
DIGEST_BYTES: Final = 16

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")  # a batch header as it lies in the log


def sealed_leaf(offset: int) -> int:
    """The number of leaves that lie completely below `offset`."""
    return offset // LEAF_OFFSETS


def first_whole_leaf(log_start_offset: int) -> int:
    """The first leaf that a log with this start holds completely."""
    return -(-log_start_offset // LEAF_OFFSETS)


_NOTHING: Final = blake2b(digest_size=DIGEST_BYTES).digest()
"""The digest of a leaf without batches."""


class LeafRun:
    """Digests leaves one after another, from the leaf `index` on. `sealed` has the joined digests
    of complete leaves; `next_offset` follows the last batch.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.next_offset = index * LEAF_OFFSETS
        self.sealed = bytearray()
        # None until the leaf has a batch: most of ten thousand logs have none, and each hash takes
        # half a kilobyte
        self._hash: blake2b | None = None

    def resumed(self) -> LeafRun:
        """A run that continues in the open leaf; this one stays unchanged."""
        run = LeafRun(self.index)
        run.next_offset = self.next_offset
        run._hash = None if self._hash is None else self._hash.copy()
        return run

    def take(self, header: BatchHeader) -> None:
        """Add the next batch of the log."""
        self.seal_to(header.base_offset // LEAF_OFFSETS)
        # the header has the records' checksum, so bodies need not be read
        if self._hash is None:
            self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._hash.update(_HEADER.pack(*header))
        self.reach(header.next_offset)

    def reach(self, offset: int) -> None:
        """Record that no batch to come begins below `offset`."""
        self.next_offset = max(self.next_offset, offset)

    def seal_to(self, index: int) -> None:
        """Complete the leaves below `index`: all their headers were added."""
        while self.index < index:
            self.sealed += _NOTHING if self._hash is None else self._hash.digest()
            self._hash = None
            self.index += 1
        self.reach(self.index * LEAF_OFFSETS)


def joined_headers(headers: Iterable[BatchHeader], first_offset: int, end_offset: int) -> bytes:
    """The headers of the batches that begin in the range, in their stored form."""
    return b"".join([_HEADER.pack(*one) for one in headers if first_offset <= one.base_offset < end_offset])


def part_digest(headers: bytes) -> bytes:
    """The digest of a part of a leaf: that of a leaf with no other batches than these."""
    return blake2b(headers, digest_size=DIGEST_BYTES).digest()


class PartRun:
    """The digest of the first part of a leaf, from the headers of its batches in log order.
    `end_offset` is the offset below which they are added.
    """

    def __init__(self, leaf: int) -> None:
        self.leaf = leaf
        self.end_offset = leaf * LEAF_OFFSETS
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    def resumed(self) -> PartRun:
        """A run that continues here; this one stays unchanged."""
        run = PartRun(self.leaf)
        run.end_offset = self.end_offset
        run._hash = self._hash.copy()
        return run

    def add(self, headers: bytes, end_offset: int) -> None:
        """Add the headers, joined, of the batches that begin from `end_offset` up to here."""
        self._hash.update(headers)
        self.end_offset = end_offset

    def digest(self) -> bytes:
        """The same as `part_digest` of all headers."""
        return self._hash.digest()


class RangeRun:
    """The digest of a range of offsets, from the headers of its batches in log order: the same as a
    broker's for the whole range.
    """

    def __init__(self, first_offset: int) -> None:
        self._first_leaf = first_offset // LEAF_OFFSETS
        self._leaves = LeafRun(self._first_leaf)

    def take(self, header: BatchHeader) -> None:
        """Add the next batch of the range."""
        self._leaves.take(header)

    def digest(self, end_offset: int) -> bytes:
        """The digest of the range up to `end_offset`, which ends the run."""
        self._leaves.seal_to(-(-end_offset // LEAF_OFFSETS))
        return node_digests(bytes(self._leaves.sealed), self._first_leaf, span=0)


class LeafRange(NamedTuple):
    """The leaves that a range of offsets falls into: `first` to `end` (not included), of which
    `whole_first` to `whole_end` are completely inside it; those at the ends may be partly inside.
    """

    first: int
    end: int
    whole_first: int
    whole_end: int

    @property
    def has_part_first(self) -> bool:
        """True if the range begins or lies inside a leaf."""
        return self.first < self.whole_first

    @property
    def has_part_last(self) -> bool:
        """True if the range ends inside a leaf other than the first one."""
        return self.whole_end < self.end and self.whole_first <= self.whole_end


def leaf_range(first_offset: int, end_offset: int) -> LeafRange:
    """The leaves of a range that is not empty."""
    first, end = first_offset // LEAF_OFFSETS, -(-end_offset // LEAF_OFFSETS)
    return LeafRange(first, end, -(-first_offset // LEAF_OFFSETS), end_offset // LEAF_OFFSETS)


def node_digests(leaves: bytes, first_leaf: int, *, span: int) -> bytes:
    """The joined digests of the nodes, of `span` leaves each, that these leaves belong to; `leaves`
    are digests from `first_leaf` on. A node of one leaf is the leaf itself; with `span` 0 there is
    one node for all.
    """
    digests = bytearray()
    left, end_leaf = first_leaf, first_leaf + len(leaves) // DIGEST_BYTES
    while left < end_leaf:
        right = end_leaf if span == 0 else min((left // span + 1) * span, end_leaf)
        inside = leaves[(left - first_leaf) * DIGEST_BYTES : (right - first_leaf) * DIGEST_BYTES]
        digests += inside if span == 1 else blake2b(inside, digest_size=DIGEST_BYTES).digest()
        left = right
    return bytes(digests)


def node_count(first_offset: int, end_offset: int, *, span: int) -> int:
    """The number of digests that `node_digests` gives for a range of offsets."""
    if end_offset <= first_offset:
        return 0
    leaves = leaf_range(first_offset, end_offset)
    return 1 if span == 0 else (leaves.end - 1) // span - leaves.first // span + 1
