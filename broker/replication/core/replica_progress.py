"""The progress of another replica, as its fetches show it to the leader. Pure."""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from wire.protocol.ids import UNCHECKED_EPOCH

REFUSAL_PAUSE_MS: Final = 1_000
"""A registration that the controller refused to have in sync is not proposed again for this time in
ms: the controller may just not know it yet.
"""


class ReplicaProgress(Struct):
    """The fetch progress of another replica."""

    log_end_offset: int = -1
    caught_up_at_ms: float = 0.0
    fetched_at_ms: float = 0.0
    leader_end_at_fetch: int = -1
    broker_epoch: int = UNCHECKED_EPOCH
    log_start_offset: int = -1
    """The replica's log start offset; -1 until the replica has reported it."""
    refused_epoch: int = UNCHECKED_EPOCH
    """The registration that the controller refused to have in sync."""
    refused_at_ms: float = -math.inf
    may_exceed: bool = False
    """True from a truncation of the leader's log until the replica's next fetch: it may still have
    the removed records.
    """

    def record(
        self, fetch_offset: int, *, leader_end: int, broker_epoch: int, log_start_offset: int, now_ms: float
    ) -> None:
        """The replica asked for `fetch_offset`. A replica that reaches the log end of its previous
        fetch was caught up at that time.
        """
        if fetch_offset >= leader_end:
            self.caught_up_at_ms = now_ms
        elif 0 <= self.leader_end_at_fetch <= fetch_offset:
            # under steady load a follower is always one response behind: Kafka counts the end at
            # the previous fetch
            self.caught_up_at_ms = max(self.caught_up_at_ms, self.fetched_at_ms)
        self.log_end_offset = fetch_offset
        self.may_exceed = False
        self.leader_end_at_fetch = leader_end
        self.fetched_at_ms = now_ms
        self.broker_epoch = broker_epoch
        self.log_start_offset = log_start_offset

    def truncate(self, log_end_offset: int) -> None:
        """The leader's log ends there now; records beyond it do not count as fetched."""
        self.log_end_offset = min(self.log_end_offset, log_end_offset)
        self.may_exceed = True
        self.leader_end_at_fetch = min(self.leader_end_at_fetch, log_end_offset)

    def lags(self, log_end_offset: int, *, now_ms: float, lag_ms_max: float) -> bool:
        """True when the replica has not been at the log's end for `lag_ms_max`."""
        # at the end it does not lag, however long no record came
        return self.log_end_offset != log_end_offset and now_ms - self.caught_up_at_ms > lag_ms_max

    def is_eligible(self, registered: int | None, *, now_ms: float) -> bool:
        """True if the broker that fetched is the one registered now, and the controller has not
        recently refused it.
        """
        # -1: an older fetch version without an epoch cannot be checked and is accepted
        if registered is None or self.broker_epoch not in (UNCHECKED_EPOCH, registered):
            return False
        return registered != self.refused_epoch or now_ms - self.refused_at_ms > REFUSAL_PAUSE_MS
