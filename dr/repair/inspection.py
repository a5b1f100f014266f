"""Reads the batches and checksums of both sites around suspected offsets, one window of offsets at
a time, and passes them to the judge. It stops at the end of the suspected offsets, or after an
order that truncates the partition.

It also finds damaged batches in a log: a broker does not name them, but refuses digests of ranges
that contain one. Caller: `execution.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from clients.reader.single_fetches import fetch_at_leader, fetch_at_node, records_of
from dr.proof.site_digests import SiteDigests
from dr.repair.core.leaders import damaged_batches, judge_leader
from dr.repair.core.orders import Judged, LogBatch, LogPart, RepairSides, ReplaceBatch, judge_partition
from dr.repair.core.suspects import Suspect
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from wire.batches.record_batch import InvalidBatch, iterate_headers, verify_crc
from wire.client.client_errors import TRANSIENT, BrokerError, KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch
from wire.client.requests.range_digest_requests import RangeQuery
from wire.protocol.ids import DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, REPLICA_READER, PartitionKey

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of one read from a site."""
RETRY_BUDGET_MS: Final = 20_000
RANGES_MAX: Final = 64
"""Maximum number of damaged ranges that are narrowed further; others are read whole."""
OFFSETS_MIN: Final = 4096
"""A damaged range of this size is read and not narrowed further."""


class Site(Struct, frozen=True, kw_only=True):
    """A site's name and client; the caller owns the client."""

    name: str
    client: KafkaClient


async def judged_offsets(
    key: PartitionKey, first: int, last: int, *, active: Site, standby: Site, sides: RepairSides
) -> list[Judged]:
    """Judge the partition's suspected offsets, both included. Raises OperationalFailure when a site
    does not answer.
    """
    found: list[Judged] = []
    # The standby is asked first: what it has by then the active site has too, if it is healthy.
    # Records that are written and mirrored after that are not judged, or they would seem extra.
    last = min(last, max([await _end_offset(site, key) for site in (standby, active)]) - 1)
    at = first
    while at <= last:
        mine = await _part(active, key, at, last + 1)
        # The standby is read at least as far as the window of the active site reaches, so that the
        # judge never takes offsets that were not read for missing ones. An answer ends with a
        # segment, and the sites' segments differ: the same number of bytes is no measure for it.
        reached = mine.batches[-1].last_offset + 1 if mine.batches else at
        end = last + 1 if mine.broken_at >= 0 or not mine.batches else reached
        copy = await _part(standby, key, at, end, whole_until=reached)
        mine, orders = await _healed_by_followers(active, key, mine)
        copy, more = await _healed_by_followers(standby, key, copy)
        if not mine.batches and mine.broken_at < 0 and copy.batches:
            end = copy.batches[-1].last_offset + 1
        judged = judge_partition(*key, mine, copy, sides)
        found += [*orders, *more, *judged]
        if any(not isinstance(one, ReplaceBatch) for one in judged) or not (mine.batches or copy.batches):
            break
        at = end
    return found


async def batch_at(site: Site, key: PartitionKey, offset: int) -> LogBatch | None:
    """The batch that begins at the offset in the log of the site's leader; None if there is none,
    or if the leader cannot read it. OperationalFailure.
    """
    part = await _part(site, key, offset, offset + 1)
    return next((batch for batch in part.batches if batch.base_offset == offset), None)


async def _healed_by_followers(site: Site, key: PartitionKey, part: LogPart) -> tuple[LogPart, list[ReplaceBatch]]:
    """The leader's part after its damaged batches are replaced by those of followers of its site,
    and the orders for that.
    """
    damaged = damaged_batches(part)
    if not damaged:
        return part, []
    try:
        cluster = await site.client.metadata([key[0]])
        partition = cluster.topics[key[0]].partitions[key[1]]
        nodes = [node for node in partition.replicas if node != partition.leader_id and node in cluster.brokers]
        offered = {
            one.base_offset: [(node, batch) for node in nodes for batch in await _at_follower(site, key, node, one)]
            for one in damaged
        }
    except KafkaClientError as error:
        raise OperationalFailure(f"site {site.name} does not answer for {key[0]}-{key[1]}: {error}") from error
    return judge_leader(key, site.name, part, offered)


async def _at_follower(site: Site, key: PartitionKey, node: int, wanted: LogBatch) -> list[LogBatch]:
    """The batch that the follower holds at the offset of the wanted one; empty if it does not
    answer with one.
    """
    at = PartitionToFetch(key[1], wanted.base_offset, len(wanted.content))
    limits = FetchRequest([], max_wait_ms=0, replica_id=REPLICA_READER)
    try:
        content = records_of(await fetch_at_node(site.client, node, key[0], at, limits))
        return [batch for batch in _batches(content, wanted.base_offset) if batch.base_offset == wanted.base_offset]
    except (InvalidBatch, KafkaClientError):
        # a follower that is down or damaged itself: another replica may have the batch
        return []


