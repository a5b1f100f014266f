"""The ends and the share of a mirror whose sites are in memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror.admin.verifier import Verifier
from mirror.ends import EndsStatus
from mirror.link.group_ports import GroupPort, OffsetsTail
from mirror.link.link_watch import LinkView
from mirror.link.ports import (
    AppendPort,
    FetchPort,
    ProgressPort,
    QuarantinePort,
    ReportPort,
    SitePort,
    SourcePort,
    TopicActor,
)
from mirror.sharing.ownership import Ownership
from mirror.sharing.shares import Worker
from wire.protocol.ids import TopicPartition
from wire.protocol.streams.compressed_stream import CompressionTally

if TYPE_CHECKING:
    from tests.support.memory.memory_world import MemoryWorld


@dataclass(frozen=True, kw_only=True)
class MemoryEnds:
    """The `Ends` of an exact link in memory."""

    source: SourcePort
    target: SitePort
    source_groups: GroupPort
    target_groups: GroupPort
    offsets_tail: OffsetsTail | None
    actor: TopicActor
    quarantine: QuarantinePort
    verifier: Verifier | None
    open_fetch: Callable[[], FetchPort]
    open_append: Callable[[], AppendPort]
    read_link: Callable[[], Coroutine[Any, Any, LinkView]]
    open_progress: Callable[[], ProgressPort | None]
    open_reports: Callable[[], ReportPort | None] = lambda: None
    tallies: Mapping[str, CompressionTally] = field(default_factory=dict)
    workers: Mapping[str, Worker] = field(default_factory=dict)
    name_at_target = None
    is_exact = True

    async def finish(self) -> None:
        pass

    def status(self) -> EndsStatus:
        return EndsStatus()

    def surplus_records(self) -> Mapping[TopicPartition, int]:
        return {}


class MemoryShare:
    """The `Share` that a test sets in its world."""

    outage = ""
    waiting_for = ""

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world
        self.daemon = "m1:9391"
        self.workers: Mapping[str, Worker] = {}

    @property
    def slots(self) -> frozenset[int]:
        return self._world.slots

    @property
    def ownership(self) -> Ownership | None:
        return self._world.ownership

    def owns(self, key: TopicPartition) -> bool:
        return self._world.owns(key)
