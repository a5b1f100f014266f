"""Asks ZooKeeper for many nodes at a time, with a bound on the requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
READS_IN_FLIGHT_MAX = 1000
"""The number of single-node requests in flight."""


async def in_flight(
    function: Callable[[Item], Awaitable[Answer]], items: Sequence[Item], *, at_once: int = READS_IN_FLIGHT_MAX
) -> list[Answer]:
    """The results of `function` for every item, in order; a bounded number runs at a time."""
    answers: list[Answer] = []
    for window in windows(items, at_once):
        answers += await asyncio.gather(*(function(item) for item in window))
    return answers


def windows(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The items in slices of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
