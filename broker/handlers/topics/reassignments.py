"""Answers about partitions, gathered by topic: shared by the handlers of reassignments and
elections. Serves no API itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class OfTopic(Protocol):
    """An entry for one partition of a topic."""

    @property
    def topic(self) -> str:
        """Name of its topic."""
        ...


ResultT = TypeVar("ResultT", bound=OfTopic)


def by_topic(results: Iterable[ResultT]) -> dict[str, list[ResultT]]:
    """The results under their topics, in their order."""
    topics: dict[str, list[ResultT]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    return topics
