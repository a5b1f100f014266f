"""Times as people give them: those that Kafka's requests use for something else are refused."""

from __future__ import annotations

import pytest

from runtime.times import LAST_MS, iso_time, unix_ms


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("0", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00.250+01:00", 1_769_857_200_250),
    ],
)
def test_a_time_is_read_and_written(text: str, at_ms: int) -> None:
    assert unix_ms(text) == at_ms
    assert unix_ms(iso_time(at_ms)) == at_ms


@pytest.mark.parametrize("text", [str(LAST_MS), "9999-12-31T23:59:59.999Z"])
def test_the_last_time_is_the_end_of_the_year_9999(text: str) -> None:
    assert unix_ms(text) == LAST_MS


def test_a_time_beyond_the_last_one_is_written_as_a_number() -> None:
    assert iso_time(1_700_000_000_000_000) == "1700000000000000 ms"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-1",
        # -1 and -2 ms are the latest and the earliest offset in ListOffsets.
        "1969-12-31T23:59:59.999Z",
        "1969-12-31T23:59:59.998Z",
        "0001-01-01T00:00:00+23:59",
        str(LAST_MS + 1),
        "99999999999999999999",
    ],
)
def test_no_time_is_before_1970_or_after_the_year_9999(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unix_ms(text)
