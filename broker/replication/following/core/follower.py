"""The rules by which a follower applies its leader's responses: where to truncate, where to
continue. Pure.

Logs of two replicas are equal up to the end of the last leader epoch that both have (KIP-101,
KIP-279). A fetch names the epoch of the follower's last batch; if that epoch has another end at the
leader, the leader answers with that end instead of records. This module also decides whether a
response is outdated. Called by `replica_fetcher.py`.
"""

from __future__ import annotations

import enum
from typing import NamedTuple
from zlib import crc32

from kio.schema.errors import ErrorCode

from broker.log.core.leader_epochs import EpochEnd
from broker.replication.core.fetch_sessions import UNWATCHED


def fetcher_number(topic: str, index: int, *, count: int) -> int:
    """The number of the fetcher that follows the partition, out of `count` for a source. Partitions
    of a topic are distributed over the fetchers, and each keeps its fetcher.
    """
    # Kafka's formula, with a CRC for Java's hash: Python's own hash differs from process to process
    return (31 * crc32(topic.encode()) + index) % count


class Position(NamedTuple):
    """The fields of a partition's fetch that may change from one request to the next."""

    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    high_watermark: int = UNWATCHED
    """Reported only while clients read from this follower, so that the leader sends each new one at
    once.
    """

    @property
    def place(self) -> tuple[int, int, int, int]:
        """The log's end and leadership. A response is valid only if these are still the values of
        its request.
        """
        return self[:4]


def truncation_offset(*, leader_end: EpochEnd, own_end: EpochEnd, log_end_offset: int, high_watermark: int) -> int:
    """The offset to which to truncate the own log, from the ends of an epoch at the leader and
    here.

    `own_end` is the largest own epoch not above the leader's. When it is a smaller one, the
    leader's epoch is unknown here and this truncation is only a first step: the next fetch names an
    older epoch. If the leader has no epoch to compare, the replicated part stays.
    """
    if leader_end.epoch < 0:
        # A leader with a log of an old format has no epochs, so it cannot show where the histories
        # differ.
        return min(high_watermark, log_end_offset)
    if own_end.epoch < 0:
        return min(leader_end.end_offset, log_end_offset)
    if own_end.epoch != leader_end.epoch:
        return min(own_end.end_offset, log_end_offset)
    # the earlier of the two ends: above it one of the logs has another epoch's records
    return min(leader_end.end_offset, own_end.end_offset, log_end_offset)


class OutOfRange(NamedTuple):
    """The reaction to a fetch offset that the leader does not have: truncate to `offset`, or
    restart the log there.
    """

    offset: int
    must_restart: bool


def resume_out_of_range(*, leader_start: int, leader_end: int, log_end_offset: int) -> OutOfRange:
    """A follower that is ahead truncates its log to the leader's end; one that is behind the
    leader's start restarts its log there.
    """
    # the records in between are gone at the leader: no truncation makes the log continue
    if leader_start > log_end_offset:
        return OutOfRange(leader_start, must_restart=True)
    return OutOfRange(min(leader_end, log_end_offset), must_restart=False)


class Reaction(enum.Enum):
    """The reaction of a follower to the error code of one partition."""

    FIND_RANGE = "find the leader's log start and log end offset"
    AWAIT_IMAGE = "the leader epoch is old: wait for the controller"
    TRY_LATER = "try again after a pause"


_REACTIONS = {
    ErrorCode.offset_out_of_range: Reaction.FIND_RANGE,
    ErrorCode.fenced_leader_epoch: Reaction.AWAIT_IMAGE,
}


def reaction_to(code: ErrorCode) -> Reaction:
    """The reaction to an error. If a leader has an older epoch than the follower, the follower
    waits.
    """
    return _REACTIONS.get(code, Reaction.TRY_LATER)
