"""Decides if a gap in a producer's sequences is real, or another leader has the missing batches.

A broker that is replaced as the leader, and does not know it yet, lacks what its successor has
acknowledged. Its OUT_OF_ORDER_SEQUENCE_NUMBER would be wrong: an idempotent producer would begin a
new epoch and might write records twice, and a transaction would be aborted. So a leader with other
in-sync replicas first refuses such a batch with a code that producers retry. It answers that the
sequence is out of order once it has proof: each in-sync replica has fetched twice since. The
replica sent the second fetch after the answer to the first, so it followed this leader at that
time, and no other leader had appended anything when the batch came.

Called by `replicas.py` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.log.core.producer_values import OutOfOrderSequence, PrecedingBatchPending, SnapshotEntry
from broker.replication.hosted_partition import HostedPartition
from broker.replication.tracked_sessions import TrackedSessions

FETCHES_THAT_PROVE: Final = 2
GAPS_REMEMBERED: Final = 1000  # the oldest is forgotten: its producer is refused once more


class _Gap(NamedTuple):
    leader_epoch: int
    producer: SnapshotEntry | None
    fetches: Mapping[int, tuple[int, int]]
    """Session id and fetch count by follower, when the gap was first seen."""


class SequenceGaps:
    """The gaps that leaders here are not sure about."""

    def __init__(self, followers: TrackedSessions) -> None:
        self._followers = followers
        self._gaps: dict[tuple[bytes, int, int], _Gap] = {}

    def judged(self, hosted: HostedPartition, refusal: Exception) -> Exception:
        """The error for the producer: the log's own refusal, unless that needs proof."""
        if not isinstance(refusal, OutOfOrderSequence):
            return refusal
        state = hosted.state
        # a proposed member counts: it may be the next leader already
        in_sync = {*state.isr, *(state.proposed_isr or ())} - {state.node_id}
        if not in_sync:
            return refusal
        key = hosted.topic_id, hosted.index, refusal.producer_id
        producer = hosted.log.producers.get(refusal.producer_id)
        fetches = self._followers.counts(hosted)
        known = self._gaps.get(key)
        # another leadership or a producer that has written since: the proof begins anew
        if known is None or (known.leader_epoch, known.producer) != (state.leader_epoch, producer):
            self._remember(key, _Gap(state.leader_epoch, producer, fetches))
        elif all(_has_proved(known.fetches.get(replica), fetches.get(replica)) for replica in in_sync):
            return refusal
        return PrecedingBatchPending(f"{refusal.reason}; another leader may have appended the missing records")

    def _remember(self, key: tuple[bytes, int, int], gap: _Gap) -> None:
        self._gaps.pop(key, None)
        while len(self._gaps) >= GAPS_REMEMBERED:
            del self._gaps[next(iter(self._gaps))]
        self._gaps[key] = gap


def _has_proved(before: tuple[int, int] | None, now: tuple[int, int] | None) -> bool:
    if now is None:
        return False
    # another session counts from 0: its fetches all came after the gap was seen
    since = before[1] if before is not None and before[0] == now[0] else 0
    return now[1] - since >= FETCHES_THAT_PROVE