async def _end_offset(site: Site, key: PartitionKey) -> int:
    try:
        return (await site.client.offsets_at([key], LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER))[key]
    except KafkaClientError as error:
        raise OperationalFailure(f"site {site.name} does not answer for {key[0]}-{key[1]}: {error}") from error


async def _part(site: Site, key: PartitionKey, first: int, end: int, *, whole_until: int = 0) -> LogPart:
    """The batches that begin between the two offsets (end not included), as far as one window
    reaches, and all of those below `whole_until`.
    """
    try:
        starts = await site.client.offsets_at([key], EARLIEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
        ends = await site.client.offsets_at([key], LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
        part = LogPart(start_offset=starts[key], end_offset=ends[key])
        at, size_bytes = max(first, part.start_offset), 0
        batches: list[LogBatch] = []
        while at < min(end, part.end_offset) and (size_bytes < WINDOW_BYTES or at < whole_until):
            try:
                content = await _fetched(site.client, key, at)
                more = _batches(content, at)
            except (InvalidBatch, _Damaged):
                return replace(part, batches=tuple(batches), broken_at=at)
            batches += [one for one in more if one.base_offset < end]
            if not more or more[-1].last_offset + 1 <= at:
                break
            at = more[-1].last_offset + 1
            size_bytes += len(content)
    except KafkaClientError as error:
        raise OperationalFailure(f"site {site.name} does not answer for {key[0]}-{key[1]}: {error}") from error
    return replace(part, batches=tuple(batches))


class _Damaged(Exception):
    """The leader cannot read its own log at this offset."""


async def _fetched(client: KafkaClient, key: PartitionKey, offset: int) -> memoryview:
    async for attempt in jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS):
        with attempt:
            try:
                fetched = await fetch_at_leader(
                    client, key, offset, max_bytes=WINDOW_BYTES, replica_id=DEBUGGING_CONSUMER
                )
            except BrokerError as error:
                if error.code in (ErrorCode.corrupt_message, ErrorCode.kafka_storage_error):
                    raise _Damaged from error
                raise
    return records_of(fetched)


def _batches(content: memoryview, offset: int) -> list[LogBatch]:
    """The batches from the offset on. Raises InvalidBatch when the first bytes are none."""
    found: list[LogBatch] = []
    try:
        for position, header in iterate_headers(content, may_end_in_partial=True):
            if header.next_offset <= offset:
                continue
            found.append(
                LogBatch(
                    base_offset=header.base_offset,
                    last_offset=header.last_offset,
                    leader_epoch=header.partition_leader_epoch,
                    content=bytes(content[position : position + header.size_bytes]),
                    is_sound=verify_crc(content, position, header),
                )
            )
    except InvalidBatch:
        if not found:
            raise
    return found


async def damaged_ranges(digests: SiteDigests, key: PartitionKey) -> list[Suspect]:
    """Find damaged batches in the log of one site's leader. Ranges whose digest the leader answers
    with INVALID_RECORD are halved until they are small. OperationalFailure.
    """
    (whole,) = (await digests.ask([RangeQuery(*key)])).values()
    # Without the ends of the log there is nothing to halve: all offsets are suspected.
    if whole.error_code is not ErrorCode.none:
        return [Suspect(*key, 0, 2**62)]
    ranges = [(whole.log_start_offset, whole.high_watermark)]
    while len(ranges) < RANGES_MAX and any(end - first > OFFSETS_MIN for first, end in ranges):
        halves = [half for one in ranges for half in _halves(*one)]
        answers = await digests.ask([RangeQuery(*key, first, end) for first, end in halves])
        narrowed = [
            (query.first_offset, query.end_offset)
            for query, answer in answers.items()
            if answer.error_code is not ErrorCode.none
        ]
        # No half is damaged any longer, or no range can be halved: the last ranges stay suspected.
        if not narrowed or sorted(narrowed) == sorted(ranges):
            break
        ranges = narrowed
    return [Suspect(*key, first, end - 1) for first, end in sorted(ranges) if end > first]


def _halves(first: int, end: int) -> Sequence[tuple[int, int]]:
    if end - first <= OFFSETS_MIN:
        return [(first, end)]
    middle = (first + end) // 2
    return [(first, middle), (middle, end)]
