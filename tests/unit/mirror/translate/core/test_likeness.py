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
