"""Chooses the offsets of a partition that are compared, and divides them into pieces that executors
read side by side. Pure.

Offsets here are those of logs: a start is included, an end is not. The ends of the source are taken
first; then the target is given time to reach them; then the target's ends and the source's again.
Records of the target beyond the source's latest end are extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from spark_jobs.logs.core.splits import SPLIT_OFFSETS_MIN, SPLITS_PER_CORE, LogEnds, Split, pieces
from spark_jobs.reconciling.core.findings import Explanation, ExplanationKind
from wire.protocol.ids import PartitionKey

RANGE_OFFSETS_MIN = 1_000
RANGES_PER_PARTITION_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """One partition's part in a comparison: both sites are read from `first_offset`, each up to its
    own end.
    """

    topic: str
    partition: int
    first_offset: int
    source: LogEnds
    target: LogEnds
    source_until: int
    target_until: int

    @property
    def offsets(self) -> int:
        """The largest number of offsets that it spans."""
        return max(self.source_until, self.target_until, self.first_offset) - self.first_offset


def bounded(ends: Mapping[PartitionKey, LogEnds], bounds: Mapping[PartitionKey, int]) -> dict[PartitionKey, LogEnds]:
    """The ends as if the logs that have a bound ended there."""
    return {
        key: replace(one, end_offset=max(one.start_offset, min(one.end_offset, bounds.get(key, one.end_offset))))
        for key, one in ends.items()
    }


def extents(
    snapshot: Mapping[PartitionKey, LogEnds],
    target: Mapping[PartitionKey, LogEnds],
    latest: Mapping[PartitionKey, LogEnds],
) -> list[Extent]:
    """The extents to compare, from the ends of the source, the target, and the source again."""
    found = []
    for topic, partition in sorted({*snapshot, *latest, *target}):
        key = (topic, partition)
        theirs = target.get(key, LogEnds())
        newest = latest.get(key, snapshot.get(key, LogEnds()))
        wanted = snapshot.get(key, newest)
        # A target that ends beyond the source's newest end has its own records, so both logs are
        # read completely.
        is_ahead = theirs.end_offset > newest.end_offset
        source_until = newest.end_offset if is_ahead else wanted.end_offset
        # The start of an empty log means nothing; without this the other log's first records would
        # look expired.
        starts = [ends.start_offset for ends in (newest, theirs) if ends.end_offset > 0]
        found.append(
            Extent(
                topic=topic,
                partition=partition,
                first_offset=max(starts, default=0),
                source=LogEnds(start_offset=newest.start_offset, end_offset=max(source_until, wanted.end_offset)),
                target=theirs,
                source_until=source_until,
                target_until=theirs.end_offset if is_ahead else min(theirs.end_offset, wanted.end_offset),
            )
        )
    return found


def expired(found: Iterable[Extent], *, source_site: str, target_site: str) -> list[Explanation]:
    """Offsets that only one site still has, because the other one's log starts later."""
    explanations = []
    for extent in found:
        starts = {source_site: extent.source.start_offset, target_site: extent.target.start_offset}
        later = max(starts, key=lambda site: starts[site])
        earlier = min(starts.values())
        if extent.source.end_offset == 0 or extent.target.end_offset == 0 or earlier == starts[later]:
            continue
        explanations.append(
            Explanation(
                topic=extent.topic,
                partition=extent.partition,
                kind=ExplanationKind.EXPIRED,
                first_offset=earlier,
                last_offset=starts[later] - 1,
                site=later,
                detail=f"the log at {later} starts at {starts[later]}",
            )
        )
    return explanations


def range_size(found: Iterable[Extent], wanted: int) -> int:
    """Offsets in one range: as wanted, or (0) such that no partition has more ranges than a person
    can look at.
    """
    if wanted:
        return wanted
    longest = max((extent.offsets for extent in found), default=0)
    size = RANGE_OFFSETS_MIN
    while longest > size * RANGES_PER_PARTITION_MAX:
        size *= 10
    return size


def splits(found: Iterable[Extent], *, source_site: str, target_site: str, cores: int) -> list[Split]:
    """Pieces of about equal length, a few for each core, those of both sites in turn."""
    all_of_them = list(found)
    total = 2 * sum(extent.offsets for extent in all_of_them)
    length = max(SPLIT_OFFSETS_MIN, -(-total // (cores * SPLITS_PER_CORE)))
    found_pieces: list[Split] = []
    for extent in all_of_them:
        key = (extent.topic, extent.partition)
        for site, until in ((source_site, extent.source_until), (target_site, extent.target_until)):
            found_pieces += pieces(site, key, first=extent.first_offset, until=until, length=length)
    return found_pieces
