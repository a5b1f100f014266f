"""The values of the load's records."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.loads.payloads import payloads, write_payload_file


@pytest.mark.parametrize("size_bytes", [100, 1_000, 10_000])
def test_values_have_the_size_are_lines_and_are_the_same_each_time(size_bytes: int) -> None:
    values = payloads(size_bytes)
    assert {len(value) for value in values} == {size_bytes}
    assert not any(b"\n" in value for value in values)
    assert len(set(values)) == len(values) >= 400
    assert payloads(size_bytes) == values


def test_a_file_holds_one_value_a_line(tmp_path: Path) -> None:
    file = tmp_path / "values.txt"
    write_payload_file(file, 100)
    assert file.read_bytes().splitlines() == payloads(100)
