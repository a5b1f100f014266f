"""The rows of the board: one partition each, with its flow, its leaders, and what its workers note
about it; and how the effects of a decision are carried out for a row.

In the quiet rounds of a fetcher its source has no new records of some partitions. Their flows share
one object, and read it only before their next decision.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, assert_never
from uuid import UUID

from mirror.flow.core.assignment import NORMAL_RANK
from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_effects import (
    CheckSource,
    Discard,
    Effect,
    Effects,
    Fetch,
    FindTarget,
    QueueBatches,
    RefreshLink,
    RefreshMetadata,
    ReinstateCopy,
    RetryLater,
    StopFetching,
)
from mirror.flow.core.flow_events import Command, RetryDue
from mirror.flow.core.flow_state import FlowFacts
from mirror.link.ports import Leader
from wire.protocol.ids import TopicPartition

NO_LEADER: Final = Leader(-1, -1)
RETRY_INITIAL_MS: Final = 25
RETRY_MAX_MS: Final = 500
RETRY_SLOW_MS: Final = 5000


class Moment(NamedTuple):
    """One moment by both clocks: the wall clock, which may be set, and the monotonic clock."""

    at_ms: int
    monotonic_ms: float


class QuietRounds:
    """The rounds of one fetcher in which its source had nothing new of the partitions that share
    this object: so thousands of idle flows learn that the source answers without a command for
    each.
    """

    __slots__ = ("answered", "asked")

    def __init__(self, moment: Moment) -> None:
        self.asked = moment
        """When the last answered request was sent."""
        self.answered = moment
        """When its answer arrived."""


@dataclass(slots=True)
class Row:
    """One partition on the board."""

    flow: Flow
    topic_id: UUID
    source: Leader = NO_LEADER
    target: Leader = NO_LEADER
    # Generation and offset of the next fetch; None while the flow does not fetch.
    wanted: tuple[int, int] | None = None
    # The topic is at neither site: nothing is mirrored or shown, but workers may still use the row.
    is_retired: bool = False
    # False while another daemon of the link mirrors the partition: that daemon shows, counts and
    # compares it.
    is_ours: bool = True
    # The partition's priority under congestion (core/priorities.py).
    rank: int = NORMAL_RANK
    # The fetcher that holds batches which the flow has accepted and which are not queued yet.
    queueing: object | None = field(default=None, repr=False)
    retry: asyncio.TimerHandle | None = field(default=None, repr=False)
    # Removes the partition from the session of reports in which it is (`idle_reports.py`).
    leave_session: Callable[[TopicPartition], None] | None = field(default=None, repr=False)
    # The quiet rounds of its fetcher; the next command of the partition ends them.
    quiet: QuietRounds | None = field(default=None, repr=False)

    @property
    def facts(self) -> FlowFacts:
        """The facts of the flow."""
        return self.flow.facts


class EffectActs:
    """The effects of one board's flows. `submit` is the board's."""

    def __init__(
        self, effects: Effects, chance: random.Random, submit: Callable[[TopicPartition, Command], Any]
    ) -> None:
        self._effects = effects
        self._chance = chance
        self._submit = submit

    def carry_out(self, key: TopicPartition, row: Row, effect: Effect) -> None:
        """Carry out one effect."""
        match effect:
            case QueueBatches():
                pass  # The fetcher that submitted the batches queues them itself.
            case Fetch(generation=generation, offset=offset):
                row.wanted = (generation, offset)
                self._effects.fetching_changed(key)
            case StopFetching():
                row.wanted = None
                self._effects.fetching_changed(key)
            case Discard(generation=generation):
                self._effects.discard(key, generation)
            case FindTarget(generation=generation):
                self._effects.find_target(key, generation)
            case CheckSource(generation=generation, epoch=epoch):
                self._effects.check_source(key, generation, epoch)
            case ReinstateCopy(generation=generation, reason=reason):
                self._effects.reinstate_copy(key, generation, reason)
            case RetryLater():
                self._retry_later(key, row, effect)
            case RefreshMetadata(side=side):
                self._effects.refresh_metadata(side)
            case RefreshLink():
                self._effects.refresh_link()
            case _:
                assert_never(effect)

    def _retry_later(self, key: TopicPartition, row: Row, effect: RetryLater) -> None:
        cap_ms = min(RETRY_MAX_MS, RETRY_INITIAL_MS * 2 ** min(effect.attempt, 16))
        if effect.is_slow:
            cap_ms = RETRY_SLOW_MS
        # The jitter keeps flows that failed together from retrying together.
        delay_ms = cap_ms * (0.5 + self._chance.random() / 2)
        if row.retry is not None:
            row.retry.cancel()
        due = RetryDue(generation=effect.generation)
        row.retry = asyncio.get_running_loop().call_later(delay_ms / 1000, self._submit, key, due)
