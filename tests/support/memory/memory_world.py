"""Two sites in memory, the link between them, and the ends and share of its mirror."""

from __future__ import annotations

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from mirror.admin.verifier import Verifier
from mirror.link.core.link_roles import LinkRole
from mirror.link.link_watch import LinkMissing, LinkView, stand
from mirror.sharing.ownership import Ownership
from tests.support.memory.memory_ends import MemoryEnds, MemoryShare
from tests.support.memory.memory_ports import MemoryAppend, MemoryFetch, MemoryOffsetsTail, MemoryProgress
from tests.support.memory.memory_sites import MemorySite
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import ALL_SLOTS


class MemoryWorld:
    """Both sites, the link between them, and the ports."""

    def __init__(self) -> None:
        self.source = MemorySite("a", 1001)
        self.target = MemorySite("b", 2001)
        self.record = LinkRecord(
            name="a-b",
            source_site="a",
            target_site="b",
            epoch=1,
            active_site="a",
            phase=LinkPhase.MIRRORING,
            topic_whitelist=[".*"],
            group_whitelist=[".*"],
        )
        self.is_link_there = True
        self.reads = 0
        # The reports to the source about the target's ends, on sync links.
        self.reported: list[dict[TopicPartition, int]] = []
        # Which partitions the daemon mirrors, of a link that several share.
        self.owns: Callable[[TopicPartition], bool] = lambda _: True
        self.slots = ALL_SLOTS
        self.ownership: Ownership | None = None
        self.verifier: Verifier | None = None
        self.offsets_tail: MemoryOffsetsTail | None = None
        self.before_fetch: Callable[[], None] = lambda: None
        self.before_append: Callable[[], ErrorCode | None] = lambda: None

    async def read_link(self) -> LinkView:
        self.reads += 1
        if not self.is_link_there:
            raise LinkMissing("site b has no link 'a-b'")
        return stand(self.record, "b")

    @property
    def role(self) -> LinkRole:
        return stand(self.record, "b").role

    def ends(self) -> MemoryEnds:
        return MemoryEnds(
            source=self.source,
            target=self.target,
            source_groups=self.source,
            target_groups=self.target,
            offsets_tail=self.offsets_tail,
            actor=self.target,
            quarantine=self.target,
            verifier=self.verifier,
            open_fetch=lambda: MemoryFetch(self.source, lambda: self.before_fetch()),
            open_append=lambda: MemoryAppend(self.target, lambda: self.before_append()),
            read_link=self.read_link,
            open_progress=lambda: MemoryProgress(self.reported),
        )

    def share(self) -> MemoryShare:
        return MemoryShare(self)

    def is_equal(self) -> bool:
        """Everything of the source is at the target, byte by byte."""
        return all(
            key in self.target.logs and self.target.logs[key].data == log.data for key, log in self.source.logs.items()
        )

    def is_prefix(self) -> bool:
        """M1."""
        return all(
            self.source.logs[key].data.startswith(log.data)
            for key, log in self.target.logs.items()
            if key in self.source.logs
        )
