"""A mirror that starts anew over a thinned source, by example: the batches that it passes, mirrors
and refuses.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from mirror.translate.core.renumbering import renumber
from mirror.translate.core.resume import HistoryMismatch, SourceIsThinned, TailMatch
from mirror.translate.core.thinned_source import ThinnedMatch
from mirror.translate.core.translation import Translation
from tests.support.histories.compacted_log import Log, thinned
from wire.batches.record_batch import read_header
from wire.batches.records import Record, encode_batch

OURS = (4000, 4001)


def batches_of(*values: str, first: int = 0) -> list[bytes]:
    """Two records of one key each a batch, as a log has them from an offset on."""
    return [
        encode_batch([Record(value.encode(), b"v%d" % index, 7) for index in (0, 1)], base_offset=first + 2 * number)
        for number, value in enumerate(values)
    ]


def killed_after(batches: Sequence[bytes]) -> list[bytes]:
    """The batches of the target after a mirror has copied these and was killed before it stored its
    position.
    """
    translation, target = Translation(), Log(random.Random(0))
    for batch in batches:
        header = read_header(batch)
        (plan,) = translation.plan(
            [header], expected=translation.planned_next, skipped=(), producer_of=lambda _: OURS[0]
        )
        assert plan is not None
        assert plan.stamp is not None
        translation.confirm(plan, target.append(b"".join(renumber(batch, 0, header, plan.stamp).batch)))
    return target.batches


def test_a_batch_is_not_taken_for_the_one_before_it_that_is_gone() -> None:
    """All batches have two records, so a count alone does not show that the last one was never
    mirrored.
    """
    batches = batches_of("a", "b", "c", "d")
    match = TailMatch(Translation(), producer_ids=OURS)
    match.see_target(b"".join(killed_after(batches[:3])))
    with pytest.raises(SourceIsThinned):
        match.see_source(b"".join(batches[1:]), skipped=(), producer_of=lambda _: OURS[0])


def resumed(source: Sequence[bytes], target: Sequence[bytes], *, source_end: int) -> Translation:
    translation = Translation()
    match = ThinnedMatch(translation, producer_ids=OURS)
    match.see_target(b"".join(target))
    match.see_source(b"".join(source), skipped=(), producer_of=lambda _: OURS[0])
    match.finish(source_end=source_end)
    return translation


@pytest.mark.parametrize("lacking", [1, 2])
def test_a_batch_that_the_target_never_had_is_mirrored_though_later_ones_are_there(lacking: int) -> None:
    """A broker that has forgotten the producer takes the later batches at the offsets of the ones
    before.
    """
    batches = batches_of("a", "b", "c", "d")
    target = Log(random.Random(0))
    for number, batch in enumerate(killed_after(batches)):
        if number != lacking:
            target.append(batch)
    translation = resumed(batches[1:], target.batches, source_end=8)
    assert translation.position.source_next == 2 * lacking
    assert translation.position.target_next == target.end
    assert translation.surplus.between == 2 * (3 - lacking)


def test_a_batch_that_the_target_has_compacted_away_is_not_mirrored_again() -> None:
    batches = batches_of("a", "b", "c", "d")
    target = killed_after(batches)
    translation = resumed(batches[1:], [*target[:1], *target[2:]], source_end=8)
    assert translation.position.source_next == 8
    assert translation.surplus.between == 0


def test_a_source_that_ends_before_what_was_mirrored_from_it_is_another_history() -> None:
    batches = batches_of("a", "b", "c")
    with pytest.raises(HistoryMismatch, match=r"6 records were mirrored from offset 0 on, and the source ends at 4"):
        resumed(batches[1:2], killed_after(batches), source_end=4)


def test_batches_that_have_all_expired_were_mirrored_as_far_as_the_tail_says() -> None:
    batches = batches_of("a", "b", "c")
    assert resumed([], killed_after(batches), source_end=9).position.source_next == 6


def test_other_records_where_the_mirrored_ones_were_are_another_history() -> None:
    batches = batches_of("a", "b", "c")
    (other,) = batches_of("x", first=2)
    with pytest.raises(HistoryMismatch, match="record at offset 3 is not the one that the target has in its place"):
        resumed([other, batches[2]], killed_after(batches), source_end=6)


def test_a_record_that_is_written_again_after_another_of_its_key_is_not_guessed_at() -> None:
    """The target's last one of the key would be another than the source's."""
    first, second = (encode_batch([Record(b"k", value, 7)], base_offset=at) for at, value in enumerate((b"v", b"w")))
    again = encode_batch([Record(b"k", b"v", 7)], base_offset=5)
    with pytest.raises(HistoryMismatch, match="record at offset 5"):
        resumed([again], killed_after([first, second]), source_end=6)


def test_records_that_are_all_alike_are_not_counted_as_mirrored_by_their_likeness() -> None:
    """The first ones expired: are the last two of the four that were mirrored, or came they after
    those?
    """
    alike = [encode_batch([Record(None, b"same", 7)], base_offset=at) for at in range(8)]
    with pytest.raises(HistoryMismatch, match="batch at offset 5 is like several records"):
        resumed(alike[2:6], killed_after(alike[:4]), source_end=6)


def test_records_that_lie_in_another_order_are_others() -> None:
    batches = [encode_batch([Record(key, b"v", 7)], base_offset=at) for at, key in enumerate((b"a", b"b"))]
    swapped = [encode_batch([Record(key, b"v", 7)], base_offset=5 + at) for at, key in enumerate((b"b", b"a"))]
    with pytest.raises(HistoryMismatch, match="not in the order of the other records"):
        resumed(swapped, killed_after(batches), source_end=7)


def test_a_batch_whose_copy_may_be_what_the_target_lost_is_not_guessed_at() -> None:
    """Was the second one mirrored and lost its copy, or is it to be mirrored? Holes before it make
    its offset useless as evidence.
    """
    first, second = batches_of("a")[0], batches_of("b", first=10)[0]
    whole, last = killed_after([first, second])
    emptied = thinned(last, lambda _: False)
    with pytest.raises(HistoryMismatch, match="the target has lost the last records that were mirrored"):
        resumed([second], [whole, emptied], source_end=12)
