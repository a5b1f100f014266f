"""Compares the sites of an exact link by the digests that their brokers keep. If the sites are
equal, this transfers a few kilobytes; otherwise the report names the batches that differ.

The digests cover batch headers, including the checksums. A bit of a batch's body that changed on
disk under its old checksum goes unnoticed; reading the logs finds it (`antipode reconcile`).

Caller: `antipode reconcile --quick`. `core/descent.py` and `core/equality.py` decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from dr.proof.core.descent import Descent, Difference, DifferenceKind
from dr.proof.core.equality import (
    DamagedFollower,
    DamagedLog,
    EqualityReport,
    LogExtent,
    PartitionEquality,
    compared_range,
    differences_of_ends,
)
from dr.proof.site_digests import SiteDigests, new_client
from runtime.clock import Clock
from wire.client.cluster_metadata import TopicMetadata
from wire.client.requests.range_digest_requests import RangeContent, RangeQuery
from wire.protocol.ids import PartitionKey
from wire.rules.links import matches
from wire.rules.topic_names import is_internal_topic

SETTLE_POLL_S: Final = 0.1
FOLLOWS_WITHIN_MS: Final = 2_000
"""Time for a source that follows the target to get what the target has. Records that clients wrote
at the target alone cost this time.
"""
RESTARTS_MAX: Final = 3
"""Maximum number of restarts of a partition because retention has moved its log start."""

Progress = Callable[[str], None]


class ComparisonRequest(Struct, frozen=True, kw_only=True):
    """The two sites, their bootstrap addresses, and the topics to compare."""

    source_site: str
    target_site: str
    source_bootstrap: str
    target_bootstrap: str
    topic_whitelist: Sequence[str] = (".*",)
    topic_blacklist: Sequence[str] = ()
    settle_timeout_ms: int = 10_000
    is_lag_a_difference: bool = True
    """False: records and topics that the target has not received yet are ignored."""


async def compare_sites(
    request: ComparisonRequest, clock: Clock, progress: Progress = lambda _: None
) -> EqualityReport:
    """Compare the sites. Raises OperationalFailure when a site does not answer or keeps no
    digests.
    """
    async with new_client(request.source_bootstrap) as source, new_client(request.target_bootstrap) as target:
        return await _Comparison(
            request,
            SiteDigests(request.source_site, source, clock, progress),
            SiteDigests(request.target_site, target, clock, progress),
            clock,
            progress,
        ).run()


class _Partition(Struct):
    """The state of one partition, and its running descent."""

    source: LogExtent
    target: LogExtent
    source_end_offset: int
    descent: Descent
    ends: list[Difference]

    def equality(self, key: PartitionKey) -> PartitionEquality:
        found = (*self.descent.differences, *self.ends)
        return PartitionEquality(
            topic=key[0],
            partition=key[1],
            source=self.source,
            target=self.target,
            source_end_offset=self.source_end_offset,
            first_offset=self.descent.first_offset,
            end_offset=self.descent.end_offset,
            differences=tuple(sorted(found, key=lambda one: (one.first_offset, one.last_offset))),
            unnamed=self.descent.unnamed,
        )


class _Comparison:
    """One run."""

    def __init__(
        self, request: ComparisonRequest, source: SiteDigests, target: SiteDigests, clock: Clock, progress: Progress
    ) -> None:
        self._request = request
        self._source = source
        self._target = target
        self._clock = clock
        self._progress = progress
        self._problems: dict[str, None] = {}
        self._notes: list[str] = []
        self._damaged: dict[DamagedLog, None] = {}
        self._damaged_followers: list[DamagedFollower] = []
        self._partitions: dict[PartitionKey, _Partition] = {}
        self._found: list[PartitionEquality] = []
        self._leaf_offsets = 0

    async def run(self) -> EqualityReport:
        started_ms, compared_at_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        keys = await self._keys()
        await self._begin(keys)
        await self._descend()
        await asyncio.gather(self._look_at_followers(self._source), self._look_at_followers(self._target))
        self._found += [one.equality(key) for key, one in self._partitions.items()]
        return EqualityReport(
            source_site=self._request.source_site,
            target_site=self._request.target_site,
            partitions=tuple(sorted(self._found, key=lambda one: (one.topic, one.partition))),
            problems=tuple(self._problems),
            notes=tuple(self._notes),
            compared_at_ms=compared_at_ms,
            elapsed_ms=round(self._clock.monotonic_ms() - started_ms),
            damaged=tuple(self._damaged),
            damaged_followers=tuple(self._damaged_followers),
        )

    async def _keys(self) -> list[PartitionKey]:
        """The partitions that both sites have. Partitions that only one site has are reported as
        differences.
        """
        source, target = await asyncio.gather(self._source.topics(), self._target.topics())
        wanted = sorted(filter(self._is_wanted, {*source, *target}))
        if not wanted and self._request.is_lag_a_difference:
            there = ", ".join(sorted(name for name in source if not is_internal_topic(name))) or "none"
            self._problems[f"the filters match no topic; topics of site {self._source.site}: {there}"] = None
        keys: list[PartitionKey] = []
        for name in wanted:
            mine, other = _partitions_of(source, name), _partitions_of(target, name)
            # A note and no problem: topics with different ids can still be compared by content.
            if mine and other and source[name].topic_id != target[name].topic_id:
                self._notes.append(
                    f"topic {name} has the id {source[name].topic_id} at site {self._source.site} and "
                    f"{target[name].topic_id} at site {self._target.site}: one of them is not the copy of an exact link"
                )
            keys += [(name, partition) for partition in sorted(mine & other)]
            await self._note_orphans(self._source, DifferenceKind.MISSING, name, mine - other)
            await self._note_orphans(self._target, DifferenceKind.EXTRA, name, other - mine)
        return keys

    def _is_wanted(self, topic: str) -> bool:
        request = self._request
        return not is_internal_topic(topic) and matches(
            topic, whitelist=request.topic_whitelist, blacklist=request.topic_blacklist
        )

    async def _note_orphans(
        self, site: SiteDigests, kind: DifferenceKind, topic: str, partitions: Iterable[int]
    ) -> None:
        """Report partitions that only one site has: a difference, unless the topic is still to be
        created or deleted at the target.
        """
        is_source = site is self._source
        if not is_source and not self._request.is_lag_a_difference:
            return
        other = self._target if is_source else self._source
        extents = await self._extents(site, [(topic, partition) for partition in sorted(partitions)])
        for (name, partition), extent in extents.items():
            found = Difference(
                kind=kind,
                first_offset=extent.log_start_offset,
                last_offset=max(extent.high_watermark - 1, extent.log_start_offset),
                detail=f"site {other.site} does not have the partition",
            )
            self._found.append(
                PartitionEquality(
                    topic=name,
                    partition=partition,
                    source=extent if is_source else None,
                    target=None if is_source else extent,
                    source_end_offset=extent.high_watermark if is_source else 0,
                    first_offset=extent.log_start_offset,
                    end_offset=extent.log_start_offset,
                    differences=(found,) if self._request.is_lag_a_difference else (),
                )
            )

    async def _begin(self, keys: Sequence[PartitionKey]) -> None:
        """Read the starts and ends of both sites' logs. The source is asked before and after the
        target, and the target gets time to reach the source's earlier end. So does a source that
        follows the target, as after a failover of the link.
        """
        self._progress(f"comparing {len(keys)} partitions")
        before = await self._extents(self._source, keys)
        # A compacted or damaged log of the source is not compared; the target's may be damaged too.
        await self._extents(self._target, [key for key in keys if key not in before])
        timeout_ms = self._request.settle_timeout_ms
        target = await self._settled(self._target, before, timeout_ms)
        # The source is read again, so that records which arrived during the wait are not reported
        # as extra.
        after = await self._settled(self._source, target, min(timeout_ms, FOLLOWS_WITHIN_MS))
        for key in after:
            ends = differences_of_ends(source_before=before[key], source_after=after[key], target=target[key])
            if not self._request.is_lag_a_difference:
                ends = [one for one in ends if one.kind is not DifferenceKind.MISSING]
            self._partitions[key] = self._partition(after[key], target[key], before[key].high_watermark, ends)

    def _partition(
        self, source: LogExtent, target: LogExtent, source_end_offset: int, ends: list[Difference]
    ) -> _Partition:
        first, end = compared_range(source, target)
        descent = Descent(first_offset=first, end_offset=end, leaf_offsets=self._leaf_offsets)
        return _Partition(source, target, source_end_offset, descent, ends)

    async def _settled(
        self, site: SiteDigests, wanted: Mapping[PartitionKey, LogExtent], timeout_ms: int
    ) -> dict[PartitionKey, LogExtent]:
        """The site's ends when they have reached the wanted ones, or when time is up."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        found = await self._extents(site, list(wanted))
        while (
            behind := [key for key, one in found.items() if one.high_watermark < wanted[key].high_watermark]
        ) and self._clock.monotonic_ms() < deadline_ms:
            self._progress(f"site {site.site} is behind in {len(behind)} partitions")
            await asyncio.sleep(SETTLE_POLL_S)
            found |= await self._extents(site, behind)
        return found

    async def _extents(self, site: SiteDigests, keys: Sequence[PartitionKey]) -> dict[PartitionKey, LogExtent]:
        """The extents of the logs; partitions that cannot be compared are recorded and left out."""
        answers = await site.ask([RangeQuery(*key) for key in keys])
        found: dict[PartitionKey, LogExtent] = {}
        for query, content in answers.items():
            key = (query.topic, query.partition)
            if content.error_code is not ErrorCode.none:
                self._give_up(site, key, content)
            elif self._has_same_leaves(content):
                found[key] = LogExtent(log_start_offset=content.log_start_offset, high_watermark=content.high_watermark)
        return found

    def _has_same_leaves(self, content: RangeContent) -> bool:
        self._leaf_offsets = self._leaf_offsets or content.leaf_offsets
        if content.leaf_offsets == self._leaf_offsets:
            return True
        self._problems[
            f"the sites' digests have leaves of {self._leaf_offsets} and {content.leaf_offsets} offsets: "
            "their releases differ, compare without --quick"
        ] = None
        return False

    def _give_up(self, site: SiteDigests, key: PartitionKey, content: RangeContent) -> None:
        """Record that the partition is not compared, because of its topic's kind or because of a
        problem.
        """
        self._partitions.pop(key, None)
        reason = content.error_message or content.error_code.name
        if content.error_code is ErrorCode.invalid_record:
            self._damaged[DamagedLog(topic=key[0], partition=key[1], site=site.site)] = None
        # Brokers answer with this code for compacted topics: each site compacts on its own, so
        # their batches differ without a fault.
        if content.error_code is not ErrorCode.unsupported_for_message_format:
            self._problems[f"{key[0]}-{key[1]} at site {site.site}: {reason}"] = None
        elif not any((one.topic, one.partition) == key for one in self._found):
            self._found.append(
                PartitionEquality(topic=key[0], partition=key[1], source=None, target=None, not_compared=reason)
            )

    async def _look_at_followers(self, site: SiteDigests) -> None:
        """Record damage on the disks of followers: leaders name their own with the digests."""
        replicas, notes = await site.damaged_replicas()
        self._notes += notes
        for one in replicas:
            if one.is_leader or not self._is_wanted(one.topic):
                continue
            found = DamagedFollower(
                topic=one.topic,
                partition=one.partition,
                site=site.site,
                node_id=one.node_id,
                base_offset=one.base_offset,
                last_offset=one.last_offset,
                reason=one.reason,
            )
            self._damaged_followers.append(found)
            self._problems[str(found)] = None

    async def _descend(self) -> None:
        restarts = 0
        # All partitions descend together, so that a round costs one request for each broker.
        while open_keys := [key for key, one in self._partitions.items() if one.descent.questions()]:
            queries = [
                RangeQuery(*key, *question)
                for key in open_keys
                for question in self._partitions[key].descent.questions()
            ]
            source, target = await asyncio.gather(self._source.ask(queries), self._target.ask(queries))
            moved = [key for key in open_keys if not self._take(key, source, target)]
            restarts += bool(moved)
            await self._begin_again(moved, is_last=restarts > RESTARTS_MAX)

    def _take(
        self,
        key: PartitionKey,
        source: Mapping[RangeQuery, RangeContent],
        target: Mapping[RangeQuery, RangeContent],
    ) -> bool:
        """Process the answers for one partition; False if retention has meanwhile moved the start
        of its log into the range.
        """
        one = self._partitions[key]
        answers = {}
        for question in one.descent.questions():
            query = RangeQuery(*key, *question)
            for site, content in ((self._source, source[query]), (self._target, target[query])):
                if content.error_code is ErrorCode.offset_out_of_range:
                    return False
                if content.error_code is not ErrorCode.none:
                    self._give_up(site, key, content)
                    return True
            answers[question] = (source[query].content, target[query].content)
        one.descent.take(answers)
        return True

    async def _begin_again(self, keys: Sequence[PartitionKey], *, is_last: bool) -> None:
        former = {key: self._partitions.pop(key) for key in keys}
        if is_last:
            for topic, partition in keys:
                self._problems[f"{topic}-{partition}: its log changes during the comparison, compare again"] = None
            return
        source, target = await asyncio.gather(
            self._extents(self._source, list(keys)), self._extents(self._target, list(keys))
        )
        for key in source.keys() & target.keys():
            was = former[key]
            self._partitions[key] = self._partition(source[key], target[key], was.source_end_offset, was.ends)


def _partitions_of(topics: Mapping[str, TopicMetadata], name: str) -> set[int]:
    return set(topics[name].partitions) if name in topics else set()
