"""The batches of an entry that are replayed: transactions end at their producer's next marker."""

from __future__ import annotations

from cli.recovery.quarantined.fates import Fate, Fates
from wire.batches.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader

FIRST, SECOND = 7, 8
DATA, MARKER = TRANSACTIONAL_BIT, TRANSACTIONAL_BIT | CONTROL_BIT


def header(producer_id: int, attributes: int) -> BatchHeader:
    return BatchHeader(0, 49, 0, 2, 0, attributes, 0, 0, 0, producer_id, 0, 0, 1)


def fates(*batches: tuple[int, int, bool]) -> list[Fate]:
    """The fates of batches, given by producer, attributes, and whether a marker aborts."""
    found = Fates()
    for position, (producer_id, attributes, is_abort) in enumerate(batches):
        found.take(position, header(producer_id, attributes), is_abort=is_abort)
    return [found.of(position) for position in range(len(batches))]


def test_records_outside_of_transactions_are_plain() -> None:
    assert fates((-1, 0, False), (FIRST, 0, False)) == [Fate.PLAIN, Fate.PLAIN]


def test_a_transaction_is_what_its_own_producers_marker_says() -> None:
    assert fates(
        (FIRST, DATA, False),
        (SECOND, DATA, False),
        (FIRST, DATA, False),
        (FIRST, MARKER, True),
        (SECOND, MARKER, False),
    ) == [Fate.ABORTED, Fate.PLAIN, Fate.ABORTED, Fate.MARKER, Fate.MARKER]


def test_records_that_follow_a_marker_are_another_transaction() -> None:
    assert fates((FIRST, DATA, False), (FIRST, MARKER, False), (FIRST, DATA, False), (FIRST, MARKER, True)) == [
        Fate.PLAIN,
        Fate.MARKER,
        Fate.ABORTED,
        Fate.MARKER,
    ]


def test_a_transaction_without_a_marker_is_open() -> None:
    assert fates((FIRST, DATA, False), (FIRST, MARKER, True), (FIRST, DATA, False), (-1, 0, False)) == [
        Fate.ABORTED,
        Fate.MARKER,
        Fate.OPEN,
        Fate.PLAIN,
    ]


def test_the_marker_of_a_transaction_that_began_before_the_entry_is_no_record() -> None:
    assert fates((FIRST, MARKER, True), (FIRST, 0, False)) == [Fate.MARKER, Fate.PLAIN]
