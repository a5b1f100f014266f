"""Batches of two logs side by side: what is expected of a batch at the target, and the difference
between two of them, also where the target has one batch with the records of several.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from mirror.translate.core.merging import DIGEST_MASK


class Sample(NamedTuple):
    """The expected batch at the target: its offset, its number of records, and a checksum (None
    accepts any). `digest` computes the digest of its records, if it may be merged with others.
    """

    offset: int
    record_count: int
    checksum: int | None
    digest: Callable[[], int] | None = None

    def joined(self, following: Sample) -> Sample:
        """Both as one batch, which is compared by its digest."""
        first, second = self.digest, following.digest
        digest: Callable[[], int] | None = None
        if first is not None and second is not None:
            # at once, because a chain of closures would be as deep as the merged batch has parts
            joined = first() + second() & DIGEST_MASK
            digest = lambda: joined  # noqa: E731
        return Sample(self.offset, self.record_count + following.record_count, None, digest)


Samples = AsyncIterator[Sample]


def difference(expected: Sample | None, found: Sample | None) -> str:
    """The difference between two batches, in a sentence; empty when there is none."""
    if expected is None and found is not None:
        return f"the target has a batch at offset {found.offset} that the source does not have"
    if found is None and expected is not None:
        return f"the target lacks the batch that belongs at offset {expected.offset}"
    if expected is None or found is None:
        return ""
    if expected[:2] != found[:2]:
        return (
            f"the target has {found.record_count} records at offset {found.offset} where {expected.record_count} "
            f"at offset {expected.offset} belong"
        )
    is_same = (
        expected.checksum == found.checksum
        if None not in (expected.checksum, found.checksum)
        else expected.digest is None or found.digest is None or expected.digest() == found.digest()
    )
    if not is_same:
        return f"the batch at offset {found.offset} differs in bytes from the source's"
    return ""


async def side_by_side(first: Samples, second: Samples) -> AsyncIterator[tuple[Sample | None, Sample | None, int]]:
    """The batches in pairs, and how many of the first ones each pair has: several, where the second
    one has been merged.
    """
    while True:
        one, other = await anext(first, None), await anext(second, None)
        count = 1
        while one is not None and other is not None and _is_a_part(one, other):
            following = await anext(first, None)
            if following is None:
                break
            one, count = one.joined(following), count + 1
        if one is None and other is None:
            return
        yield one, other, count


def _is_a_part(one: Sample, other: Sample) -> bool:
    return one.record_count < other.record_count and None not in (one.digest, other.digest)
