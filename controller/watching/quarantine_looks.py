"""Re-read the topics in quarantine: their znodes may be repaired, removed, or newly broken.

Caller: `event_loop.py`, for the time of a tenure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from controller.core.commands import Command, QuarantineLookedAt
from controller.core.state.cluster import Cluster
from controller.stored.cluster_reader import ClusterReader
from controller.watching.notices import Reading, reading_marks
from controller.watching.watches import until_answered

LOOK_INTERVAL_S: Final = 2.0


async def look_again_and_again(
    reader: ClusterReader, tell: Callable[[Command | Reading], Awaitable[None]], *, cluster: Callable[[], Cluster]
) -> None:
    """Queue a command for each change in the quarantine, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_INTERVAL_S)
        if cluster().quarantine:
            await until_answered(partial(_look, reader, tell, cluster))


async def _look(
    reader: ClusterReader, tell: Callable[[Command | Reading], Awaitable[None]], cluster: Callable[[], Cluster]
) -> None:
    found = await reader.stored_topics(sorted(cluster().quarantine))
    if found.problems == cluster().quarantine:
        return
    await tell(Reading(partial(_looked_at, reader, cluster)))
    # deletion marks of topics in quarantine are ignored until the topics leave it
    await tell(reading_marks(reader))


async def _looked_at(reader: ClusterReader, cluster: Callable[[], Cluster]) -> Command:
    """The quarantine read again: a topic may have come into it since the first read."""
    found = await reader.stored_topics(sorted(cluster().quarantine))
    return QuarantineLookedAt(topics=tuple(found.topics), leaderships=found.leaderships, problems=found.problems)
