"""How far a target is a copy, derived from the two logs alone."""

from __future__ import annotations

from mirror.translate.core.likeness import Fingerprint, Likeness, fingerprint
from mirror.translate.core.offset_map import Run
from mirror.translate.core.translation import Translation
from wire.batches.record_batch import BatchHeader, read_header
from wire.batches.records import Record, encode_batch


def batch(value: str, offset: int, count: int = 2) -> bytes:
    return encode_batch([Record(None, value.encode())] * count, base_offset=offset, leader_epoch=4)


def log(values: str) -> list[bytes]:
    return [batch(value, 2 * number) for number, value in enumerate(values)]


def compare(source: str, target: str, skipped: str = "") -> tuple[Likeness, Translation]:
    likeness, translation = Likeness(), Translation()
    for one in log(target):
        likeness.see_target(*seen(one))
    for one, value in zip(log(source), source, strict=True):
        found, header = seen(one)
        likeness.see_source(None if value in skipped else found, header)
    likeness.finish(translation, target_end=2 * len(target))
    return likeness, translation


def seen(one: bytes) -> tuple[Fingerprint, BatchHeader]:
    header = read_header(one)
    return fingerprint(one, 0, header), header


def test_a_copy_s_end_is_where_the_source_goes_on_without_it() -> None:
    likeness, translation = compare("abcd", "ab")
    assert likeness.is_complete
    assert translation.position.source_next == 4
    assert list(translation.map) == [Run(0, 0, 4)]


def test_records_that_expired_at_the_target_are_no_difference() -> None:
    _, translation = compare("abcd", "cd")
    assert translation.position.source_next == 8
    assert list(translation.map) == [Run(4, 0, 4)]


def test_other_people_s_batches_between_are_passed() -> None:
    _, translation = compare("abc", "axbyy")
    assert translation.position.source_next == 4
    assert list(translation.map) == [Run(0, 0, 2), Run(2, 4, 2)]
    assert translation.position.target_next == 10


def test_batches_that_are_not_carried_belong_to_the_copy() -> None:
    _, translation = compare("a-b-", "ab", skipped="-")
    assert translation.position.source_next == 8
    assert list(translation.map) == [Run(0, 0, 2), Run(4, 2, 2)]


def test_equal_batches_are_distinguished_by_their_order() -> None:
    _, translation = compare("aaaa", "aa")
    assert translation.position.source_next == 4


def test_nothing_in_common_is_said() -> None:
    likeness, translation = compare("abc", "xyz")
    assert likeness.matched_batches == 0
    assert translation.position.source_next == 0


def merged(values: str, offset: int) -> bytes:
    """A batch with the records of several batches of `log`."""
    records = [Record(None, value.encode()) for value in values for _ in range(2)]
    return encode_batch(records, base_offset=offset, producer_id=7)


def compare_merged(source: str, *copies: str, skipped: str = "") -> tuple[Likeness, Translation]:
    """As `compare`; each copy is one batch of the target."""
    likeness, translation, offset = Likeness(), Translation(), 0
    for copy in copies:
        likeness.see_target(*seen(merged(copy, offset)))
        offset += 2 * len(copy)
    for one, value in zip(log(source), source, strict=True):
        found, header = seen(one)
        likeness.see_source(None if value in skipped else found, header)
    likeness.finish(translation, target_end=offset)
    return likeness, translation


def test_a_merged_copy_stands_for_the_batches_that_it_was_made_of() -> None:
    likeness, translation = compare_merged("abcdef", "a", "bcd")
    assert (likeness.is_complete, likeness.matched_batches) == (True, 4)
    assert translation.position.source_next == 8
    assert list(translation.map) == [Run(0, 0, 8)]


def test_batches_that_are_not_carried_may_lie_between_those_of_a_merged_copy() -> None:
    _, translation = compare_merged("ab-cd", "ab", "cd", skipped="-")
    assert list(translation.map) == [Run(0, 0, 4), Run(6, 4, 4)]
    _, translation = compare_merged("ab-c", "abc", skipped="-")
    assert translation.position.source_next == 8
    assert list(translation.map) == [Run(0, 0, 4), Run(6, 4, 2)]


def test_batches_that_only_begin_like_a_merged_copy_are_looked_at_again() -> None:
    """The first ones have expired at the target, whose batches begin alike."""
    _, translation = compare_merged("aabc", "abc")
    assert list(translation.map) == [Run(2, 0, 6)]
    likeness, translation = compare_merged("axyab", "abc")
    assert likeness.matched_batches == 0
    assert translation.position.source_next == 0


def test_a_merged_copy_that_the_source_does_not_go_on_with_is_none() -> None:
    likeness, translation = compare_merged("abxyz", "a", "bcd")
    assert likeness.is_complete
    assert translation.position.source_next == 2
