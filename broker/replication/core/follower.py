"""How a follower applies its leader's answers: where to truncate, where to continue. Pure.

Logs of two replicas are equal up to the end of the last leader epoch that both have (KIP-101,
KIP-279). A fetch names the epoch of the follower's last batch; a leader where that epoch has
another end answers with that end instead of records. Also decides whether an answer is outdated.
Called by `replica_fetcher.py`.
"""

from __future__ import annotations

import enum
from typing import NamedTuple
from zlib import crc32

from kio.schema.errors import ErrorCode

from broker.log.core.leader_epochs import EpochEnd
from broker.replication.core.fetch_sessions import UNWATCHED


def fetcher_number(topic: str, index: int, *, count: int) -> int:
    """Which of `count` fetchers of a source follows the partition: a topic's partitions are spread
    and stay where they are.
    """
    return (31 * crc32(topic.encode()) + index) % count


class Position(NamedTuple):
    """All of a partition's fetch that may change from one request to the next."""

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
        """Where the log stands under which leadership: an answer counts only while this is as it
        was asked with.
        """
        return self[:4]


def truncation_offset(*, leader_end: EpochEnd, own_end: EpochEnd, log_end_offset: int, high_watermark: int) -> int:
    """Where to cut the own log, given where the leader says that an epoch ends and where that epoch
    ends here.

    `own_end` is the largest own epoch not above the leader's. When it is a smaller one, the
    leader's epoch is unknown here and the cut is only a first step: the next fetch names an older
    epoch. A leader without any epoch to compare leaves what is known to be replicated.
    """
    if leader_end.epoch < 0:
        return min(high_watermark, log_end_offset)
    if own_end.epoch < 0:
        return min(leader_end.end_offset, log_end_offset)
    if own_end.epoch != leader_end.epoch:
        return min(own_end.end_offset, log_end_offset)
    return min(leader_end.end_offset, own_end.end_offset, log_end_offset)


class OutOfRange(NamedTuple):
    """What to do about a fetch offset that the leader does not have: cut to it, or start anew
    there.
    """

    offset: int
    must_restart: bool


def resume_out_of_range(*, leader_start: int, leader_end: int, log_end_offset: int) -> OutOfRange:
    """A follower that is ahead cuts its log to the leader's end, one that is behind the leader's
    start begins anew there.
    """
    if leader_start > log_end_offset:
        return OutOfRange(leader_start, must_restart=True)
    return OutOfRange(min(leader_end, log_end_offset), must_restart=False)


class Reaction(enum.Enum):
    """What an error code of one partition asks of the follower."""

    FIND_RANGE = "find the leader's log start and log end offset"
    AWAIT_IMAGE = "the leader epoch is old: wait for the controller"
    TRY_LATER = "try again after a pause"


_REACTIONS = {
    ErrorCode.offset_out_of_range: Reaction.FIND_RANGE,
    ErrorCode.fenced_leader_epoch: Reaction.AWAIT_IMAGE,
}


def reaction_to(code: ErrorCode) -> Reaction:
    """How to go on after an error; a leader that knows less than this follower is given time."""
    return _REACTIONS.get(code, Reaction.TRY_LATER)
