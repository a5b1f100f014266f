"""The size of one request to a controller about topics. Pure; mirrors and disaster-recovery tools
share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

TOPICS_AT_ONCE: Final = 100
"""Topics of one request. The controller handles a request as one decision, one transaction and one
batch to each broker, so many topics in one request cost a fraction of as many requests.
"""

PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions made by one request that asks for several topics: it is answered well within its time
on a busy machine.
"""

Item = TypeVar("Item")


def in_requests(items: Iterable[Item], partitions_of: Callable[[Item], int]) -> Iterator[tuple[Item, ...]]:
    """Divide items, one for each topic, into as few requests as their bounds allow, in order."""
    request: list[Item] = []
    partitions = 0
    for item in items:
        partitions += partitions_of(item)
        if request and (len(request) >= TOPICS_AT_ONCE or partitions > PARTITIONS_AT_ONCE):
            yield tuple(request)
            request, partitions = [], partitions_of(item)
        request.append(item)
    if request:
        yield tuple(request)
