"""Compares the state of two sites other than their records: topics, partition counts, topic
configs, committed offsets of groups, ACLs, client quotas, SCRAM users, quarantined records. Pure.
Caller: dr/proof/surroundings.py.

This state does not decide whether the records are equal. It decides whether clients can continue
after a failover.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from wire.protocol.ids import PartitionKey
from wire.rules.acls import Acl
from wire.rules.topic_configs import COPY_BEGINS

OWN_CONFIGS: Final = frozenset(
    {
        COPY_BEGINS,
        *("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"),
    }
)
"""Configs of topics that each site keeps separately, so that mirrors do not copy them."""


class SurroundingKind(enum.StrEnum):
    """The kind of thing that differs."""

    ORPHAN = "orphan topic"
    PARTITIONS = "partition count"
    CONFIG = "topic config"
    GROUP = "group offset"
    ACL = "ACL"
    QUOTA = "client quota"
    USER = "SCRAM user"
    QUARANTINE = "quarantined records"


class SurroundingDifference(Struct, frozen=True, kw_only=True):
    """One item in which the sites differ; None means that the site does not have it."""

    kind: SurroundingKind
    name: str
    source: str | None
    target: str | None


class LogSpan(Struct, frozen=True, kw_only=True):
    """The offsets that a log holds: start included, end not."""

    start_offset: int
    end_offset: int

    def clamped(self, offset: int) -> int:
        """The offset, or the end of the span that is nearest to it."""
        return max(self.start_offset, min(offset, self.end_offset))


class QuarantinedRange(NamedTuple):
    """Records that were removed from a log; the end offset is not one of them."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int


class SiteSurroundings(Struct, frozen=True, kw_only=True):
    """The state of one site. `offsets` are committed ones by group and partition; `acls` is None if
    the site has no authorizer or does not list them, and `notes` give the reason. The same holds
    for `quotas` and `users`, each of which has its value as text. `quarantined` has the size
    (bytes) of each range of records that the site's brokers have removed from a log and keep.
    """

    partition_counts: Mapping[str, int] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    offsets: Mapping[tuple[str, PartitionKey], int] = field(default_factory=dict)
    groups_with_members: frozenset[str] = frozenset()
    acls: frozenset[Acl] | None = None
    quotas: Mapping[str, str] | None = None
    users: Mapping[str, str] | None = None
    quarantined: Mapping[QuarantinedRange, int] | None = None
    notes: tuple[str, ...] = ()


def compare_surroundings(
    source: SiteSurroundings, target: SiteSurroundings, target_spans: Mapping[PartitionKey, LogSpan]
) -> list[SurroundingDifference]:
    """The differences, by kind and name. Groups' offsets are compared in the form that mirrors
    write: limited to the range of the target's log, and not for groups with members at the target.
    """
    found = [*_topics(source.partition_counts, target.partition_counts), *_configs(source, target)]
    found += _groups(source, target, target_spans)
    if source.acls is not None and target.acls is not None:
        found += _acls(source.acls, target.acls)
    found += _values(SurroundingKind.QUOTA, source.quotas, target.quotas)
    found += _values(SurroundingKind.USER, source.users, target.users)
    found += _values(SurroundingKind.QUARANTINE, _kept(source), _kept(target))
    return found


def _topics(source: Mapping[str, int], target: Mapping[str, int]) -> Iterable[SurroundingDifference]:
    for name in sorted({*source, *target}):
        here, there = source.get(name), target.get(name)
        if here != there:
            is_orphan = here is None or there is None
            yield SurroundingDifference(
                kind=SurroundingKind.ORPHAN if is_orphan else SurroundingKind.PARTITIONS,
                name=name,
                source=_partitions(here),
                target=_partitions(there),
            )


def _partitions(count: int | None) -> str | None:
    return None if count is None else f"{count} partitions"


def _configs(source: SiteSurroundings, target: SiteSurroundings) -> Iterable[SurroundingDifference]:
    # A topic that one site lacks is named as an orphan; each of its configs would only repeat that.
    for topic in sorted(source.configs.keys() & target.configs.keys()):
        here, there = source.configs[topic], target.configs[topic]
        for name in sorted({*here, *there} - OWN_CONFIGS):
            if here.get(name) != there.get(name):
                yield SurroundingDifference(
                    kind=SurroundingKind.CONFIG,
                    name=f"{topic} {name}",
                    source=here.get(name),
                    target=there.get(name),
                )


def _groups(
    source: SiteSurroundings, target: SiteSurroundings, spans: Mapping[PartitionKey, LogSpan]
) -> Iterable[SurroundingDifference]:
    # Offsets that only the target has are not named: a mirror removes them there only after the
    # source has been without them for a minute.
    for (group, place), offset in sorted(source.offsets.items()):
        there, span = target.offsets.get((group, place)), spans.get(place)
        if group in target.groups_with_members or span is None:
            continue
        if there is None or span.clamped(there) != span.clamped(offset):
            yield SurroundingDifference(
                kind=SurroundingKind.GROUP,
                name=f"{group} {place[0]}-{place[1]}",
                source=str(offset),
                target=None if there is None else str(there),
            )


def _acls(source: Collection[Acl], target: Collection[Acl]) -> Iterable[SurroundingDifference]:
    only_source, only_target = sorted(set(source) - set(target)), sorted(set(target) - set(source))
    for acl in only_source:
        yield SurroundingDifference(kind=SurroundingKind.ACL, name=str(acl), source="there", target=None)
    for acl in only_target:
        yield SurroundingDifference(kind=SurroundingKind.ACL, name=str(acl), source=None, target="there")


def _values(
    kind: SurroundingKind, source: Mapping[str, str] | None, target: Mapping[str, str] | None
) -> Iterable[SurroundingDifference]:
    if source is None or target is None:
        return
    for name in sorted({*source, *target}):
        if source.get(name) != target.get(name):
            yield SurroundingDifference(kind=kind, name=name, source=source.get(name), target=target.get(name))


def _kept(site: SiteSurroundings) -> Mapping[str, str] | None:
    """The quarantined ranges by name, each with its size. A range of a topic that the site lacks is
    an orphan: its records belong to no log of the site.
    """
    if site.quarantined is None:
        return None
    return {
        f"{kept.topic}-{kept.partition} offsets {kept.first_offset} to {kept.end_offset - 1}": (
            f"{size_bytes} bytes" if kept.topic in site.partition_counts else f"{size_bytes} bytes, orphan"
        )
        for kept, size_bytes in site.quarantined.items()
    }
