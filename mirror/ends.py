"""The two ends of a link as the mirror uses them.

`mirror/exact_ends.py` and `mirror/translate_ends.py` implement `Ends`; tests implement it over
sites in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from mirror.admin.verifier import Verifier
from mirror.groups.group_report import AccessState
from mirror.link.core.topic_plan import NameAtTarget
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
from mirror.sharing.shares import Worker
from wire.control.mirror_pb2 import MirrorTransactions
from wire.protocol.ids import TopicPartition
from wire.protocol.streams.compressed_stream import CompressionTally


class EndsStatus(Struct, frozen=True, kw_only=True):
    """The state of a link's tasks other than its flows and groups."""

    acls: str = ""
    """The state of ACL mirroring for topics; empty if the link carries none."""
    mirror_maker: str = ""
    """The topics of MirrorMaker 2 that cannot be written, and the reason."""
    transactions: MirrorTransactions | None = None
    """The transactions at the target; None if the link writes none."""
    access: AccessState = field(default_factory=AccessState)
    """The access rules and configs of groups that are at the target, and the reasons why others are
    not; the report on groups includes them.
    """


class Ends(Protocol):
    """Both sites of a link, and the link's own tasks."""

    @property
    def source(self) -> SourcePort:
        """The topics and logs of the source."""
        ...

    @property
    def target(self) -> SitePort:
        """The topics and logs of the target, under the source's names and offsets."""
        ...

    @property
    def source_groups(self) -> GroupPort:
        """The consumer groups of the source."""
        ...

    @property
    def target_groups(self) -> GroupPort:
        """The consumer groups of the target."""
        ...

    @property
    def actor(self) -> TopicActor:
        """The interface through which topics at the target are created, changed and deleted."""
        ...

    @property
    def verifier(self) -> Verifier | None:
        """The comparison of both logs; None if this link has none."""
        ...

    @property
    def quarantine(self) -> QuarantinePort | None:
        """The keeper of records that are removed from copies; None if the mirror removes none."""
        ...

    @property
    def offsets_tail(self) -> OffsetsTail | None:
        """The end of the source's `__consumer_offsets`; None if the mirror does not follow it."""
        ...

    @property
    def tallies(self) -> Mapping[str, CompressionTally]:
        """The bytes that compressed connections save, by end."""
        ...

    @property
    def name_at_target(self) -> NameAtTarget | None:
        """The name of a topic's copy at a translate target, where only a person deletes copies;
        None on an exact link.
        """
        ...

    @property
    def is_exact(self) -> bool:
        """True if the target is a site of Antipode: it compares a repeated batch with the stored
        one, and stores the offset at which each copy begins (`flow/core/beginnings.py`).
        """
        ...

    @property
    def workers(self) -> Mapping[str, Worker]:
        """Further tasks of the link, by name."""
        ...

    def open_fetch(self) -> FetchPort:
        """Open a connection that reads partitions of the source."""
        ...

    def open_append(self) -> AppendPort:
        """Open a connection that appends to the target."""
        ...

    def open_reports(self) -> ReportPort | None:
        """Open a connection that reports idle partitions to the target; None if the target takes no
        such reports.
        """
        ...

    def open_progress(self) -> ProgressPort | None:
        """Open a connection that reports the target's progress to the source of a sync link; None
        if the link cannot be one.
        """
        ...

    async def read_link(self) -> LinkView:
        """Read the link's record. LinkMissing, AgentsUnreachable."""
        ...

    async def finish(self) -> None:
        """Save the link's state after all workers have ended."""
        ...

    def status(self) -> EndsStatus:
        """Return the state of the link's own tasks."""
        ...

    def surplus_records(self) -> Mapping[TopicPartition, int]:
        """Return the records at the target beyond one copy of each, by partition."""
        ...
