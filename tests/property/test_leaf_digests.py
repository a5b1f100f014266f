"""Digests of leaves: the same batches give the same leaves however they are divided into pieces,
and any change of a batch changes its leaf and every node above.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from wire.batches.leaf_digests import (
    DIGEST_BYTES,
    LEAF_OFFSETS,
    LeafRun,
    RangeRun,
    joined_headers,
    leaf_range,
    node_count,
    node_digests,
    part_digest,
)
from wire.batches.record_batch import BatchHeader

MIN_FIELDS = BatchHeader(0, 100, 1, 2, 0, 0, 0, 1, 1, -1, -1, -1, 1)


@st.composite
def headers(draw: st.DrawFn) -> list[BatchHeader]:
    found, offset = [], draw(st.integers(0, 2 * LEAF_OFFSETS))
    for _ in range(draw(st.integers(1, 12))):
        delta = draw(st.integers(0, 2 * LEAF_OFFSETS))
        crc = draw(st.integers(0, 2**32 - 1))
        found.append(MIN_FIELDS._replace(base_offset=offset, last_offset_delta=delta, crc=crc))
        offset += delta + 1 + draw(st.sampled_from([0, 0, 1, 3 * LEAF_OFFSETS]))
    return found


def leaves_of(batches: list[BatchHeader], *, divided_at: list[int]) -> bytes:
    """The leaves up to the log's end, computed by runs that each continue where the previous one
    ended.
    """
    run, sealed = LeafRun(0), b""
    for number, header in enumerate(batches):
        if number in divided_at:
            sealed += bytes(run.sealed)
            run = run.resumed()
        run.take(header)
    run.seal_to(batches[-1].next_offset // LEAF_OFFSETS)
    return sealed + bytes(run.sealed)


@given(headers(), st.lists(st.integers(0, 12)))
def test_leaves_do_not_depend_on_how_the_log_is_divided(batches: list[BatchHeader], divided_at: list[int]) -> None:
    whole = leaves_of(batches, divided_at=[])
    assert leaves_of(batches, divided_at=divided_at) == whole
    assert len(whole) == batches[-1].next_offset // LEAF_OFFSETS * DIGEST_BYTES


@given(headers(), st.data())
def test_a_changed_field_changes_its_leaf_and_the_root_and_no_other_leaf(
    batches: list[BatchHeader], data: st.DataObject
) -> None:
    last = batches[-1]
    batches.append(MIN_FIELDS._replace(base_offset=(last.next_offset // LEAF_OFFSETS + 1) * LEAF_OFFSETS))
    number = data.draw(st.integers(0, len(batches) - 2))
    name = data.draw(st.sampled_from([name for name in BatchHeader._fields if "offset" not in name]))
    former = batches[number]
    changed = list(batches)
    changed[number] = former._replace(**{name: getattr(former, name) ^ 1})
    before, after = leaves_of(batches, divided_at=[]), leaves_of(changed, divided_at=[])
    leaf = former.base_offset // LEAF_OFFSETS
    at = slice(leaf * DIGEST_BYTES, (leaf + 1) * DIGEST_BYTES)
    assert before[at] != after[at]
    assert before[: at.start] + before[at.stop :] == after[: at.start] + after[at.stop :]
    roots = [node_digests(leaves, 0, span=0) for leaves in (before, after)]
    assert roots[0] != roots[1]


@given(st.integers(0, 40), st.integers(1, 40), st.sampled_from([0, 1, 4, 16]), st.data())
def test_the_node_that_differs_leads_to_the_leaf_that_differs(
    first: int, count: int, span: int, data: st.DataObject
) -> None:
    leaves = [bytes([number]) * DIGEST_BYTES for number in range(count)]
    mine = node_digests(b"".join(leaves), first, span=span)
    changed = data.draw(st.integers(0, count - 1))
    leaves[changed] = b"x" * DIGEST_BYTES
    other = node_digests(b"".join(leaves), first, span=span)
    nodes = node_count(first * LEAF_OFFSETS, (first + count) * LEAF_OFFSETS, span=span)
    assert len(mine) == len(other) == nodes * DIGEST_BYTES
    differing = [
        number
        for number in range(nodes)
        if mine[number * DIGEST_BYTES :][:DIGEST_BYTES] != other[number * DIGEST_BYTES :][:DIGEST_BYTES]
    ]
    assert differing == [0 if span == 0 else (first + changed) // span - first // span]


@given(st.integers(0, 5 * LEAF_OFFSETS), st.integers(1, 5 * LEAF_OFFSETS))
def test_a_range_is_its_parts_of_leaves_and_the_whole_ones_between(first: int, offsets: int) -> None:
    leaves = leaf_range(first, first + offsets)
    whole = range(leaves.whole_first, leaves.whole_end)
    assert all(first <= number * LEAF_OFFSETS and (number + 1) * LEAF_OFFSETS <= first + offsets for number in whole)
    assert leaves.end - leaves.first == len(whole) + leaves.has_part_first + leaves.has_part_last
    assert leaves.first * LEAF_OFFSETS <= first < (leaves.first + 1) * LEAF_OFFSETS
    assert (leaves.end - 1) * LEAF_OFFSETS < first + offsets <= leaves.end * LEAF_OFFSETS


@given(headers())
def test_a_range_that_is_read_batch_by_batch_has_the_digest_of_its_whole_and_partial_leaves(
    batches: list[BatchHeader],
) -> None:
    first, end = batches[0].base_offset, batches[-1].next_offset
    run = RangeRun(first)
    for header in batches:
        run.take(header)
    leaves = leaf_range(first, end)
    edges = [first, *(leaf * LEAF_OFFSETS for leaf in range(leaves.first + 1, leaves.end)), end]
    parts = [part_digest(joined_headers(batches, left, right)) for left, right in pairwise(edges)]
    assert run.digest(end) == node_digests(b"".join(parts), leaves.first, span=0)
