"""The benchmark touches free memory up to a bound."""

from __future__ import annotations

from typing import Self

import pytest

from bench.measuring import warm_memory


def test_no_more_than_its_share_of_what_is_available_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Memory(bytearray):
        def __init__(self, _: int, size: int) -> None:
            sizes.append(size)
            super().__init__(size)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(warm_memory, "available_bytes", lambda: 1_000_000)
    monkeypatch.setattr("bench.measuring.warm_memory.mmap.mmap", Memory)
    for load_bytes in (0, 10_000, 10**12):
        warm_memory.touch_free_memory(load_bytes)
    assert sizes == [28_672, 499_712]


def test_the_machine_says_what_is_available() -> None:
    assert warm_memory.available_bytes() > 0
