"""The mirror's view of the groups of a site, as Protocols: their offsets and their configs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from mirror.link.core.committed_offsets import GroupOffset, LastInSync
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import SyncReport


class GroupStates(Struct, frozen=True):
    """Groups by id with their state (`Stable`, `Empty`, ...), and the brokers that could not be
    asked, with the reason.
    """

    by_group: Mapping[str, str]
    problems: Mapping[str, str] = field(default_factory=dict)


class GroupReading(Struct, frozen=True):
    """Committed offsets by group, and the groups that could not be asked, with the reason."""

    by_group: Mapping[str, Mapping[TopicPartition, GroupOffset]]
    problems: Mapping[str, str] = field(default_factory=dict)
    # At a target that gets `note_in_sync`: the notes of these groups.
    last_in_sync: Mapping[str, Mapping[TopicPartition, LastInSync]] = field(default_factory=dict)
    # At a source: offsets that a link in the other direction brought from the target.
    from_target: Mapping[str, Collection[TopicPartition]] = field(default_factory=dict)


class OffsetsTail(Protocol):
    """The end of a source's `__consumer_offsets`, read as it grows.

    Everything that breaks the order of a partition (another leader, a log that begins later or ends
    earlier, an error) ends the tail: `read` raises Unreachable, and `begin` is called again.
    """

    async def begin(self) -> None:
        """Start at the last stable offset of each partition. Raises Unreachable when one cannot be
        read, or when the source does not have the topic.
        """
        ...

    async def read(self, *, max_wait_ms: float) -> Sequence[tuple[int, bytes]]:
        """Whole batches by partition, in the order of each log; empty after `max_wait_ms`."""
        ...

    async def read_to_end(self) -> Sequence[tuple[int, bytes]]:
        """Read all records that the partitions have at the time of the call."""
        ...

    @property
    def complete_at_ms(self) -> float:
        """The monotonic time as of which every record has been read; the start of the clock before
        the first read.
        """
        ...

    def stop(self) -> None:
        """Read no further until `begin`."""
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


class ConfigRefused(Exception):
    """The site does not take a config."""


class GroupConfigPort(Protocol):
    """The configs of groups at one site."""

    async def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The configs of each group. Raises Unreachable when the site does not answer."""
        ...

    async def alter_group_configs(
        self, group: str, *, to_set: Mapping[str, str], to_remove: Sequence[str], link: str, link_epoch: int
    ) -> None:
        """Set and remove configs of a group as the link's mirror. ConfigRefused; Unreachable, also
        when the site is not the link's standby at the epoch.
        """
        ...


class GroupPort(Protocol):
    """The consumer groups of one site."""

    async def groups(self) -> GroupStates:
        """All groups of the brokers that answer. Unreachable when none does."""
        ...

    async def offsets(self, group: str) -> Mapping[TopicPartition, GroupOffset]:
        """All committed offsets of a group."""
        ...

    async def offsets_of(self, groups: Sequence[str]) -> GroupReading:
        """Return all committed offsets of several groups at once; the answer lacks a group whose
        coordinator is moving.
        """
        ...

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, GroupOffset], *, link: str, link_epoch: int
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Write offsets as the link's mirror, and remove those of a `removal_of`; the outcome by
        partition.
        """
        ...

    @property
    def keeps_offsets(self) -> bool:
        """True if offsets do not expire at this site, and it knows which ones mirrors have
        written.
        """
        ...

    async def carried(
        self, groups: Sequence[str], *, link: str, link_epoch: int
    ) -> Mapping[str, Mapping[TopicPartition, GroupOffset]]:
        """Of these groups, the offsets that mirrors of the link have written at this epoch and that
        are unchanged since. The answer lacks groups whose coordinator does not answer. Raises
        Unreachable.
        """
        ...

    def note_in_sync(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """The source has these offsets, and the group had the matching ones at the target at the
        last read; a site may keep that for the next daemon.
        """
        ...

    async def outgrown(self, carried: Mapping[str, Mapping[TopicPartition, GroupOffset]]) -> Sequence[str]:
        """The groups whose offsets were carried and that would get higher offsets by the target's
        current state. Raises Unreachable.
        """
        ...

    async def send_report(self, report: SyncReport, *, link: str, link_epoch: int) -> None:
        """Report the time up to which this daemon has carried every offset of its part of the link,
        and what it cannot carry, for the account of a failover.
        """
        ...
