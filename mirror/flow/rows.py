"""The rows of the board: one partition each, with its flow, its leaders, and what its workers note
about it.

In the quiet rounds of a fetcher its source has no new records of some partitions. Their flows share
one object, and read it only before their next decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from mirror.flow.core.assignment import NORMAL_RANK
from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_state import FlowFacts
from mirror.link.ports import Leader
from wire.protocol.ids import TopicPartition

NO_LEADER: Final = Leader(-1, -1)


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
    # Removes the partition from its session of reports (`reporting/idle_reports.py`).
    leave_session: Callable[[TopicPartition], None] | None = field(default=None, repr=False)
    # The quiet rounds of its fetcher; the next command of the partition ends them.
    quiet: QuietRounds | None = field(default=None, repr=False)

    @property
    def facts(self) -> FlowFacts:
        """The facts of the flow."""
        return self.flow.facts
