"""The ends of logs, and the pieces that workers read of them."""

from __future__ import annotations

from spark_jobs.logs.core.splits import LogEnds, is_reached, pieces

KEY = ("t", 0)


def ends(end: int) -> dict[tuple[str, int], LogEnds]:
    return {KEY: LogEnds(start_offset=0, end_offset=end)}


def test_the_target_has_reached_the_source_when_every_log_has() -> None:
    assert is_reached(ends(100), ends(100))
    assert not is_reached(ends(100), {})
    assert is_reached(ends(0), {})


def test_pieces_join_and_only_the_first_one_has_the_batch_before_its_start() -> None:
    found = list(pieces("a", KEY, first=5, until=26, length=10))
    assert [(piece.first_offset, piece.until_offset, piece.is_first) for piece in found] == [
        (5, 15, True),
        (15, 25, False),
        (25, 26, False),
    ]
    assert list(pieces("a", KEY, first=5, until=5, length=10)) == []
