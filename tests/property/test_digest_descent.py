"""Two logs compared by digests: exactly the differences are named, and the number of requests is
bounded.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dr.proof.core.descent import DIFFERENCES_MAX, LEAVES_MAX, NODES_ASKED_MAX, NODES_MAX, Descent, Question
from wire.batches.leaf_digests import DIGEST_BYTES, joined_headers, leaf_range, node_digests, part_digest
from wire.batches.record_batch import BatchHeader
from wire.protocol.messages.range_digest_messages import HEADERS

LEAF = 4096
FIRST = BatchHeader(0, 100, 1, 2, 7, 0, 0, 1, 1, -1, -1, -1, 1)


@st.composite
def logs(draw: st.DrawFn) -> list[BatchHeader]:
    """Batches from some offset on, in up to thousands of leaves."""
    found, offset = [], draw(st.integers(0, 2 * LEAF))
    for _ in range(draw(st.integers(1, 15))):
        delta = draw(st.integers(0, 2 * LEAF))
        found.append(FIRST._replace(base_offset=offset, last_offset_delta=delta))
        offset += delta + 1 + draw(st.sampled_from([0, 0, LEAF, 500 * LEAF]))
    return found


def answer(batches: list[BatchHeader], question: Question) -> bytes:
    """The answer of a broker that has these batches."""
    first, end, span = question
    if span == HEADERS:
        return joined_headers(batches, first, end)
    leaves = leaf_range(first, end)
    bounds = [max(first, number * LEAF) for number in range(leaves.first, leaves.end)] + [end]
    digests = [part_digest(joined_headers(batches, *pair)) for pair in pairwise(bounds)]
    return node_digests(b"".join(digests), leaves.first, span=span)


def compared(source: list[BatchHeader], target: list[BatchHeader]) -> Descent:
    """A comparison to its end."""
    begin = max(source[0].base_offset, target[0].base_offset)
    descent = Descent(first_offset=begin, end_offset=source[-1].next_offset, leaf_offsets=LEAF)
    rounds = 0
    while questions := descent.questions():
        assert len(questions) <= max(NODES_MAX, LEAVES_MAX)
        answers = {one: (answer(source, one), answer(target, one)) for one in questions}
        assert all(len(one) <= NODES_ASKED_MAX * DIGEST_BYTES for pair in answers.values() for one in pair) or any(
            one.span == HEADERS for one in questions
        )
        descent.take(answers)
        rounds += 1
        assert rounds < 10
    return descent


@given(logs())
def test_a_log_is_equal_to_itself(batches: list[BatchHeader]) -> None:
    assert compared(batches, batches).differences == []


@given(logs(), st.data())
def test_every_changed_batch_lies_in_a_difference(batches: list[BatchHeader], data: st.DataObject) -> None:
    numbers = data.draw(st.sets(st.integers(0, len(batches) - 1), min_size=1))
    target = [one._replace(crc=8) if number in numbers else one for number, one in enumerate(batches)]
    descent = compared(batches, target)
    assert len(descent.differences) <= DIFFERENCES_MAX
    for number in numbers:
        offset = batches[number].base_offset
        assert any(one.first_offset <= offset <= one.last_offset for one in descent.differences)
    if len(numbers) == 1:
        (found,) = descent.differences
        (changed,) = (batches[number] for number in numbers)
        assert (found.first_offset, found.last_offset) == (changed.base_offset, changed.next_offset - 1)
        assert found.detail == "differ in crc"


@given(logs(), st.data())
def test_a_batch_that_one_log_lacks_is_named(batches: list[BatchHeader], data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(batches) - 1))
    lacking = [one for number, one in enumerate(batches) if number != gone]
    begin, end = batches[0].base_offset, batches[-1].next_offset
    for source, target, kind in ((batches, lacking, "missing"), (lacking, batches, "extra")):
        descent = Descent(first_offset=begin, end_offset=end, leaf_offsets=LEAF)
        while questions := descent.questions():
            descent.take({one: (answer(source, one), answer(target, one)) for one in questions})
        (found,) = descent.differences
        assert (found.kind, found.first_offset) == (kind, batches[gone].base_offset)
