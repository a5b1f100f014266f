"""Offsets of consumer groups in a failover: a site's offsets, those of the source that the target
lacks, and their account.

The mirror carries them separately from the records, so a drain does not end with the records. They
are compared in the form that the mirror writes: limited to the range of the target's log, and not
for groups with members at the target. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from dr.sites.core.evidence import GroupPartition, SiteGroups
from dr.sites.core.positions import PartitionPosition
from wire.protocol.ids import UNKNOWN, TopicPartition

NAMED_MAX = 20
"""Maximum number of offsets that an account names; further ones are counted."""


class OffsetBehind(NamedTuple):
    """An offset that differs at the target from the source's; `target` is None if the target has no
    offset.
    """

    place: GroupPartition
    source: int
    target: int | None

    def __str__(self) -> str:
        group, topic, partition = self.place
        has = "nothing" if self.target is None else str(self.target)
        return f"group {group}, {topic}-{partition}: {self.source} there, {has} here"


class GroupLoss(Struct, frozen=True, kw_only=True):
    """The part of an account that is about groups. `last_contact_ms` is the time since everything
    was carried; UNKNOWN without a report.
    """

    known_lost_offsets: int
    is_exact: bool
    last_contact_ms: int
    named: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Describe the groups' offsets for the operator."""
        if self.is_exact:
            if not self.known_lost_offsets:
                return "groups: every offset that was committed before the fence is kept"
            return (
                f"groups: {self.known_lost_offsets} offsets are not as the old site has them ({'; '.join(self.named)})"
            )
        if self.last_contact_ms == UNKNOWN:
            return "groups: the age of their offsets is unknown; commits that were not mirrored are lost"
        return (
            f"groups: the mirror last copied all offsets {self.last_contact_ms} ms before the account; "
            f"later commits at the old site are lost"
        )


def offsets_behind(
    source: SiteGroups, target: SiteGroups, ends: Mapping[TopicPartition, PartitionPosition], *, is_routed: bool
) -> tuple[OffsetBehind, ...]:
    """The source's offsets that the target lacks; on a link that is not routed, a target that is
    further ahead has them.
    """
    found = []
    for place, offset in sorted(source.offsets.items()):
        if place.group in target.with_members:
            continue
        here = target.offsets.get(place)
        position = ends.get(TopicPartition(place.topic, place.partition))
        if here is None or position is None:
            found.append(OffsetBehind(place, offset, here))
            continue
        # a mirror carries an offset outside the copy as the copy's nearest end
        wanted, kept = _clamped(offset, position), _clamped(here, position)
        # a routed group moves with the link: a higher offset here would skip records
        if kept < wanted or (is_routed and kept > wanted):
            found.append(OffsetBehind(place, offset, here))
    return tuple(found)


def _clamped(offset: int, position: PartitionPosition) -> int:
    return max(position.log_start_offset, min(offset, position.log_end_offset))


def group_loss(
    source: SiteGroups | None,
    target: SiteGroups,
    ends: Mapping[TopicPartition, PartitionPosition],
    *,
    is_fenced: bool,
    is_routed: bool,
    now_ms: int,
) -> GroupLoss:
    """The account of the groups; `source` is the source's last answer, under a fence or not, None
    if there is none.
    """
    behind = () if source is None else offsets_behind(source, target, ends, is_routed=is_routed)
    is_whole = source is not None and not (
        source.problems or source.transaction_problems or source.committing_transactions or target.problems
    )
    synced_at_ms = target.synced_at_ms
    return GroupLoss(
        known_lost_offsets=len(behind),
        is_exact=is_fenced and is_whole,
        last_contact_ms=UNKNOWN if synced_at_ms == UNKNOWN else max(0, now_ms - synced_at_ms),
        named=_named(behind),
    )


def _named(behind: Iterable[OffsetBehind]) -> tuple[str, ...]:
    return tuple(str(item) for item in behind)[:NAMED_MAX]
