"""R1 without brokers: each defect that is planted in a copy of an exact log is named by its
offsets, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from spark_jobs.reconciling.core.judging import Judgement
from spark_jobs.reconciling.core.small_comparison import RecordRow, content_of, differing_records

COUNT: Final = 20


class Held(NamedTuple):
    """One record of a log."""

    offset: int
    key: bytes
    value: bytes
    timestamp_ms: int


def log() -> list[Held]:
    return [Held(number, b"key-%d" % number, b"value-%d" % number, 1_000 + number) for number in range(COUNT)]


def rows(site: str, records: list[Held]) -> list[RecordRow]:
    return [
        RecordRow(site, "t", 0, one.offset, 0, one.key, False, content_of(one.timestamp_ms, False, one.key, one.value))
        for one in records
    ]


def named(copy: list[Held]) -> list[tuple[str, int, int]]:
    """The findings of the comparison with the log itself."""
    judgement = Judgement(source_site="a", target_site="b")
    judgement.judge_differences(differing_records([*rows("a", log()), *rows("b", copy)], source="a"))
    return [(str(one.kind), one.first_offset, one.last_offset) for one in judgement.findings]


def changed(copy: list[Held], **fields: object) -> list[Held]:
    """The record at offset 6 is another one."""
    return [one._replace(**fields) if one.offset == 6 else one for one in copy]  # type: ignore[arg-type]


def swapped(copy: list[Held]) -> list[Held]:
    places = {4: 5, 5: 4}
    return sorted(one._replace(offset=places.get(one.offset, one.offset)) for one in copy)


def shifted(copy: list[Held]) -> list[Held]:
    """From offset 15 on, everything lies one offset later."""
    return [one if one.offset < 15 else one._replace(offset=one.offset + 1) for one in copy]


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        pytest.param(lambda copy: copy, [], id="none"),
        pytest.param(lambda copy: [*copy[:4], *copy[6:]], [("missing", 4, 5)], id="missing"),
        pytest.param(lambda copy: [*copy, copy[3]._replace(offset=COUNT)], [("extra", 20, 20)], id="appended twice"),
        pytest.param(lambda copy: [*copy, copy[3]], [("extra", 3, 3)], id="one offset twice"),
        pytest.param(swapped, [("diverged", 4, 5)], id="swapped"),
        pytest.param(lambda copy: changed(copy, value=b"value-~"), [("diverged", 6, 6)], id="changed byte"),
        pytest.param(lambda copy: changed(copy, timestamp_ms=5), [("diverged", 6, 6)], id="wrong time"),
        pytest.param(lambda copy: changed(copy, key=b"key-7"), [("diverged", 6, 6)], id="wrong key"),
        pytest.param(shifted, [("missing", 15, 15), ("diverged", 16, 19), ("extra", 20, 20)], id="shifted offsets"),
    ],
)
def test_a_planted_defect_is_named_by_its_offsets(
    plant: Callable[[list[Held]], list[Held]], expected: list[tuple[str, int, int]]
) -> None:
    assert named(plant(log())) == expected
