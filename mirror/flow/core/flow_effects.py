"""The effects of a partition's flow: what its shells do after a decision."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from mirror.flow.core.flow_state import FlowState
from runtime.invariants import InvariantBroken
from wire.protocol.ids import TopicPartition


class Side(enum.Enum):
    """The site whose metadata needs another look."""

    SOURCE = "source"
    TARGET = "target"


class Discard(Struct, frozen=True, kw_only=True):
    """Drop queued batches of older generations, let batches in flight end, then answer
    `Settled`.
    """

    generation: int


class FindTarget(Struct, frozen=True, kw_only=True):
    """Ask the target for its log's start, end and last epoch."""

    generation: int


class CheckSource(Struct, frozen=True, kw_only=True):
    """Ask the source for its log's start and high watermark and where `epoch` ends (-1: nothing to
    compare).
    """

    generation: int
    epoch: int


class ReinstateCopy(Struct, frozen=True, kw_only=True):
    """Let the target quarantine the copy's own records and truncate the copy there, if the link's
    policy allows it; `reason` describes the difference of the histories.
    """

    generation: int
    reason: str


class Fetch(Struct, frozen=True, kw_only=True):
    """Fetch from this offset on, until the next such effect."""

    generation: int
    offset: int


class StopFetching(Struct, frozen=True):
    """Stop fetching; the answer to a request in flight is ignored."""


class QueueBatches(Struct, frozen=True, kw_only=True):
    """Queue the fetched batches; the target's log must end at `expected_log_end_offset` before
    them.
    """

    generation: int
    expected_log_end_offset: int


class RetryLater(Struct, frozen=True, kw_only=True):
    """Answer `RetryDue` after a jittered wait that grows with `attempt`; slow waits are for states
    that need a person.
    """

    generation: int
    attempt: int
    is_slow: bool = False


class RefreshMetadata(Struct, frozen=True, kw_only=True):
    """Leaders may have moved."""

    side: Side


class RefreshLink(Struct, frozen=True):
    """The link's direction may have changed."""


Effect = (
    Discard
    | FindTarget
    | CheckSource
    | ReinstateCopy
    | Fetch
    | StopFetching
    | QueueBatches
    | RetryLater
    | RefreshMetadata
    | RefreshLink
)


class Effects(Protocol):
    """The actions that the board requests from other parts."""

    def discard(self, key: TopicPartition, generation: int) -> None:
        """Drop older batches, then submit `Settled`."""
        ...

    def find_target(self, key: TopicPartition, generation: int) -> None:
        """Ask the target for its log, then submit `TargetFound` or `TargetNotFound`."""
        ...

    def check_source(self, key: TopicPartition, generation: int, epoch: int) -> None:
        """Ask the source for its log, then submit `SourceChecked` or `SourceNotFound`."""
        ...

    def reinstate_copy(self, key: TopicPartition, generation: int, reason: str) -> None:
        """Make the copy a prefix of the source again, then submit `CopyReinstated` or
        `CopyNotReinstated`.
        """
        ...

    def fetching_changed(self, key: TopicPartition) -> None:
        """The partition must be fetched from another offset, or fetching must stop."""
        ...

    def refresh_metadata(self, side: Side) -> None:
        """Query a site's topics now."""
        ...

    def refresh_link(self) -> None:
        """Read the link's record now."""
        ...


OnBroken = Callable[[InvariantBroken], None]
OnTransition = Callable[[TopicPartition, FlowState, FlowState, str], None]
"""Called with a partition, its state before and after, and the reason."""
