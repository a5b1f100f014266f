"""The rows of the board: one partition each, with its flow, its leaders, and what its workers note
about it.

In the quiet rounds of a fetcher its source has no new records of some partitions. Their flows share
one object, and read it only before their next decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple
from uuid import UUID

from mirror.flow.core.assignment import NORMAL_RANK
from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_state import FlowFacts
from mirror.link.ports import Leader
from runtime.clock import Clock
from wire.protocol.ids import TopicPartition

NO_LEADER: Final = Leader(-1, -1)


class Moment(NamedTuple):
    """One moment by both clocks: the wall clock, which may be set, and the monotonic clock."""

    at_ms: int
    monotonic_ms: float


RETIRED_KEPT_MS: Final = 600_000
"""How long (ms) the row of a deleted partition is kept: far longer than any request that names it.
"""


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
    # The topic is at neither site: nothing is mirrored or shown, but workers may still use the row,
    # which `RetiredRows` removes later.
    is_retired: bool = False
    # False while another daemon of the link mirrors the partition: that daemon shows, counts and
    # compares it.
    is_ours: bool = True
    # The partition's priority under congestion (core/priorities.py).
    rank: int = NORMAL_RANK
    # The fetcher that holds batches which the flow has accepted and which are not queued yet.
    queueing: object | None = field(default=None, repr=False)
    retry: asyncio.TimerHandle | None = field(default=None, repr=False)
    # Removes the partition from its session of reports (`reporting/idle_reports.py`).
    leave_session: Callable[[TopicPartition], None] | None = field(default=None, repr=False)
    # The quiet rounds of its fetcher; the next command of the partition ends them.
    quiet: QuietRounds | None = field(default=None, repr=False)

    @property
    def is_in_use(self) -> bool:
        """True while a worker fetches, queues, reports or retries for the partition."""
        doing = (self.wanted, self.queueing, self.retry, self.leave_session, self.quiet)
        return any(one is not None for one in doing)

    @property
    def facts(self) -> FlowFacts:
        """The facts of the flow."""
        return self.flow.facts


class RetiredRows:
    """The retired ones of a board's rows: they are kept for a while, because workers may still use
    them.
    """

    def __init__(self, rows: Mapping[TopicPartition, Row], clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        # When they were retired (monotonic ms), the earliest first.
        self._since_ms: dict[TopicPartition, float] = {}

    def note(self, key: TopicPartition) -> None:
        """The partition was retired just now."""
        self._since_ms.pop(key, None)
        self._since_ms[key] = self._clock.monotonic_ms()

    def take_unused(self, may_forget: Callable[[TopicPartition], bool]) -> Iterator[TopicPartition]:
        """The partitions that were retired long ago and are not used, by `may_forget` either; they
        are taken out of here.
        """
        until_ms = self._clock.monotonic_ms() - RETIRED_KEPT_MS
        for key in list(takewhile(lambda one: self._since_ms[one] <= until_ms, self._since_ms)):
            row = self._rows[key]
            # Its topic is back: it may be retired again later.
            if not row.is_retired:
                del self._since_ms[key]
            elif not row.is_in_use and may_forget(key):
                del self._since_ms[key]
                yield key
