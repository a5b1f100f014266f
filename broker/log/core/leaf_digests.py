"""Digests of fixed ranges of offsets, by which two sites compare a log without sending it. Pure.

A leaf is the range of `LEAF_OFFSETS` offsets that begins at a multiple of it: both sites have the
same leaves although their segments differ. A batch belongs to the leaf of its base offset, also
when it reaches over the leaf's end. A leaf's digest is BLAKE2b over the headers of its batches in
log order, so over offsets, leader epochs, sizes, times and checksums; a leaf without a batch has
the digest of nothing. A node of the tree spans neighbouring leaves: its digest is that of their
digests.

Callers: broker/log/range_digests.py, broker/log/digesting.py.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

from wire.batches.record_batch import BatchHeader

LEAF_OFFSETS: Final = 4096
DIGEST_BYTES: Final = 16

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


def sealed_leaf(offset: int) -> int:
    """How many leaves lie wholly below `offset`."""
    return offset // LEAF_OFFSETS


def first_whole_leaf(log_start_offset: int) -> int:
    """The first leaf of which a log that starts there holds everything."""
    return -(-log_start_offset // LEAF_OFFSETS)


class LeafRun:
    """Digests leaves one after another, from the leaf `index` on. `sealed` has the digests of those
    that ended, joined; `next_offset` follows the last batch.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.next_offset = index * LEAF_OFFSETS
        self.sealed = bytearray()
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    def resumed(self) -> LeafRun:
        """A run that goes on in the open leaf; this one stays as it is."""
        run = LeafRun(self.index)
        run.next_offset = self.next_offset
        run._hash = self._hash.copy()
        return run

    def take(self, header: BatchHeader) -> None:
        """The next batch of the log."""
        self.seal_to(header.base_offset // LEAF_OFFSETS)
        self._hash.update(_HEADER.pack(*header))
        self.reach(header.next_offset)

    def reach(self, offset: int) -> None:
        """No batch that is still to be taken begins below `offset`."""
        self.next_offset = max(self.next_offset, offset)

    def seal_to(self, index: int) -> None:
        """Everything of the leaves below `index` was taken."""
        while self.index < index:
            self.sealed += self._hash.digest()
            self._hash = blake2b(digest_size=DIGEST_BYTES)
            self.index += 1
        self.reach(self.index * LEAF_OFFSETS)


def node_digests(leaves: bytes, first_leaf: int, *, begin: int, end: int, span: int) -> bytes:
    """Digests of the nodes of `span` leaves each, joined, that the leaves from `begin` to `end` (not
    included) fall into. `leaves` are digests of leaves from `first_leaf` on.

    A node at either end counts only the leaves between `begin` and `end`. A node of one leaf is the
    leaf itself; with `span` 0 there is one node for all.
    """
    digests = bytearray()
    left = begin
    while left < end:
        right = end if span == 0 else min((left // span + 1) * span, end)
        inside = leaves[(left - first_leaf) * DIGEST_BYTES : (right - first_leaf) * DIGEST_BYTES]
        digests += inside if span == 1 else blake2b(inside, digest_size=DIGEST_BYTES).digest()
        left = right
    return bytes(digests)


def node_count(*, begin: int, end: int, span: int) -> int:
    """How many digests `node_digests` gives."""
    if end <= begin:
        return 0
    return 1 if span == 0 else (end - 1) // span - begin // span + 1
