"""A whole mirror over sites in memory, for tests of its shells."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from mirror.assembly import Mirror
from mirror.flow.core.flow_state import FlowState
from mirror.link.known_link import KnownLink
from mirror.settings.config import load_config
from runtime.doors import ProcessDoors
from tests.support.memory.memory_world import MemoryWorld


@asynccontextmanager
async def mirroring(
    world: MemoryWorld, *, registry: CollectorRegistry | None = None, **settings: str
) -> AsyncIterator[Mirror]:
    """The world's mirror, started, with short intervals."""
    properties = {
        "link.name": "a-b",
        "site.agents": "127.0.0.1:1",
        "topics.refresh.interval.ms": "50",
        "group.sync.interval.ms": "50",
        "config.sync.interval.ms": "50",
        "link.refresh.interval.ms": "50",
        "fetch.wait.max.ms": "100",
    } | settings
    mirror = Mirror(
        load_config(properties),
        world.ends(),
        world.share(),
        KnownLink(await world.read_link()),
        registry=registry or CollectorRegistry(),
        doors=ProcessDoors(chance=random.Random(1)),
    )
    mirror.start()
    try:
        yield mirror
    finally:
        await mirror.stop(drain_timeout_ms=1000)


def world_with(partitions: int = 4, batches: int = 20) -> MemoryWorld:
    """A topic `orders` with records at the source alone."""
    world = MemoryWorld()
    world.source.add("orders", partitions)
    for partition in range(partitions):
        world.source.produce("orders", partition, batches)
    return world


def states(mirror: Mirror) -> set[FlowState]:
    """The states of all partitions."""
    return {row.facts.state for _, row in mirror.board.rows()}
