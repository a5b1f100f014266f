"""Heartbeats of MirrorMaker 2: each direction's are written once, whichever mirrors run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mirror.mirrormaker import heartbeats as module
from mirror.mirrormaker.core.mirror_maker_records import Heartbeat
from mirror.mirrormaker.core.stand_in import SILENT_INTERVALS
from mirror.mirrormaker.heartbeats import Heartbeats
from tests.support.clock import ManualClock

INTERVAL_MS = 1000


class Cluster:
    """A cluster's topic of heartbeats, which is also its client."""

    def __init__(self) -> None:
        self.records: list[Heartbeat] = []

    async def offsets_at(self, places: Sequence[tuple[str, int]], _: int) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, len(self.records))


class World:
    """Two clusters, and mirrors between them that start on request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.clusters = {"a": Cluster(), "b": Cluster()}
        monkeypatch.setattr(module, "read_topic", self._read)

    async def _read(self, cluster: Any, topic: str, take: Any, *, first_offset: int) -> int:
        for one in cluster.records[first_offset:]:
            take(one.key, one.value)
        return len(cluster.records)

    def mirror(self, source: str, target: str) -> Heartbeats:
        async def write(cluster: Any, heartbeats: Sequence[Heartbeat]) -> None:
            cluster.records.extend(heartbeats)

        ends: dict[str, Any] = {"source": self.clusters[source], "target": self.clusters[target]}
        aliases = {"source_alias": source, "target_alias": target}
        return Heartbeats(**ends, **aliases, interval_ms=INTERVAL_MS, write=write, clock=self.clock)

    async def interval(self, *mirrors: Heartbeats) -> tuple[int, int]:
        """The number of heartbeats that arrive at a and at b within one interval; only those of the
        direction that ends there do.
        """
        before = {name: len(cluster.records) for name, cluster in self.clusters.items()}
        for mirror in mirrors:
            await mirror.write()
        self.clock.advance(INTERVAL_MS)
        new = {name: cluster.records[before[name] :] for name, cluster in self.clusters.items()}
        for name, other in (("a", "b"), ("b", "a")):
            assert all((one.source_alias, one.target_alias) == (other, name) for one in new[name])
        return len(new["a"]), len(new["b"])


async def test_a_link_alone_writes_those_of_the_opposite_direction_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    there = world.mirror("a", "b")
    assert [await world.interval(there) for _ in range(4)] == [(0, 1), (1, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize("is_first", [True, False])
async def test_links_in_both_directions_write_each_heartbeat_once(
    monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    world = World(monkeypatch)
    mirrors = [world.mirror("a", "b"), world.mirror("b", "a")]
    for _ in range(6):
        assert await world.interval(*(mirrors if is_first else reversed(mirrors))) == (1, 1)


async def test_a_link_stands_in_while_the_opposite_one_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    there = world.mirror("a", "b")
    await world.interval(there)
    assert await world.interval(there) == (1, 1)
    back = world.mirror("b", "a")
    assert await world.interval(back, there) == (1, 1)
    assert await world.interval(back, there) == (1, 1)
    silent = [await world.interval(there) for _ in range(SILENT_INTERVALS - 1)]
    assert silent == [(0, 1)] * (SILENT_INTERVALS - 1)
    assert await world.interval(there) == (1, 1)
